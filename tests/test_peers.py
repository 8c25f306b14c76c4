"""Peers: each maps a pipeline's inputs on the function that it names, by our own functions with fla's signatures."""

import re
from importlib import import_module

import pytest
import torch
from support.attention import BARE
from support.ops import op

import chunkwise.runner
from chunkwise.runner.benching import peers
from chunkwise.runner.benching.case import Case, input_set
from chunkwise.runner.benching.peers import _softmax, fla, flashqla
from chunkwise.runner.benching.peers._compiled import always_compiled
from chunkwise.runner.benching.peers._linear import linear_forward
from chunkwise.runner.benching.whole_op import ours, run_once
from chunkwise.runner.graphs.sizes import complete

SIZES = dict(B=1, T=20, H=2, HV=2, K=16, V=16)
ATTENTION = dict(Sq=20, Sk=20, HQ=4, D=16, DV=24)
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def case_of(name, seqlens=None, backward=False, device=CPU, io=torch.float32, absent=(), **sizes):
    found = op(name)
    known = set(found.whole.axis_names)
    chosen = {axis: size for axis, size in (SIZES | sizes).items() if axis in known}
    axes = complete(found.whole, chosen, len(seqlens) if seqlens else None)
    return Case(found, None, axes, frozenset(), seqlens, io, device, backward, absent=absent)


def dropped_in(name, served):
    """The peer's forward with our function of the same name and signature in its place."""
    path, tensors, options = served[name]
    return linear_forward(getattr(chunkwise.runner, path.split(".")[-1]), tensors, options)


@pytest.mark.parametrize("seqlens", [None, (5, 0, 15)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", [name for name in fla.SERVED if name != "linear_attn"])
def test_what_fla_is_given_is_the_op(name, seqlens):
    case = case_of(name, seqlens)
    given = input_set(case)
    found, expected = run_once(dropped_in(name, fla.SERVED), given), run_once(ours(case), given)
    for each in ("o", "final_state"):
        torch.testing.assert_close(found[each], expected[each], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name, some", [
    ("gated_delta", {"d_q", "d_k", "d_v", "d_g", "d_beta", "d_initial_state"}),
    ("kda", {"d_dt_bias", "d_A_log", "d_b", "d_a"}),
])  # fmt: skip
def test_gradients_are_those_of_all_that_ours_has(name, some):
    case = case_of(name, backward=True)
    given = input_set(case)
    found, expected = run_once(dropped_in(name, fla.SERVED), given), run_once(ours(case), given)
    assert found.keys() == expected.keys() >= some
    for each, x in expected.items():
        torch.testing.assert_close(found[each], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("served", [fla.SERVED, flashqla.SERVED, _softmax.SERVED])
def test_what_is_served_is_a_pipeline_with_those_inputs(served):
    for name, told in served.items():
        tensors = told[1].values() if isinstance(told, tuple) else _softmax.TENSORS
        tensors = flashqla.TENSORS.values() if isinstance(told, dict) else tensors
        assert set(tensors) <= set(op(name).whole.inputs), name


@pytest.mark.parametrize("name, case, words", [
    ("fla", case_of("gla"), "need a GPU"), ("fla", case_of("mamba2"), "fla has nothing for mamba2"),
    ("flashqla", case_of("gated_delta", device=CUDA), "takes bf16 and fp16, the case is fp32"),
    ("flashqla", case_of("gated_delta", device=CUDA, io=torch.bfloat16), "cannot be imported: No module"),
    ("cudnn", case_of("gla"), "cudnn has nothing for gla"),
    ("sdpa", case_of("flash", **ATTENTION, absent=("sinks",)), "gives o: --without lengths,slopes"),
    ("sdpa", case_of("flash", **ATTENTION | dict(Sk=9), absent=BARE), "a causal mask at the first query"),
    ("sdpa", case_of("flash", **ATTENTION, backward=True, absent=BARE), "gives o: --without lse"),
])  # fmt: skip
def test_what_a_peer_does_not_serve_it_says(name, case, words):
    if "imported" in words:
        try:
            import_module("flash_qla")
        except ImportError:
            pass
        else:
            pytest.skip("it is installed")
    with pytest.raises(peers.Inapplicable, match=words):
        peers.find_peer(name, case)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_what_softmax_peers_are_given_is_the_op(backward):
    case = case_of("flash", backward=backward, absent=(*BARE, "lse"), **ATTENTION)
    assert peers.find_peer("sdpa", case).function == "scaled_dot_product_attention(FLASH_ATTENTION)"
    given = input_set(case)
    found, expected = run_once(_softmax.sdpa_forward("MATH", True), given), run_once(ours(case), given)
    for each in ("o", *(("d_q", "d_k", "d_v") if backward else ())):
        torch.testing.assert_close(found[each], expected[each], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_softmax_peers_take_views_and_give_them_back(causal):
    q, k, v = (torch.randn(2, 9, heads, 16) for heads in (4, 2, 2))
    given = type("Given", (), {"inputs": dict(q=q, k=k, v=v), "call": type("Call", (), {"params": {"scale": 0.3}})})
    found = _softmax.sdpa_forward("MATH", causal)(given)["o"]
    scores = 0.3 * torch.einsum("bihd,bjhd->bhij", q, k.repeat_interleave(2, 2))
    if causal:
        scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), float("-inf"))
    expected = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v.repeat_interleave(2, 2))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_eager_is_the_op_without_us():
    case = case_of("kda", backward=True)
    given = input_set(case)
    found = run_once(peers.find_peer("eager", case).forward, given)
    for each, x in run_once(ours(case), given).items():
        torch.testing.assert_close(found[each], x, rtol=1e-3, atol=1e-4)


def test_segments_are_the_op_a_third_at_a_time():
    case = case_of("gated_delta", backward=True)
    given, found = input_set(case), peers.find_peer("segments", case)
    assert found.implementation == f"segments of {-(-case.sizes['NT'] // 3)} chunks"
    for each, x in run_once(ours(case), given).items():
        torch.testing.assert_close(run_once(found.forward, given)[each], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name, backward, why", [
    ("gated_delta", False, "segments are for the memory of a backward pass: --backward"),
    ("flash", True, "flash has no chunks to keep states of"),
])  # fmt: skip
def test_what_has_no_segments(name, backward, why):
    with pytest.raises(peers.Inapplicable, match=re.escape(why)):
        peers.find_peer("segments", case_of(name, backward=backward))


def test_a_compiled_peer_is_compiled_for_every_shape():
    """PyTorch gives up after eight, in silence; the time would be that of something else."""
    compiled = []

    def backend(graph, given):
        compiled.append([x.shape for x in given if isinstance(x, torch.Tensor)])
        return graph.forward

    twice = always_compiled(lambda x: 2 * x, backend)
    for size in (*range(2, 14), 5):
        assert twice(torch.ones(size)).tolist() == [2.0] * size
    assert len(compiled) == 12
