"""A plan on tensors, for a caller who wants its results and nothing else: a program from the second run on."""

from collections.abc import Mapping

from ...stages._seqs import Seqs
from ..planning.execute import Values, execute
from ..planning.plan import Plan
from .program import ALIGNMENT
from .record import record

PLAIN = "plain"
"""Kept in a program's place where there can be none."""


def run_plan(plan: Plan, tensors: Values, params: Mapping[str, float], seqs: Seqs) -> Values:
    """execute's results.

    A program holds for one set of params, and one choice of int32 or int64 for each input of whole numbers: all else
    that launches depend on is the plan's, or an address. Where a hook watches launches, or an address is no multiple of
    16 bytes, Triton's own way is taken.
    """
    if plan.backend != "triton":
        return execute(plan, tensors, params, seqs)
    key = (*params.values(), *[getattr(tensors[name], "dtype", None) for name in plan.whole_numbers])
    program = plan.prepared.find(key)
    if program is None and aligned(tensors):
        results, program = record(plan, tensors, params, seqs)
        plan.prepared.put(key, program or PLAIN)
        return results
    found = None if program is None or program is PLAIN or program.seen else program(tensors, seqs)
    return execute(plan, tensors, params, seqs) if found is None else found


def aligned(tensors: Values) -> bool:
    return not any(x is not None and x.data_ptr() % ALIGNMENT for x in tensors.values())
