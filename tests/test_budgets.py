"""Budgets: what they allow, what they find, and that a wrong model cannot widen them."""

import math

import pytest
import torch
from support.ops import inputs, op

from chunkwise.runner.verification.budgets import CAP, arithmetic_noise, deciding, judge
from chunkwise.runner.verification.rounding import RHO
from chunkwise.runner.verification.staged import repeats
from chunkwise.runner.verification.verify import verify
from chunkwise.stages._seqs import Seqs

AXES = ("B", "T", "HV", "V")
IO = torch.bfloat16
ROUNDED = [torch.bfloat16, torch.float16, torch.float32]


def plain(T, C=64, B=1):
    return Seqs(B, T, C, -(-T // C))


def packed(lengths, T, C=64):
    N, ends = len(lengths), torch.tensor([0, *lengths]).cumsum(0)
    return Seqs(N, T, C, (T + N * (C - 1)) // C, cu_seqlens=ends, lengths=lengths)


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def verdict(got, truth, model=None, io=IO, axes=AXES, seqs=None, **keywords):
    models = [truth.to(io).double() if model is None else model]
    return judge(got, truth, models, axes, seqs or plain(truth.shape[1]), io, keywords.pop("noise", 0.0), **keywords)


@pytest.mark.parametrize("io", ROUNDED, ids=str)
def test_rounding_alone_passes_and_is_rho(io):
    """rho stands for one rounding of a tensor to its dtype."""
    truth = noise(1, 256, 4, 64)
    found = verdict(truth.to(io), truth, io=io)
    assert found.ok
    assert found.condition == pytest.approx(RHO[io], rel=0.05)
    assert found.budget == pytest.approx(3 * RHO[io], rel=0.05)


@pytest.mark.parametrize("io", ROUNDED, ids=str)
def test_four_times_the_rounding_fails(io):
    truth = noise(1, 256, 4, 64)
    error = truth.to(io).double() - truth
    found = verdict(truth + 4 * error, truth, io=io)
    assert not found.ok and "as a whole" in found.why
    assert verdict(truth + 2.5 * error, truth, io=io).ok


def test_one_zeroed_row_in_4096_x_96():
    """The whole moves by 1.6e-3 only, less than its budget; the slice of that sequence, head and chunk by an eighth."""
    truth = noise(1, 4096, 96, 16)
    got = truth.to(IO)
    got[0, 1000, 50] = 0
    found = verdict(got, truth)
    assert found.rel_l2_err < found.budget
    assert not found.ok and "in its worst slice" in found.why
    assert found.worst_slice_err == pytest.approx(1 / 8, rel=0.3)


@pytest.mark.parametrize("place", [(0, 0, 0, 0), (0, 255, 3, 63), (0, 130, 2, 7)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite(place, value):
    truth = noise(1, 256, 4, 64)
    got = truth.to(IO)
    got[place] = value
    found = verdict(got, truth)
    assert not found.ok and found.why == "1 values are not finite"


@pytest.mark.parametrize("off", [0.02, 0.1, 1.0])
def test_a_wrong_model_does_not_widen_its_budget(off):
    """Kernel and model agree on a wrong answer: the model's own error is held against the cap."""
    truth = noise(1, 256, 4, 64)
    wrong = truth * (1 + off)
    found = verdict(wrong, truth, model=wrong)
    assert not found.ok
    assert found.cap == pytest.approx(CAP * RHO[IO]) and "references themselves" in found.why


def test_a_named_case_has_a_wider_cap_and_it_ends():
    truth = noise(1, 256, 4, 64)
    assert verdict(truth * 1.03, truth, model=truth * 1.03, ill_conditioned=True).ok
    assert not verdict(truth * 1.03, truth, model=truth * 1.03).ok
    assert not verdict(truth * 1.07, truth, model=truth * 1.07, ill_conditioned=True).ok


@pytest.mark.parametrize("model", [math.nan, math.inf])
def test_a_budget_that_is_not_finite_fails(model):
    truth = noise(1, 256, 4, 64)
    spoiled = truth.clone()
    spoiled[0, 0, 0, 0] = model
    found = verdict(truth.to(IO), truth, model=spoiled)
    assert not found.ok and found.why == "the budget itself is not finite"


def test_zeros_are_exact():
    """Where everything is 0, nothing else is right; rows past the last sequence are such a slice."""
    zero = torch.zeros(1, 8, 2, 4, dtype=torch.float64)
    assert verdict(zero.to(IO), zero).ok
    dirty = zero.clone()
    dirty[0, 0, 0, 0] = 1e-20
    assert not verdict(dirty, zero).ok
    seqs, truth = packed((40, 20), T=100), noise(1, 100, 2, 16)
    truth[:, 60:] = 0
    got = truth.to(IO)
    assert verdict(got, truth, seqs=seqs).ok
    got[0, 60:] = 0.05
    found = verdict(got, truth, seqs=seqs)
    assert not found.ok


def test_what_depends_on_nothing_is_zero_whatever_the_model_says():
    """A gradient that is 0 everywhere, of which the model makes something: 0 passes, and nothing else."""
    zero = torch.zeros(1, 64, 2, 4, dtype=torch.float64)
    for terms in (None, lambda: torch.zeros(())):
        found = verdict(zero.to(IO), zero, model=noise(*zero.shape), terms=terms)
        assert found.ok and (found.rel_l2_err, found.budget, found.slice_budget) == (0.0, RHO[IO], RHO[IO])
        dirty = verdict(zero + 1e-20, zero, model=noise(*zero.shape), terms=terms)
        assert dirty.over == "OUT OF BUDGET" and dirty.rel_l2_err == math.inf


@pytest.mark.parametrize("truth", [0.0, 1e-17], ids=["0", "rounded off"])
def test_terms_that_cancel_to_nothing(truth):
    """Errors are measured by the terms then, and the cap is the budget."""
    truth, terms = truth * noise(1, 64, 2, 4), noise(1, 64, 2, 4, seed=1)
    off = lambda much: truth + much * RHO[IO] * noise(1, 64, 2, 4, seed=2)  # noqa: E731
    slightly = verdict(off(2), truth, model=off(0.5), terms=lambda: terms)
    assert slightly.ok and slightly.budget == slightly.slice_budget == slightly.cap == CAP * RHO[IO]
    assert verdict(off(2 * CAP), truth, model=off(0.5), terms=lambda: terms).over == "OUT OF BUDGET"
    assert verdict(off(0.5), truth, model=off(2 * CAP), terms=lambda: terms).over == "REFERENCES OFF"


@pytest.mark.parametrize("truth", [0.0, 3e-44, 1e-36])
def test_what_underflows_is_right(truth):
    """What is less than a float32 can hold well, and what leaks through a reset, is nothing."""
    truth = torch.full((1, 64, 2, 4), truth, dtype=torch.float64)
    assert verdict(torch.zeros_like(truth), truth, io=torch.float32).ok
    assert verdict(truth + 5e-38, truth, io=torch.float32).ok
    assert not verdict(truth + 2e-30, truth, io=torch.float32).ok


@pytest.mark.parametrize("axes", ["N HV K V", "B NT HV K V", "B T HV", "HV"])
def test_slices_of_every_kind_of_tensor(axes):
    """One sequence's head (of a chunk) replaced by another's is found, though the norms are the same."""
    axes, sizes = tuple(axes.split()), dict(B=16, N=16, T=96, NT=6, HV=8, K=32, V=32)
    truth = noise(*(sizes[axis] for axis in axes))
    got = truth.to(IO)
    head = axes.index("HV")
    first = [0] * head
    got[(*first, 3)] = got[(*first, 4)].clone()
    found = verdict(got, truth, axes=axes, seqs=plain(96, C=16, B=16))
    assert not found.ok


def test_a_slice_is_measured_against_the_rms_of_all():
    """A slice that decayed to almost nothing may be off by what is nothing beside the others."""
    truth = noise(1, 256, 4, 64)
    truth[0, 64:128, 2] *= 1e-9
    got = truth.to(IO)
    got[0, 64:128, 2] = 0
    assert verdict(got, truth).ok
    truth[0, 64:128, 2] *= 1e8
    assert not verdict(got, truth).ok


def test_a_packed_chunk_ends_with_its_sequence():
    """Two sequences of 40 in chunks of 64 are two slices: what one chunk over both would average out is seen."""
    lengths = (40, 40)
    truth = noise(1, 80, 1, 16)
    error = torch.zeros_like(truth)
    error[0, 40:] = 8 * RHO[IO] * truth[0, 40:]
    both, apart = plain(80, C=128), packed(lengths, 80, C=128)
    model = truth + 2 * RHO[IO] * noise(1, 80, 1, 16, seed=1)
    together = verdict(truth + error, truth, model, seqs=both)
    alone = verdict(truth + error, truth, model, seqs=apart)
    assert alone.worst_slice_err > 1.3 * together.worst_slice_err


def test_few_numbers_take_the_rms_of_several_draws():
    """One draw that happens to be exact says nothing about what rounding may do."""
    truth = noise(1, 1, 1, 4)
    got = truth + RHO[IO] * 2 * truth
    lucky, draws = [truth], [truth, *(truth + RHO[IO] * 1.5 * noise(1, 1, 1, 4, seed=seed) for seed in range(7))]
    seqs = plain(1)
    assert not judge(got, truth, lucky, AXES, seqs, IO, 0.0).ok
    assert judge(got, truth, draws, AXES, seqs, IO, 0.0).ok


def test_deciding_numbers():
    assert deciding(torch.ones(100)) == pytest.approx(100)
    assert deciding(torch.tensor([1.0] + [1e-4] * 99)) == pytest.approx(1, rel=1e-3)
    assert deciding(torch.zeros(7)) == 7
    assert deciding(torch.zeros(0)) == 0
    assert deciding(torch.full((5,), 1e100, dtype=torch.float64)) == pytest.approx(5)


def test_noise_grows_with_sums_and_decay():
    sizes = dict(K=64, V=64, C=16)
    assert arithmetic_noise(torch.float32, sizes, 0.0) == pytest.approx(2**-24 * 12)
    assert arithmetic_noise(torch.bfloat16, sizes, 100.0) == pytest.approx(2**-24 * 112)
    assert arithmetic_noise(torch.float64, sizes, 0.0) == pytest.approx(2**-53 * 12)
    assert arithmetic_noise(torch.float32, {**sizes, "T": 5000}, 0.0) == pytest.approx(2**-24 * 12)
    assert arithmetic_noise(torch.float32, {"D": 44, "T": 100}, 0.0) == pytest.approx(2**-24 * 12)
    by_token = {"K": 44, "T": 100, "C": 16}
    assert arithmetic_noise(torch.float32, by_token, 0.0, chunked=False) == pytest.approx(2**-24 * 12)
    assert arithmetic_noise(torch.float32, {"K": 44, "T": 100}, 0.0, False, repeats=8) == pytest.approx(2**-24 * 20)


def test_how_often_the_error_of_a_shared_decay_repeats():
    graph, slopes = op("retention_decode").whole, torch.tensor([-3.0, -1.0, -1 / 64])
    assert repeats(graph, {"g_gamma": slopes}, 10_000) == pytest.approx(64.5, rel=1e-2)
    assert repeats(graph, {"g_gamma": slopes}, 50) == 50
    assert repeats(graph, {"g_gamma": torch.tensor([0.0, -1.0])}, 50) == 50
    assert repeats(op("gla_decode").whole, {}, 50) == 0


def test_chunks_that_end_at_other_rows():
    """A state by way of a cut where no chunk of the whole ends: exponents of strong decays are other differences."""
    an_op, cut = op("mamba2"), 65
    given = inputs(an_op, B=2, T=130, H=2, HV=4, K=32, V=48)
    axes = {name: value.axes for name, value in an_op.whole.inputs.items()}

    def rows(part):
        return {name: x[:, part] if axes[name][1:2] == ("T",) else x for name, x in given.items()}

    first = an_op(**rows(slice(0, cut)))
    second = an_op(**rows(slice(cut, None)) | {"initial_state": first.final_state})
    found = [
        verify(an_op, given, expected={"final_state": second.final_state}, made_by="two calls", recut=recut).rows
        for recut in (True, False)
    ]
    assert all(row.ok for row in found[0])
    wider = [row.value for row, other in zip(*found) if row.verdict.budget > other.verdict.budget]
    assert wider == ["final_state", "final_state"] and {row.id for row in found[0][-2:]} == {"file"}
