"""A plan on tensors, for callers who want its results and nothing else: a program from the second run on."""

import threading
from collections.abc import Mapping

import torch

from ...stages._seqs import Seqs
from ..planning.execute import Values, execute, on_device, readable
from ..planning.plan import Plan
from ..planning.sequences import is_captured
from .compile_ahead import compile_ahead, launches_of
from .program import NOWHERE, Program
from .record import record

_first_runs = threading.RLock()
"""One at a time: two threads that launch a kernel for the first time find it half loaded in Triton."""


class PreparedPlan:
    """A plan with its params: called, it gives execute's results. first: nothing of the plan ran before.

    program: where every step is plain kernels of Triton's (able), it is there after one run; after two, where the plan
    ran with other params before: a seed that changes at every call is not worth one. Triton's own way is taken where a
    hook watches launches, and where an address is no multiple of 16 bytes.
    """

    def __init__(self, plan: Plan, params: Mapping[str, float], first: bool):
        self.plan, self.params, self.first, self.program = plan, params, first, None
        self.written = tuple(dict.fromkeys(plan.graph.mutated.values()))
        self.able = plan.backend == "triton" and all(step.launcher for step in plan.steps)
        self.due = first

    def __call__(self, tensors: Values, seqs: Seqs, into: Values = NOWHERE) -> Values:
        """tensors: as they come; those that kernels cannot read where they lie are copied. into: results by name that
        may be written into these tensors, which those that were then are."""
        found = self.at_once(tensors, seqs, into)
        found = self.with_care(as_read(tensors), seqs, into) if found is None else found
        for name in self.written:
            seen_as_written(tensors[name])
        return found

    def at_once(self, tensors: Values, seqs: Seqs, into: Values = NOWHERE) -> Values | None:
        """By the program; None where there is none, where somebody watches, and where an input must be copied."""
        program: Program | None = self.program
        return None if program is None or program.seen else program(tensors, seqs, into)

    def with_care(self, tensors: Values, seqs: Seqs, into: Values = NOWHERE) -> Values:
        """tensors: as kernels read them."""
        if self.program is None and self.able:
            with _first_runs:
                if self.program is None and self.due:
                    return self.first_run(tensors, seqs)
                self.due = True
        found = self.at_once(tensors, seqs, into)
        return execute(self.plan, tensors, self.params, seqs) if found is None else found

    def first_run(self, tensors: Values, seqs: Seqs) -> Values:
        """It compiles the kernels all at once; a launch that is captured could not wait for that."""
        device = self.plan.device
        if self.first and device.type == "cuda" and not is_captured(device):
            with on_device(device):
                compile_ahead(launches_of(self.plan, tensors, self.params, seqs), device)
        results, self.program = record(self.plan, tensors, self.params, seqs)
        self.able = self.program is not None
        return results


def prepared(plan: Plan, tensors: Values, params: Mapping[str, float]) -> PreparedPlan:
    """The plan for these params, and for inputs of the same dtypes where a port takes either of two: all else that its
    launches depend on is the plan's, or an address."""
    dtypes = [getattr(tensors.get(name), "dtype", None) for name in plan.of_either_dtype]
    make = lambda: PreparedPlan(plan, params, first=not plan.prepared.items)  # noqa: E731
    return plan.prepared.get((*params.values(), *dtypes), make)


def seen_as_written(x: torch.Tensor | None) -> None:
    """Autograd, which cannot see what kernels write over, refuses a backward pass that saved what x held before."""
    if x is not None and not x.is_inference():
        torch.autograd.graph.increment_version(x)


def as_read(tensors: Values) -> Values:
    """The tensors as kernels read memory, copied where they lie otherwise."""
    return {name: None if x is None else readable(x) for name, x in tensors.items()}

