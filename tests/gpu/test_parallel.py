"""Sequences cut over two GPUs and NCCL: the same code as over gloo, held against the definition in bfloat16."""

from functools import partial

import pytest
import torch
from support.ranks import on_ranks

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.parallel.verify_ranks import verify_ranks
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.workloads import other_axes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
PIPELINES = ["gated_delta", "delta_rule", "simple_gla", "retention", "lightning", "gla", "kda", "mamba2"]
ATTENTION = ["flash", "flash_varlen"]
SIZES = dict(B=1, H=2, HV=4, K=64, V=64)


def verified(rank, size, name):
    op, found = load(name), {}
    for lengths, T in ((None, 300), ((37, 251, 140), 428)) if "T" in op.whole.axis_names else ((None, 301),):
        sizes = {**SIZES, "T": T}
        sizes = complete(op.whole, sizes | other_axes(sizes), lengths and len(lengths))
        inputs = make_inputs(op.whole, sizes, torch.bfloat16, f"cuda:{rank}")
        checked = verify_ranks(op.context_parallel(), inputs, seqlens=lengths, backward=True)
        if checked:
            found[lengths] = [f"{row.id}.{row.value}: {row.why}" for row in checked.rows if not row.ok]
    return found


@pytest.mark.parametrize("name", [*PIPELINES, *ATTENTION])
def test_two_gpus(name):
    found = on_ranks(2, partial(verified, name=name), timeout=180, transport="nccl")[0]
    assert isinstance(found, dict), found
    assert len(found) == (1 if name in ATTENTION else 2)
    assert not any(found.values()), found
