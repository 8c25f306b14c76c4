"""Small ops and inputs for tests, and checks against the float64 truth that fail with words."""

from functools import cache

import torch

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.loading.load_spec import read_spec
from chunkwise.runner.loading.pipelines import find_pipeline, names
from chunkwise.runner.planning.dtypes import name_of
from chunkwise.runner.verification.budgets import judge
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.verification.oracle import definition_outputs
from chunkwise.runner.verification.verify import Verification, verify

DECODE = [name for name in names() if read_spec(find_pipeline(name)).definition.step and name.endswith("_decode")]
"""They write over their states, and have no gradients."""
STEPS = [name for name in names() if name.endswith("_step")]
"""One stage each, without chunks; their gradients are autograd's. tests/test_steps.py is about them."""
DENSE = [name for name in names() if read_spec(find_pipeline(name)).definition.dense]
"""Attention: their definition is over whole tensors. tests/test_flash.py and its neighbours are about them."""
PIPELINES = [name for name in names() if name not in (*DECODE, *STEPS, *DENSE)]
GATED = ["gated_delta", "simple_gla"]
OPS = [*GATED, "delta_rule", "qwen3_next_gdn"]
"""What the cases of hard inputs are about; variants of one wiring are left to tests/test_pipelines.py."""

RAGGED = (0, 33, 0, 1, 64, 0)
SIZES = dict(B=2, T=70, H=2, HV=4, K=48, V=80)
"""Ragged chunk, grouped heads, K different from V; K and V no powers of two."""
LITTLE = dict(B=1, H=1, HV=2, K=24, V=16)
"""For float32 and gradients, whose budgets take many passes, and where T is what matters."""


@cache
def op(name: str, C: int | None = None, backend: str = "reference", mode: str = "chunk", fuse: str = "auto"):
    """In the chunked form, however short the sequences, unless another mode is named. C: the length of a chunk, for the
    pipelines that have chunks."""
    found = load(name, backend=backend, mode=mode, fuse=fuse)
    return found.with_axes({"C": C}) if C and "C" in found.spec.axes else found


def has_gradient_kernels(name: str) -> bool:
    """Whether every stage's gradient has a kernel; steps leave theirs to autograd through the reference."""
    found = op(name)
    return all(found.stages[entry.use].vjp_launchers for entry in found.spec.stages.values())


def sizes_for(an_op, seqlens=None, **sizes) -> dict[str, int]:
    """A size for every axis of the op: SIZES, under what was asked for; axes of other ops get 16."""
    fixed = an_op.spec.axes
    chosen = {axis: SIZES.get(axis, 16) for axis in an_op.whole.axis_names if axis not in ("N", "NT", *fixed)}
    if seqlens is not None:
        chosen.update(B=1, T=sum(seqlens))
    return complete(an_op.whole, {**chosen, **sizes}, None if seqlens is None else len(seqlens))


def inputs(an_op, io=torch.float32, *, seqlens=None, case="typical", seed=0, device="cpu", absent=(), **sizes) -> dict:
    """Generated tensors by name; None for the absent ones."""
    found = make_inputs(an_op.whole, sizes_for(an_op, seqlens, **sizes), io, device, seed, case)
    return {name: None if name in absent else x for name, x in found.items()}


def check(an_op, given: dict, **keywords) -> Verification:
    """Every stage and the op are within budget on these inputs."""
    result = verify(an_op, given, **keywords)
    bad = [f"{row.id}.{row.value}: {row.why}" for row in result.rows if not row.ok]
    where = f"{result.pipeline} {name_of(result.io)} {result.backend} {dict(result.sizes)}"
    assert not bad, "\n".join([where, *bad])
    assert result.rows
    return result


def definition(an_op, given: dict, *, seqlens=None, params=None) -> dict[str, torch.Tensor]:
    """The op's outputs by its definition in float64."""
    call = an_op.bind({**given, **(params or {})}, None, seqlens)
    return definition_outputs(call.graph, call.contiguous, call.params, call.sizes, call.packing)


def close(an_op, given: dict, got, one_call, name: str, **keywords) -> None:
    """Output ``name``, come by in another way, is as near to the definition as one call's rounding allows."""
    call = an_op.bind(given, None, keywords.get("seqlens"))
    truth, axes = definition(an_op, given, **keywords)[name], call.graph.values[call.graph.outputs[name]].axes
    verdict = judge(got, truth, [getattr(one_call, name)], axes, call.seqs, call.io, 0.0)
    assert verdict.ok, f"{name}: {verdict.why}"


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def refusal(call, *args, **keywords):
    """The diagnostics of the error that a call must raise."""
    try:
        call(*args, **keywords)
    except ChunkwiseError as error:
        return error.diagnostics
    raise AssertionError("nothing was refused")
