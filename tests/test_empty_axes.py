"""No heads, or no values: nothing to compute is no error, on either back end."""

import pytest
import torch
from support.stand_in_driver import stand_in_driver

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.planning import execute
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.workloads import other_axes


@pytest.mark.parametrize("empty", ["HV", "V"])
@pytest.mark.parametrize("name", "gated_delta delta_rule simple_gla kda gla mamba2".split())
def test_both_passes(name, empty):
    op = load(name, backend="reference", fuse="none")
    sizes = dict(B=1, T=100, H=1, HV=2, K=64, V=64) | {empty: 0}
    inputs = make_inputs(op.whole, complete(op.whole, sizes | other_axes(sizes), None), torch.bfloat16, "cpu", 0)
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    with stand_in_driver():
        for each in (load(name, backend="triton"), op, op.in_segments(chunks=1)):
            out = each(**leaves)
            grads = torch.autograd.grad(out.o.sum() + out.final_state.sum(), [*leaves.values()], allow_unused=True)
            assert not out.o.numel() and not out.final_state.numel()
    assert any(x is not None for x in grads) and all(x is None or not x.any() for x in grads)


@pytest.mark.parametrize("empty", ["HV", "V"])
@pytest.mark.parametrize("name", "gated_delta simple_gla kda gla mamba2".split())
def test_whatever_has_numbers_is_written(monkeypatch, name, empty):
    """Each output of a fused step, forward and backward, is an argument of a launch that has programs."""
    left, prepare = [], execute.prepare

    def watched(step, *rest):
        outputs, run = prepare(step, *rest)
        reached = {x.data_ptr() for launch in run.launches if all(launch.grid) for x in tensors_in(launch.args)}
        left.extend((step.node.id, port) for port, x in outputs.items() if numbers(x) and x.data_ptr() not in reached)
        return outputs, run

    monkeypatch.setattr(execute, "prepare", watched)
    op = load(name, backend="triton")
    sizes = dict(B=1, T=100, H=1, HV=2, K=128, V=128) | {empty: 0}
    inputs = make_inputs(op.whole, complete(op.whole, sizes | other_axes(sizes), None), torch.bfloat16, "cpu", 0)
    with stand_in_driver():
        out = op(**{name: x.requires_grad_() for name, x in inputs.items()})
        (out.o.sum() + out.final_state.sum()).backward()
    assert not left


def tensors_in(args):
    return [x for x in args.values() if isinstance(x, torch.Tensor)]


def numbers(x):
    return x is not None and x.numel()


def test_attention_without_query_heads():
    op = load("mla_naive", backend="reference")
    sizes = dict(B=1, T=20, H=1, HV=2, K=16, V=16)
    sizes |= other_axes(sizes) | {"HQ": 0}
    inputs = make_inputs(op.whole, complete(op.whole, sizes, None), torch.float32, "cpu", 0)
    assert op(**inputs).o.shape[:3] == (1, 20, 0)
