"""The scans over chunk states and the chunk output: gradients, slopes, states handed on, gradients asked for alone."""

import inspect
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chunkwise.stages import chunk_delta_h, chunk_h, chunk_o

C = 16
STAGES = [chunk_delta_h, chunk_h, chunk_o]
names = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__.rpartition(".")[2])


def params(stage):
    return {"scale": 0.7} if stage is chunk_o else {}


def inputs_of(stage, T=37, absent=(), decay=3.0, dtype=torch.float64, K=5):
    """Every input of the stage for B = 2, H = 2, HV = 4, V = 7; those in ``absent`` are None."""
    sizes = {"B": 2, "T": T, "N": 2, "NT": -(-T // C), "H": 2, "HV": 4, "K": K, "V": 7}
    generator = torch.Generator().manual_seed(T)

    def make(name, port):
        x = torch.randn([sizes[axis] for axis in port.axes], generator=generator, dtype=dtype)
        if name == "g":
            return torch.cat([part.cumsum(1) for part in (-decay * x.abs()).split(C, dim=1)], dim=1)
        return -0.1 * x.abs() if name == "g_gamma" else 0.3 * x if name == "w" else x

    return {name: None if name in absent else make(name, port) for name, port in stage.CONTRACT.inputs.items()}


@names
@pytest.mark.parametrize(
    ("T", "absent", "decay"),
    [
        (37, (), 3.0),
        (37, ("g", "g_gamma"), 3.0),
        (32, ("g_gamma", "initial_state"), 20.0),
        (1, ("g",), 3.0),
        (0, (), 3.0),
    ],
)
@pytest.mark.parametrize("only", [None, "first", "last"])
def test_vjp_equals_autograd(stage, T, absent, decay, only):
    """All cotangents, or only one of them: the others are None, not zeros."""
    inputs = inputs_of(stage, T, absent, decay)
    wanted = [name for name, x in inputs.items() if x is not None and name != "g_gamma"]
    for name in wanted:
        inputs[name].requires_grad_()
    outputs = stage.reference(**inputs, C=C, **params(stage))
    kept = {None: list(outputs), "first": list(outputs)[:1], "last": list(outputs)[-1:]}[only]
    cotangents = {f"d_{name}": torch.randn_like(x) if name in kept else None for name, x in outputs.items()}
    known = {**inputs, **outputs, **cotangents}
    loss = sum((outputs[name] * cotangents[f"d_{name}"]).sum() for name in kept)
    sources = [inputs[name] for name in wanted]
    loss = loss + sum(0 * x.sum() for x in sources)
    expected = torch.autograd.grad(loss, sources)
    taken = {name: known[name] for name in inspect.signature(stage.vjp).parameters if name in known}
    with torch.no_grad():
        found = stage.vjp(**taken, needs=frozenset(wanted), C=C, **params(stage))
    assert found.keys() == set(wanted)
    for name, gradient in zip(wanted, expected, strict=True):
        torch.testing.assert_close(found[name], gradient, rtol=1e-11, atol=1e-11, msg=name)


@pytest.mark.parametrize("stage", [chunk_h, chunk_o])
def test_a_slope_is_a_constant_gate_and_adds_to_one(stage):
    inputs = inputs_of(stage)
    row = torch.arange(37) % C + 1
    slope = row[None, :, None] * inputs["g_gamma"] * math.log2(math.e)
    for g in (None, inputs["g"]):
        by_slope = stage.reference(**{**inputs, "g": g}, C=C, **params(stage))
        total = slope.expand(2, -1, -1) if g is None else g + slope
        by_gate = stage.reference(**{**inputs, "g": total, "g_gamma": None}, C=C, **params(stage))
        for name, x in by_gate.items():
            torch.testing.assert_close(by_slope[name], x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stage", [chunk_delta_h, chunk_h])
def test_the_state_after_a_part_starts_the_rest(stage):
    """S12, with the cut at a chunk's border; no rows at all hand the state through (V1, E10)."""
    inputs = inputs_of(stage)
    whole = stage.reference(**inputs, C=C)
    tokens = [name for name, port in stage.CONTRACT.inputs.items() if "T" in port.axes]
    part = {**inputs, **{name: inputs[name][:, : 2 * C] for name in tokens}}
    rest = {**inputs, **{name: inputs[name][:, 2 * C :] for name in tokens}}
    first = stage.reference(**part, C=C)
    rest["initial_state"] = first["final_state"]
    torch.testing.assert_close(stage.reference(**rest, C=C)["final_state"], whole["final_state"])
    none = {**inputs, **{name: inputs[name][:, :0] for name in tokens}}
    assert torch.equal(stage.reference(**none, C=C)["final_state"], inputs["initial_state"])


ALONE = """
import sys, inspect, torch
sys.path.insert(0, sys.argv[1])
from test_state_stages import C, STAGES, inputs_of, params
from chunkwise.stages._seqs import Seqs
T, sizes = 20, {"B": 2, "T": 20, "N": 2, "NT": 2, "H": 2, "HV": 4, "K": 36, "V": 7, "C": C}
for stage in STAGES:
    inputs = inputs_of(stage, T, absent=("g_gamma",), dtype=torch.float32, K=36)
    outputs = stage.reference(**inputs, C=C, **params(stage))
    given = {**inputs, **outputs, **{f"d_{name}": torch.randn_like(x) for name, x in outputs.items()}}
    launcher = stage.VJP_LAUNCHERS[0]
    config = launcher.configs(sizes, "cpu")[0]
    parameters = inspect.signature(launcher.launch).parameters
    wanted = [name for name in parameters if name.startswith("d_") and name[2:] in inputs and name not in given]

    def gradients(asked):
        made = {name: torch.full_like(inputs[name[2:]], torch.nan) if name in asked else None for name in wanted}
        scratch = {name: torch.full([{**sizes, **config}[axis] for axis in port.axes], torch.nan)
                   for name, port in launcher.scratch.items()}
        known = {**given, **made, **scratch}
        taken = {name: known[name] for name in parameters if name in known}
        for each in launcher.launch(**taken, C=C, **params(stage), seqs=Seqs(2, T, C, 2), config=config):
            each.kernel[each.grid](**each.args, **each.constexprs)
        return made

    together = gradients(wanted)
    for name in wanted:
        torch.testing.assert_close(gradients([name])[name], together[name], rtol=1e-5, atol=1e-5, msg=name)
        print(stage.__name__, name)
"""


def test_kernels_give_each_gradient_alone():
    """In the interpreter: what is not asked for is neither needed nor stored."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", ALONE, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 5 + 4 + 5
