"""Packed sequences: the V cases."""

import pytest
import torch
from support.ops import OPS, check, inputs, op, refusal, same_bits

from chunkwise.runner.diagnostics import codes
from chunkwise.runner.verification.budgets import judge
from chunkwise.runner.verification.oracle import definition_outputs

EMPTY = [(0, 33, 64), (33, 64, 0), (33, 0, 0, 64), (0, 0, 5, 0, 1, 0, 0), (0,), (0, 0)]


def ends(lengths, dtype=torch.int32):
    return torch.tensor([0, *lengths]).cumsum(0).to(dtype)


def sequence(given, an_op, n, lengths):
    """One sequence's inputs as a batch of its own."""
    start = sum(lengths[:n])
    cut = {}
    for name, x in given.items():
        axes = an_op.whole.inputs[name].axes
        if x is not None and "T" in axes:
            x = x.narrow(axes.index("T"), start, lengths[n])
        if x is not None and "N" in axes:
            x = x.narrow(axes.index("N"), n, 1)
        cut[name] = x
    return cut


@pytest.mark.parametrize("lengths", EMPTY, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_v1_empty_sequences(name, lengths):
    """No rows of its own, and its final state is its initial state, or zero without one."""
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16, seqlens=lengths, K=32, V=24)
    check(an_op, given, seqlens=lengths)
    empty = [n for n, length in enumerate(lengths) if not length]
    assert same_bits(an_op(**given, seqlens=lengths).final_state[empty], given["initial_state"][empty])
    without = {**given, "initial_state": None}
    assert not an_op(**without, seqlens=lengths).final_state[empty].any()


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rest", [1, 30, 200])
@pytest.mark.parametrize("name", OPS)
def test_v4_rows_past_the_last_sequence(name, rest, io):
    """They may hold anything; what comes out for them, and their gradients, is exactly 0."""
    lengths = (40, 0, 31)
    an_op, tokens = op(name), sum(lengths)
    given = inputs(an_op, io, seqlens=lengths, T=tokens + rest, K=32, V=24)
    check(an_op, given, seqlens=lengths)
    tracked = {}
    for input_name, x in given.items():
        if "T" in an_op.whole.inputs[input_name].axes:
            x[:, tokens:] = torch.nan
        tracked[input_name] = x.requires_grad_()
    out = an_op(**tracked, cu_seqlens=ends(lengths))
    assert out.o.isfinite().all() and not out.o[:, tokens:].any()
    torch.autograd.backward([out.o, out.final_state], [torch.ones_like(out.o), torch.ones_like(out.final_state)])
    for input_name, x in tracked.items():
        assert x.grad.isfinite().all(), input_name
        if "T" in an_op.whole.inputs[input_name].axes:
            assert not x.grad[:, tokens:].any(), input_name


@pytest.mark.parametrize("C,lengths", [(128, (500, 700, 900)), (64, (130, 200, 300))])
@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_v10_chunk_states(name, C, lengths):
    """Chunk slots of each sequence follow one another, and hold what the sequence gives alone."""
    an_op = op(name, C).until("scan")
    given = inputs(an_op, seqlens=lengths, H=1, HV=2, K=16, V=24)
    h = an_op(**given, seqlens=lengths).h
    slot = 0
    for n in range(len(lengths)):
        alone = an_op(**sequence(given, an_op, n, lengths)).h
        assert same_bits(h[:, slot : slot + alone.shape[1]], alone)
        slot += alone.shape[1]
    assert not h[:, slot:].any()


@pytest.mark.parametrize("lengths", [(8191, 1), (1, 8191)])
def test_v11_one_token_beside_a_long_sequence(lengths):
    """The one token alone gives the same bits, and is what the definition says."""
    an_op, one = op("gated_delta"), lengths.index(1)
    given = inputs(an_op, seqlens=lengths, H=1, HV=1, K=16, V=24)
    out, alone = an_op(**given, cu_seqlens=ends(lengths)), sequence(given, an_op, one, lengths)
    check(an_op, alone)
    row = sum(lengths[:one])
    single = an_op(**alone)
    assert same_bits(out.o[:, row : row + 1], single.o)
    assert same_bits(out.final_state[one : one + 1], single.final_state)


BAD = [
    (torch.tensor([0, 12, 8, 16], dtype=torch.int32), "must not decrease"),
    (torch.tensor([4, 12, 128], dtype=torch.int32), "must start at 0, it starts at 4"),
    (torch.tensor([-1, 12, 128], dtype=torch.int32), "must start at 0, it starts at -1"),
    (torch.tensor([0, 100, 129]), "the sequences have 129 tokens in all"),
    (torch.tensor([0.0, 128.0]), "must be int32 or int64, it is float32"),
    (torch.tensor([0, 128], dtype=torch.int16), "must be int32 or int64, it is int16"),
    (torch.tensor([[0, 128]]), "must be a tensor [N + 1]"),
    (torch.tensor([0, 128], device="meta"), "is on meta, the tensors are on cpu"),
    (torch.tensor([0]), "no sequence"),
    ([0, 128], "must be a tensor [N + 1]"),
]


@pytest.mark.parametrize("cu_seqlens,words", BAD, ids=[words for _, words in BAD])
def test_v12_bad_cu_seqlens(cu_seqlens, words):
    an_op = op("gated_delta")
    given = inputs(an_op, B=1, T=128, absent=("initial_state",))
    (found,) = refusal(an_op, **given, cu_seqlens=cu_seqlens)
    assert found.code == codes.BAD_SEQLENS and words in found.message


def test_v12_packed_sequences_need_one_batch_row():
    an_op = op("gated_delta")
    given = inputs(an_op, B=2, T=128)
    (found,) = refusal(an_op, **given, cu_seqlens=ends((64, 64)))
    assert found.code == codes.BAD_SEQLENS and "B = 2" in found.message


def test_v12_lengths_and_ends_that_speak_of_different_counts():
    an_op = op("gated_delta")
    given = inputs(an_op, B=1, T=128, absent=("initial_state",))
    (found,) = refusal(an_op, **given, cu_seqlens=ends((64, 64)), seqlens=(128,))
    assert found.code == codes.BAD_SEQLENS and "2 sequences" in found.message


@pytest.mark.parametrize("name", OPS)
def test_v13_no_initial_state(name):
    lengths = (30, 41, 5)
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16, seqlens=lengths, absent=("initial_state",))
    check(an_op, given, seqlens=lengths)
    assert an_op(**given, seqlens=lengths).final_state.shape == (3, 4, 48, 80)


def test_v13_a_state_for_each_sequence():
    an_op = op("gated_delta")
    given = inputs(an_op, seqlens=(30, 41, 5))
    given["initial_state"] = given["initial_state"][:1]
    (found,) = refusal(an_op, **given, seqlens=(30, 41, 5))
    assert found.code == codes.TENSOR and found.message.startswith("initial_state [N HV K V] has 1 states")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_v14_other_lengths_at_the_same_address(dtype):
    """cu_seqlens is rewritten in place between calls: no table of the old lengths survives."""
    an_op = op("gated_delta")
    given = inputs(an_op, torch.bfloat16, seqlens=(40, 30, 6), K=32, V=24)
    cu_seqlens = ends((40, 30, 6), dtype)
    for lengths in ((40, 30, 6), (10, 50, 16), (0, 1, 75), (40, 30, 6)):
        cu_seqlens.copy_(ends(lengths))
        got = an_op(**given, cu_seqlens=cu_seqlens)
        call = an_op.bind(given, None, lengths)
        truth = definition_outputs(call.graph, call.contiguous, call.params, call.sizes, call.packing)
        for name, x in truth.items():
            axes = call.graph.values[call.graph.outputs[name]].axes
            model = getattr(an_op(**given, seqlens=lengths), name)
            assert judge(getattr(got, name), x, [model], axes, call.seqs, call.io, 0.0).ok
