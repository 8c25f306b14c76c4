"""Before any time counts: is it right, here, in this form? A small case of its own kind, then the case itself.

Where the float64 recurrence of the case would take too long, it is held at its first tokens; where its float64 copies
would not fit, on some of its heads (verification/head_subset.py). The words of the gate say so.
"""

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..verification.result import Row, Verification
from ..verification.small_case import small_case
from ..verification.verify import verify
from .case import Case, InputSet, input_set, tensors
from .record import END_TO_END, NOT_VERIFIED, Error

MOST_TOKENS = {"cuda": 8192, "cpu": 512}
SMALL_BYTES = 2**22

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Gate:
    """words: what was verified and at which sizes. errors: node id, and END_TO_END -> the error closest to its budget.
    budgets: result of the op -> its budget. case: the one that the errors were taken at, None for none."""

    words: str
    case: Case | None = None
    errors: Mapping[str, Error] = field(default_factory=dict)
    budgets: Mapping[str, float] = field(default_factory=dict)


NO_GATE = Gate(NOT_VERIFIED)


def pass_gate(case: Case, progress: Progress) -> Gate:
    """Raises ChunkwiseError with what is wrong first."""
    mode = input_set(case).call.mode
    small_op = case.op if case.backward else case.op.with_mode(mode)
    sizes, seqlens = small_case(case.op.whole, case.sizes, case.asked, case.seqlens)
    small = checked(small_op, sizes, seqlens, case, progress)
    if (sizes, seqlens) == (dict(case.sizes), case.seqlens):
        return Gate(f"verified at {words_of(small)}", case, errors_of(small), budgets_of(small))
    shown = affordable(case)
    if shown is None:
        words = f"verified at {words_of(small)}; the case itself has more than {limit(case)} packed tokens"
        return Gate(words, None, errors_of(small), budgets_of(small))
    found = checked(small_op, shown.sizes, shown.seqlens, case, progress)
    return Gate(f"verified at {words_of(small)} and at {words_of(found)}", shown, errors_of(found), budgets_of(found))


def limit(case: Case) -> int:
    return MOST_TOKENS[case.device.type]


def affordable(case: Case) -> Case | None:
    """The case, or its first tokens; None for packed sequences that are too long, for they cannot be cut."""
    if case.sizes.get("T", 0) <= limit(case):
        return case
    return None if case.seqlens else case.at(limit(case))


def checked(op, sizes, seqlens, case: Case, progress: Progress) -> Verification:
    inputs = tensors(case, sizes)
    with threads_for(inputs):
        found = verify(op, inputs, seqlens=seqlens, backward=case.backward, seed=case.seed, progress=progress)
    if not found.ok:
        raise ChunkwiseError(found.failure)
    return found


@contextmanager
def threads_for(inputs: Mapping[str, torch.Tensor | None]):
    """One thread for small tensors on a CPU: more of them gain nothing, and on busy cores they wait for each other."""
    threads = torch.get_num_threads()
    if sum(x.nbytes for x in inputs.values() if x is not None) < SMALL_BYTES:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def words_of(found: Verification) -> str:
    sizes = ", ".join(f"{axis}={size}" for axis, size in found.sizes.items())
    packed = f" packed {','.join(map(str, found.lengths))}" if found.lengths else ""
    return sizes + packed + (f" on key heads {', '.join(map(str, found.heads))}" if found.heads else "")


def errors_of(found: Verification) -> dict[str, Error]:
    """Of each node, and of the op, the row that is closest to its budget."""
    worst: dict[str, Row] = {}
    for row in found.rows:
        name = END_TO_END if row.id == "op" else row.id
        if name not in worst or share(row) > share(worst[name]):
            worst[name] = row
    return {
        name: Error(row.value, row.verdict.rel_l2_err, row.verdict.budget, row.against) for name, row in worst.items()
    }


def share(row: Row) -> float:
    return row.verdict.rel_l2_err / (row.verdict.budget or 1.0)


def budgets_of(found: Verification) -> dict[str, float]:
    return {row.value: row.verdict.budget for row in found.rows if row.id == "op"}


def require_written(case: Case, given: InputSet, results: Mapping[str, torch.Tensor | None]) -> None:
    """results: of a run of the case itself into buffers full of nan. Raises ChunkwiseError where an output or gradient
    was not written whole; what else there is was kept for backward, with rows that are nobody's."""
    names = {*given.call.wanted, *(f"d_{name}" for name in given.trainable)}
    for name in names & results.keys():
        x = results[name]
        if x is not None and x.is_floating_point() and not (x.isfinite() | over_nothing(case, name, x)).all():
            message = f"{name} of {case.op.spec.name} is not written whole, or not finite, at {case.title}"
            help = "chunkwise verify with the same --axes says which stage it is"
            raise ChunkwiseError(Diagnostic(codes.NOT_FINITE, message, case.op.spec.mark, help=help))


def over_nothing(case: Case, name: str, x: torch.Tensor) -> torch.Tensor:
    """Where x is the logarithm of a sum over no key, as of queries before a sequence's first one."""
    value = case.op.whole.values.get(case.op.whole.outputs.get(name))
    return (x == -torch.inf) & (value is not None and str(value.unit).startswith("lse"))
