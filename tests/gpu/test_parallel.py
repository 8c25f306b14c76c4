"""Sequences cut over two ranks, held against the definition in bfloat16: over two GPUs and NCCL, and, where there is
one GPU, over gloo with both ranks on that."""

from functools import partial

import pytest
import torch
from support.ranks import on_ranks

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.parallel.verify_ranks import verify_ranks
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.workloads import other_axes

pytestmark = pytest.mark.gpu
PIPELINES = ["gated_delta", "delta_rule", "simple_gla", "retention", "lightning", "gla", "kda", "mamba2"]
ATTENTION = ["flash", "flash_varlen"]
SIZES = dict(B=1, H=2, HV=4, K=128, V=128)


def verified(rank, size, name, device):
    op, found = load(name), {}
    for lengths, T in ((None, 300), ((37, 251, 140), 428)) if "T" in op.whole.axis_names else ((None, 301),):
        sizes = {**SIZES, "T": T}
        sizes = complete(op.whole, sizes | other_axes(sizes), lengths and len(lengths))
        inputs = make_inputs(op.whole, sizes, torch.bfloat16, device)
        checked = verify_ranks(op.context_parallel(), inputs, seqlens=lengths, backward=True)
        if checked:
            found[lengths] = [f"{row.id}.{row.value}: {row.why}" for row in checked.rows if not row.ok]
    return found


def verified_on_its_own(rank, size, name):
    return verified(rank, size, name, f"cuda:{rank}")


def verified_on_one(rank, size, name):
    torch.cuda.set_device(0)
    return verified(rank, size, name, "cuda:0")


def is_right(found, name):
    assert isinstance(found, dict), found
    assert len(found) == (1 if name in ATTENTION else 2)
    assert not any(found.values()), found


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("name", [*PIPELINES, *ATTENTION])
def test_two_gpus(name):
    is_right(on_ranks(2, partial(verified_on_its_own, name=name), timeout=180, transport="nccl")[0], name)


@pytest.mark.parametrize("name", [*PIPELINES, *ATTENTION])
def test_two_ranks_of_one_gpu(name):
    is_right(on_ranks(2, partial(verified_on_one, name=name), timeout=180)[0], name)
