"""A vjp asked for one gradient gives what it gives beside the others: a call may need any part of them."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from .budgets import ALONE, Verdict, error_of, relative
from .result import Row
from .rounding import RHO
from .staged import StageCase, Subject, stage_outputs

LIMIT = RHO[torch.float32] / 1000
"""Of two float64 results of one formula, in another order at most."""


def each_alone(subject: Subject, case: StageCase) -> Iterator[Row]:
    """A row for each gradient that a stage's vjp, in float64, gives otherwise when nothing else is needed. Autograd
    through a reference is asked for all and cannot."""
    node = case.node
    if not node.stage.is_vjp or node.stage.reference.stage.vjp is None or len(node.outputs) < 2:
        return
    joint = stage_outputs(subject, node, case.inputs, torch.float64)
    for port, value in node.outputs.items():
        alone = stage_outputs(subject, replace(node, outputs={port: value}), case.inputs, torch.float64)[port]
        off = relative(error_of(alone, joint[port]).norm().item(), joint[port].norm().item())
        if not off <= LIMIT:
            others = ", ".join(each for each in node.outputs if each != port)
            why = f"asked for alone, in float64, it is off by {off:.1e} from what it is beside {others}"
            verdict = Verdict(False, off, LIMIT, off, LIMIT, off, LIMIT, why, ALONE)
            yield Row(node.id, node.stage.name, port, "float64 vjp", "all at once", verdict)
