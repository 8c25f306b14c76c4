"""Every pipeline's kernels in the interpreter, stage by stage and against the definition."""

import pytest
from support.ops import OPS, PIPELINES, check, inputs, op, same_bits

from chunkwise.runner import load

FUSED = (
    "delta_prescan,chunk_delta_o,chunk_h_o,gla_prescan,kda_prescan,kda_norm_prescan,kda_gate_norm_prescan,"
    "chunk_h_o_k,chunk_delta_wy_o_k"
)


def verified(name, seqlens):
    kernel = op(name, 16, "interpret")
    check(kernel, inputs(kernel, seqlens=seqlens, B=1, T=18, H=1, HV=2, K=24, V=40), seqlens=seqlens)


@pytest.mark.parametrize("name", PIPELINES)
def test_packed(name):
    verified(name, (17, 0, 1))


@pytest.mark.parametrize("name", OPS)
def test_plain(name):
    verified(name, None)


@pytest.mark.parametrize("seqlens", [None, (17, 0, 1)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", ["gated_delta", "delta_rule", "simple_gla", "gla", "kda"])
def test_fused(name, seqlens):
    kernel = load(name, backend="interpret", mode="chunk", fuse=FUSED).with_axes({"C": 16})
    given = inputs(kernel, seqlens=seqlens, B=1, T=18, H=1, HV=2, K=24, V=40)
    assert kernel.bind(given, None, seqlens).forward_plan().notes
    check(kernel, given, seqlens=seqlens)


@pytest.mark.parametrize("name", ["gated_delta", "simple_gla", "gla", "kda_core"])
def test_fused_when_one_output_is_wanted(name):
    """A kernel that writes both leaves the other's bits as they are."""
    kernel = load(name, backend="interpret", mode="chunk", fuse=FUSED).with_axes({"C": 16})
    given = inputs(kernel, B=1, T=18, H=1, HV=1, K=16, V=16)
    both = kernel(**given)
    for output in ("o", "final_state"):
        found = kernel(**given, outputs=[output])
        assert same_bits(getattr(found, output), getattr(both, output))


@pytest.mark.parametrize("name,HV,seqlens", [("gated_delta", 2, (17, 0, 1)), ("delta_rule", 1, None)])
def test_fused_gradients(name, HV, seqlens):
    """With value heads that share keys, and with each its own."""
    kernel = load(name, backend="interpret", fuse="chunk_delta_grads,chunk_delta_states").with_axes({"C": 16})
    given = inputs(kernel, seqlens=seqlens, B=1, T=18, H=1, HV=HV, K=24, V=40)
    result = check(kernel, given, seqlens=seqlens, backward=True)
    assert {"scan.rebuild", "out.vjp.reverse", "out.vjp.grads"} <= {row.id for row in result.rows}


@pytest.mark.parametrize("name,HV,seqlens", [("simple_gla", 2, (17, 0, 1)), ("mamba2", 1, None)])
def test_gradients_by_scans(name, HV, seqlens):
    """With value heads that share keys, and with each its own."""
    kernel = load(name, backend="interpret", fuse="chunk_h_o_grads").with_axes({"C": 16})
    given = inputs(kernel, seqlens=seqlens, B=1, T=19, H=1, HV=HV, K=24, V=40)
    result = check(kernel, given, seqlens=seqlens, backward=True)
    assert {"grads", "gate"} <= {row.id.rpartition(".")[2] for row in result.rows}
