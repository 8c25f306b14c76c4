"""Is a tensor right? Budgets derived from rounding (rounding.py) and the float64 truth, never tuned.

Rules: the whole tensor; every slice (sequence x head x chunk); tensors under 64
numbers by the rms of several draws; caps, so that a wrong reference cannot widen its own budget; zeros, whole numbers
and -inf exact.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ...stages._seqs import Seqs
from .rounding import FINER, RHO

FEW = 64
"""Fewer deciding numbers than this, and |e| is the rms over several draws of M."""
CAP, CAP_ILL = 7, 35
SUMMED = ("K", "V", "D", "DV", "DC", "DN", "DR", "KI", "NS", "Sq", "Sk", "NB", "M", "HG")
"""Axes that products run over, besides the rows of a chunk."""
LANES = ("B", "N", "SLOTS", "T", "NT", "H", "HV", "HQ", "GO", "HG", "Sq", "Sk")
"""Axes that tell one slice from another."""
ROWS = 64
"""Rows of a slice along Sq and Sk, which are cut into no chunks."""
UNIT_ROUNDOFF = 2.0**-24
NOTHING = 2.0**-100
"""Below this lie what underflows, and what leaks through a reset: a log decay stops at -126."""
CANCELLED = 2.0**-46
"""A truth that is no larger beside its terms is what float64 rounds off where they cancel to 0: a gradient of what
nothing depends on, as of the sum of a softmax."""


@dataclass(frozen=True)
class Verdict:
    """rel_l2_err against budget for the whole; worst_slice_err against slice_budget for the worst slice.

    condition: the model's own error, relative. Above the cap the references are wrong, or the input is ill-conditioned;
    the budgets are then those of the cap.
    why, over: what is wrong, in a sentence and in a few words; empty when ok.
    """

    ok: bool
    rel_l2_err: float
    budget: float
    worst_slice_err: float
    slice_budget: float
    condition: float
    cap: float
    why: str = ""
    over: str = ""


OFF = "REFERENCES OFF"
"""Verdict.over where the references disagree with the truth, whatever the kernels do."""
ALONE = "OTHER ALONE"
"""Verdict.over where a vjp gives another gradient when it is asked for nothing else."""


def deciding(x: torch.Tensor) -> float:
    """How many numbers carry the norm of x: all of them when they are alike, one when one towers over the rest.
    A single draw of a rounding error says little about so few."""
    x = x.double()
    most = x.abs().max() if x.numel() else x.new_zeros(())
    if not most:
        return float(x.numel())
    squares = (x / most).square()  # at most 1: the fourth power of a large number has no float64
    return (squares.sum().square() / squares.square().sum()).item()


def arithmetic_noise(
    io: torch.dtype, sizes: Mapping[str, int], gate_span: float, chunked: bool = True, repeats: float = 0.0
) -> float:
    """What the arithmetic itself adds, float64 for a float64 pipeline and float32 for any other: sums of up to K + C
    terms, and the exponent of a decay, whose absolute error is that of a chunk sum (gate_span, its largest size in
    nats). Where there are no chunks the state is a sum over all tokens, and the error of a decay that they share is in
    it as often as a token is multiplied by it (repeats)."""
    rows = sizes.get("C", sizes.get("T", 0)) if chunked else sizes.get("T", 0)
    longest = sum(sizes.get(axis, 0) for axis in SUMMED) + rows
    return UNIT_ROUNDOFF * scale_of(io) * (math.sqrt(max(longest, 1)) + gate_span + repeats)


def decay_noise(io: torch.dtype, gate_span: float) -> float:
    """What decays err by, relative, where sequences are cut at other rows: an exponent is a difference of chunk sums,
    whose absolute error is that of the largest (gate_span, in nats), and where a chunk ends decides which they are."""
    return UNIT_ROUNDOFF * scale_of(io) * gate_span


def scale_of(io: torch.dtype) -> float:
    """Errors of M are measured in float32 arithmetic; how much finer a float64 pipeline is."""
    return FINER if io == torch.float64 else 1.0


def judge(
    got: torch.Tensor,
    truth: torch.Tensor,
    models: Sequence[torch.Tensor],
    axes: tuple,
    seqs: Seqs,
    io: torch.dtype,
    noise: float,
    ill_conditioned: bool = False,
    terms: Callable[[], torch.Tensor] | None = None,
    other_chunks: float = 0.0,
) -> Verdict:
    """got in its own dtype; truth in float64; models: one result of M, or several draws where few roundings decide.

    terms: gives, for a sum, the root of the sum of its terms' squares. Their errors add up in quadrature, so where they
    cancel the cap is relative to that root; budgets are not. Where they cancel to nothing, errors are relative to it
    too, and what M happens to be off by says nothing: the budget is the cap.
    other_chunks: decay_noise, of a result whose chunks are not those of M.
    """
    if not got.is_floating_point():
        return judge_whole_numbers(got, truth)
    got, truth, models = without_infinities(got, truth, models)
    rho = RHO[io]
    cap = (CAP_ILL if ill_conditioned else CAP) * (rho + noise)
    errors = [scale_of(io) * error_of(model, truth) for model in models]
    e = math.sqrt(sum(error.square().sum().item() for error in errors) / len(errors))
    size = truth.norm().item()
    summed = terms() if terms is not None and e > cap * size else truth
    nothing = cancelled(truth, summed)
    whole = summed if nothing else truth
    if not whole.any():  # no term is there: 0 is exact, whatever M makes of it
        e, errors = 0.0, [truth]
    condition = relative(e, max(size, summed.norm().item()))
    error = error_of(got, truth)
    err = relative(error.norm().item(), whole.norm().item())
    slice_err, slice_model = worst_slices(error, whole, errors, axes, seqs)
    within = cap / condition if cap < condition < math.inf else 1
    base = rho + other_chunks
    budget, slice_budget = relative(2 * e * within, size) + base, 2 * slice_model * within + base
    if nothing:
        budget = slice_budget = cap
    over, why = reasons(got, err, budget, slice_err, slice_budget, condition, cap)
    return Verdict(not why, err, budget, slice_err, slice_budget, condition, cap, why, over)


def judge_whole_numbers(got: torch.Tensor, truth: torch.Tensor) -> Verdict:
    wrong = int((got.long() != truth.long()).sum())
    why = f"{wrong} of {got.numel()} whole numbers are others than the reference has" if wrong else ""
    return Verdict(not wrong, float(wrong), 0.0, float(wrong), 0.0, 0.0, 0.0, why, "OTHER NUMBERS" if wrong else "")


def without_infinities(got: torch.Tensor, truth: torch.Tensor, models: Sequence[torch.Tensor]) -> tuple:
    """The three with 0 where the truth is -inf and they are too: a sum over nothing, which is exact."""
    empty = truth == -math.inf
    if not empty.any():
        return got, truth, models
    settled = [torch.where(empty & (x == -math.inf), 0.0, x) for x in (got, truth, *models)]
    return settled[0], settled[1], settled[2:]


def error_of(x: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """x - truth, in float64; what is NOTHING counts as right."""
    error = x.double() - truth
    return torch.where(error.abs() < NOTHING, 0.0, error)


def cancelled(truth: torch.Tensor, summed: torch.Tensor) -> bool:
    """Whether all that there is of a truth is what float64 rounds off. summed: the size of its terms."""
    return bool(summed.any()) and bool(truth.norm() <= CANCELLED * summed.norm())


def relative(error: float, size: float) -> float:
    return error / size if size else (0.0 if error == 0 else math.inf)


def reasons(got, err, budget, slice_err, slice_budget, condition, cap) -> tuple[str, str]:
    """(in a few words, in a sentence) what is wrong; both empty where nothing is."""
    if not bool(torch.isfinite(got).all()):
        return "NOT FINITE", f"{int((~torch.isfinite(got)).sum())} values are not finite"
    if not (math.isfinite(budget) and math.isfinite(slice_budget)):
        return "NOT FINITE", "the budget itself is not finite"
    if condition > cap:
        why = f"the references themselves, rounded, are off by {condition:.1e}, cap {cap:.1e}: one of them is wrong, "
        return OFF, why + "or the input ill-conditioned"
    if err > budget:
        return "OUT OF BUDGET", f"off by {err:.1e} as a whole, budget {budget:.1e}"
    if slice_err > slice_budget:
        return "SLICE OUT", f"off by {slice_err:.1e} in its worst slice, budget {slice_budget:.1e}"
    return "", ""


def worst_slices(error, whole, errors, axes, seqs: Seqs) -> tuple[float, float]:
    """(worst error of a slice, the model's worst); each relative to max(the slice's norm, rms of slice norms)."""
    sizes = slice_norms(whole, axes, seqs)
    if sizes.numel() == 0:
        return 0.0, 0.0
    scale = torch.maximum(sizes, sizes.square().mean().sqrt())
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    worst = (slice_norms(error, axes, seqs) / scale).max().item()
    model = max((slice_norms(each, axes, seqs) / scale).max().item() for each in errors)
    return worst, model


def slice_norms(x: torch.Tensor, axes: tuple, seqs: Seqs) -> torch.Tensor:
    """L2 norm of every (sequence x head x chunk); states have no chunk axis, constants no sequence."""
    keep = [dim for dim, axis in enumerate(axes) if axis in LANES]
    drop = [dim for dim in range(x.dim()) if dim not in keep]
    squares = x.square().sum(drop) if drop else x.square()
    kept = [axes[dim] for dim in keep]
    if "T" in kept and seqs.T:
        squares = per_chunk(squares, kept.index("T"), chunk_of_row(seqs))
    for axis in {"Sq", "Sk"} & set(kept):
        dim = kept.index(axis)
        squares = per_chunk(squares, dim, torch.arange(squares.shape[dim]) // ROWS)
    return squares.sqrt().flatten()


def per_chunk(squares: torch.Tensor, dim: int, rows: torch.Tensor) -> torch.Tensor:
    """Sum along one axis within each chunk; rows: the chunk of each row."""
    moved = squares.movedim(dim, 0)
    if not len(rows):
        return moved
    out = moved.new_zeros((int(rows.max()) + 1, *moved.shape[1:]))
    return out.index_add_(0, rows.to(squares.device), moved).movedim(0, dim)


def chunk_of_row(seqs: Seqs) -> torch.Tensor:
    """Rows past the last sequence are a chunk of their own."""
    if not seqs.packed:
        return torch.arange(seqs.T) // seqs.C
    rows, slot = [], 0
    for length in seqs.lengths:
        rows.append(torch.arange(length) // seqs.C + slot)
        slot += -(-length // seqs.C)
    rows.append(torch.full((seqs.T - sum(seqs.lengths),), slot))
    return torch.cat(rows).long()
