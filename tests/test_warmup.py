"""Kernels compiled ahead: those that a call then asks for, into Triton's own caches; and the command that does it."""

import json

import pytest
import torch
from support.ops import inputs, op
from support.stand_in_driver import stand_in_driver

from chunkwise.runner import load
from chunkwise.runner.commands import warmup
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.launching.compile_ahead import compile_ahead
from chunkwise.runner.main import main, make_parser

SIZES = dict(B=2, T=70, H=2, HV=4, K=32, V=16)


def run(an_op, given, seqlens, outputs, backward):
    leaves = {name: x.detach().requires_grad_(backward) for name, x in given.items() if x is not None}
    found = [x for x in an_op(**leaves, seqlens=seqlens, outputs=outputs) if x is not None]
    if backward:
        torch.autograd.grad(found, list(leaves.values()), [torch.ones_like(x) for x in found])


@pytest.mark.parametrize("without", [(), ("initial_state", "final_state")], ids=["all", "without states"])
@pytest.mark.parametrize("seqlens", [None, (40, 0, 30)], ids=["plain", "packed"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", ["gated_delta", "kda_core"])
def test_a_call_finds_all_of_its_kernels(name, backward, seqlens, without):
    """The same specialisations: of other B, T and lengths, by Triton's own keys."""
    with stand_in_driver() as driver:
        an_op = load(name, backend="triton")
        sizes = complete(an_op.whole, {**SIZES, "B": 1, "T": 200}, len(seqlens) if seqlens else None)
        lengths = (200, *[0] * (len(seqlens) - 1)) if seqlens else None
        call = warmup.bare_call(an_op, sizes, lengths, torch.bfloat16, torch.device("cuda", 0), without)
        assert compile_ahead(warmup.all_launches(call, backward)) == []
        ahead, driver.compiled = driver.compiled, []
        given = inputs(an_op, torch.bfloat16, seqlens=seqlens, absent=without, **SIZES | ({"B": 1} if seqlens else {}))
        run(load(name, backend="triton"), given, seqlens, [x for x in an_op.spec.outputs if x not in without], backward)
        assert driver.compiled == [] and ahead and driver.launches


def test_short_calls_find_theirs_too(monkeypatch):
    """auto takes sequences of a few tokens by token: the command compiles both forms, whatever T it is given."""
    with stand_in_driver() as driver:
        args = make_parser().parse_args("warmup simple_gla --axes K=32,V=16,H=2,HV=4".split())
        for call in warmup.calls_of(args, torch.device("cuda", 0)):
            assert compile_ahead(warmup.all_launches(call, False)) == []
        ahead, driver.compiled = driver.compiled, []
        for T in (1, 9, 100):
            load("simple_gla", backend="triton")(**inputs(op("simple_gla"), torch.bfloat16, **SIZES | {"T": T}))
        assert driver.compiled == [] and len(ahead) > 1 and len(driver.launches) > 3


def test_the_command(tmp_path, monkeypatch, capsys):
    """For a GPU that need not be here; a second process finds the kernels in the cache on disk."""
    from chunkwise.kernels.feature_step import feature_step_kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    argv = ["warmup", "lightning_step", "--arch", "90", "--axes", "K=16,V=16", "--json"]
    for cached in (False, True):
        feature_step_kernel.device_caches.clear()
        assert main(argv) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["pipeline"], found["device_class"]) == ("lightning_step", "sm_90")
        assert [(each["kernel"], each["cached"]) for each in found["kernels"]] == [("feature_step_kernel", cached)]
        assert list(tmp_path.rglob("feature_step_kernel.cubin"))
    feature_step_kernel.device_caches.clear()
    assert main(argv[:-1]) == 0
    assert "0 kernels compiled, 1 were in the cache" in capsys.readouterr().out


@pytest.mark.parametrize("argv, code, error, help", [
    ([], 3, "error[CW701]: warmup compiles for the GPU that is here, and there is none",
     "--arch 90 compiles for one that is elsewhere: its cache folder, TRITON_CACHE_DIR, can be taken there"),
    (["--arch", "91"], 2, "error[CW601]: argument --arch: invalid choice: 91 (choose from 80, 90, 100)",
     "chunkwise warmup --help lists what it takes"),
    (["--arch", "90", "--axes", "Z=3"], 2, "error[CW602]: --axes: gated_delta has no axis Z",
     "its axes are B, C, H, HV, K, N, NT, T, V"),
    (["--arch", "90", "--without", "z"], 2, "error[CW601]: --without: there is no 'z'",
     "--without takes initial_state, o, final_state, with commas between"),
    (["--arch", "90", "--dtype", "fp64"], 2, "error[CW604]: float64 runs on the reference back end only, not on triton",
     "pass backend='reference'"),
    (["--arch", "90", "--mode", "recurrent", "--backward"], 2,
     "error[CW601]: --mode recurrent has no gradients: a call that needs them runs the chunked form",
     "leave out --backward to see the recurrent form, and --mode to see the gradients"),
])  # fmt: skip
def test_what_it_refuses(argv, code, error, help, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["warmup", "gated_delta", *argv]) == code
    assert capsys.readouterr().err == f"{error}\nhelp: {help}\n\n"


def test_a_kernel_that_does_not_compile(monkeypatch, capsys, tmp_path):
    from triton.runtime.jit import JITFunction

    def broken(*args, **keywords):
        raise RuntimeError("no such instruction")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compile = JITFunction._do_compile

    def failing(self, *args):
        monkeypatch.setattr(self, "compile", broken)
        return compile(self, *args)

    monkeypatch.setattr(JITFunction, "_do_compile", failing)
    assert main(["warmup", "lightning_step", "--arch", "80", "--axes", "K=24,V=16"]) == 1
    assert "error[CW804]: a kernel does not compile: RuntimeError: no such instruction" in capsys.readouterr().err
