"""Maps and merges on their kernels, over three ranks: a sequence that passes through the middle one; and attention."""

import pytest
import torch
from support.ranks import on_ranks

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.parallel.verify_ranks import verify_ranks
from chunkwise.runner.planning.execute import run_kernel
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.workloads import other_axes

DELTA = "delta_prescan,chunk_delta_o,chunk_delta_states,chunk_delta_grads"
CASES = {
    "gated_delta": (8, "none", None, True), "gated_delta fused": (8, DELTA, (5, 29), True),
    "simple_gla": (7, "chunk_h_o,chunk_h_o_grads", (5, 29), True), "gla": (2, "chunk_h_o_k", None, False),
    "kda_core": (2, "chunk_delta_o_k", (3, 31), False),
    "flash": (2, "none", None, False), "flash_varlen": (6, "none", None, True),
}  # fmt: skip
"""Pipeline -> how many results, what is fused, lengths, and whether gradients too."""


def verified(rank, size):
    found = {}
    for name, (_, fuse, lengths, backward) in CASES.items():
        op = load(name.partition(" ")[0], backend="interpret", fuse=fuse)
        op = op.with_axes({"C": 16}) if "C" in op.spec.axes else op
        sizes = dict(B=1, T=34, H=1, HV=1, K=24, V=20)
        sizes = complete(op.whole, sizes | other_axes(sizes), lengths and len(lengths))
        inputs = make_inputs(op.whole, sizes, torch.float32, "cpu", 0, "weak_gate")
        checked = verify_ranks(op.context_parallel(), inputs, seqlens=lengths, backward=backward)
        if checked:
            made = [row for row in checked.rows if row.backend == f"{size} ranks"]
            found[name] = [len(made), *(f"{row.value}: {row.why}" for row in checked.rows if not row.ok)]
    return found


@pytest.fixture(scope="module")
def found():
    result = on_ranks(3, verified)[0]
    assert isinstance(result, dict), result
    return result


@pytest.mark.parametrize("name", CASES)
def test_three_ranks(found, name):
    assert found[name] == [CASES[name][0]]


@pytest.mark.parametrize("name,numbers", [("merge_segments", {"first": 0}), ("merge_cotangents", {"last": 4})])
def test_a_sequence_on_six_ranks(name, numbers):
    """What came so far goes from one scratch buffer to the other and back."""
    stage, given = find_stages()[name], {**numbers, "count": 5}
    maps, states, own = (torch.rand(*shape) / 8 for shape in ((6, 1, 2, 24, 24), (6, 1, 2, 24, 20), (3, 2, 24, 20)))
    y, passed = torch.full_like(own, torch.nan), torch.full((2, 1, 2, 24, 20), torch.nan)
    launcher = stage.launchers[0]
    config = launcher.configs({"K": 24, "V": 20}, "sm_90")[0]
    for launch in launcher.launch(maps, None, states, own, y, passed, **given, seqs=None, config=config):
        run_kernel(launch)
    (right,) = stage.reference(maps.double(), None, states.double(), own.double(), N=3, **given).values()
    torch.testing.assert_close(y.double(), right, rtol=1e-6, atol=1e-6)
