"""Do the numbers of one execution keep to the laws that the pipeline states? Inputs first, then every stage's outputs.

Types are checked on the file; laws (``where``) speak of values, and only a look at the values can tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..calling.call import Call
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic, Note
from ..graphs.graph import Value
from ..planning.execute import execute
from ..planning.plan import Step
from .breaches import breaches


@dataclass(frozen=True)
class Probe:
    """checked: names of the values that state a law. found: one diagnostic for each law that one of them breaks."""

    checked: tuple[str, ...]
    found: tuple[Diagnostic, ...]


def probe(call: Call) -> Probe:
    """Run the call's forward pass once and look at every value with a law."""
    checked, found = [], []

    def look(value: Value, x: torch.Tensor | None, maker: str) -> None:
        if x is None or not value.laws:
            return
        checked.append(value.name)
        for each in breaches(value, x, call.seqs):
            message, notes = f"{value.name} breaks its law: {each.law.words}", (Note(each.words), Note(maker))
            found.append(Diagnostic(codes.VALUE_OUT_OF_LAW, message, value.mark_of("where"), notes))

    def observe(step: Step, run, outputs: Mapping[str, torch.Tensor | None]) -> None:
        run()
        maker = f"{step.node.id} ({step.node.stage.name}, {step.backend}) makes it"
        for port, name in step.node.outputs.items():
            look(call.graph.values[name], outputs[port], maker)

    for name, x in call.tensors.items():
        look(call.graph.inputs[name], x, f"{name} is an input")
    if not found:
        execute(call.forward_plan(), call.contiguous, call.params, call.seqs, observe)
    return Probe(tuple(checked), tuple(found))
