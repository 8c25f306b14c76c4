"""What stands between a definition and a pipeline: the value that no stage gives, and the contract that one would need.

Looked for from the inputs on: the decay's logarithm, the other values that the recurrence reads, the states, the
outputs. The first that is out of reach is what is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...stages._contract import F32, IO, Port
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic, Note
from ..diagnostics.marks import Mark
from ..expression import Node
from .algebra import Algebra, algebra, decay_port, exponent
from .assigned_once import free_name
from .compose import NotComposed
from .feeding import Found
from .matching import STATES
from .reached import Reached, depends_on
from .smallest import smallest_graphs
from .tiny_case import TinyCase


@dataclass(frozen=True)
class Missing:
    """kind: value, state or output. node: the expression of a value; log: its logarithm is what is needed. names: what
    the stage is to compute. states: port -> (state, the found value) that an output is read from."""

    kind: str
    text: str
    mark: Mark
    names: tuple[str, ...]
    outputs: Mapping[str, Port]
    algebra: tuple[Algebra, ...]
    reached: Reached
    node: Node | None = None
    log: bool = False
    states: Mapping[str, tuple[str, Found]] = field(default_factory=dict)

    @property
    def case(self) -> TinyCase:
        return self.reached.case


def missing_stage(found: NotComposed) -> Missing | None:
    """None where every output is reached and what was found was refused."""
    case, reached = found.case, Reached(found.searches[1])
    facts = tuple(algebra(case))
    return missing_decay(facts, reached) or missing_state(facts, reached) or missing_output(facts, reached)


def missing_decay(facts: tuple[Algebra, ...], reached: Reached) -> Missing | None:
    for each in facts:
        if each.decay is None or bool((each.decay_rows <= 0).any()):  # such a one has no logarithm
            continue
        if reached.log_of(each.decay_rows) is None:
            node, log = exponent(each)
            text = each.decay.line.text[node.start : node.end]
            outputs = {own_name("g", reached.case): decay_port(each, reached.case)}
            name = f"log({text})" if log else text
            return Missing("value", name, each.decay.mark, (), outputs, facts, reached, node, log)
    return None


def missing_state(facts: tuple[Algebra, ...], reached: Reached) -> Missing | None:
    case, definition = reached.case, reached.case.readings.original
    finals = {
        each.state.id for name, each in definition.finals.items() if name in case.outputs and not reached.output(name)
    }
    states = tuple(name for name in case.readings.state_axes if reached.state(name) is None or name in finals)
    if not states:
        return None
    names = depends_on(reached.search, frozenset(states))
    if (value := reached.unserved(names)) is not None:
        return missing_value(value, facts, reached)
    outputs = {}
    heads = [case.head] if case.head else []
    for name in states:
        own, more = case.readings.state_axes[name], "" if len(states) == 1 else f"_{name}"
        outputs[own_name(f"h{more}", case)] = Port(" ".join(["B", "NT", *heads, *own]), IO, unit=STATES[0])
        outputs[own_name(f"final_state{more}", case)] = Port(" ".join(["N", *heads, *own]), F32, unit=STATES[1])
    line = next(each for each in reversed(definition.step) if each.target.id == states[0])
    text = " and ".join(states)
    return Missing("state", text, line.line.where, states, outputs, facts, reached)


def missing_value(value, facts: tuple[Algebra, ...], reached: Reached) -> Missing:
    port = Port(" ".join([*reached.lanes(value.node), *value.axes]))
    return Missing("value", value.text, value.mark, (), {own_name("y", reached.case): port}, facts, reached, value.node)


def missing_output(facts: tuple[Algebra, ...], reached: Reached) -> Missing | None:
    case, definition = reached.case, reached.case.readings.original
    for name in case.outputs:
        if reached.output(name) is not None:
            continue
        line = next(each for each in reversed(definition.step) if each.target.id == name)
        if reached.needs_no_state(line.value):
            return missing_value(reached.by_node[id(line.value)], facts, reached)
        names = depends_on(reached.search, frozenset([name]))
        if (value := reached.unserved(names)) is not None:
            return missing_value(value, facts, reached)
        states = [state for state in case.readings.state_axes if state in names]
        ports = {"h" if len(states) == 1 else f"h_{state}": state for state in states}
        ports = {own_name(port, case): (state, reached.state(state)) for port, state in ports.items()}
        outputs = {name: Port(" ".join(case.output_axes[name]))}
        mark = line.line.where
        return Missing("output", name, mark, (name,), outputs, facts, reached, states=ports)
    return None


def own_name(port: str, case: TinyCase) -> str:
    """The name of a port of the stage; another one where an input of the file has it, which may be a port too."""
    inputs = case.spec.inputs
    return free_name(port, inputs) if port in inputs else port


def diagnostic(found: NotComposed, missing: Missing | None, contract: str) -> Diagnostic:
    """The error of a definition for which there are no stages. contract: what a new stage would have, in words."""
    if missing is None:
        message = f"stages were found, and what they make is refused: {found.refused[0]}"
        return Diagnostic(codes.NO_STAGES, message, found.case.spec.definition.mark)
    message = {
        "value": f"no stage gives {missing.text}",
        "state": f"no stages carry the state {missing.text}",
        "output": f"no stages read the output {missing.text}",
    }[missing.kind]
    notes = [Note(each.words) for each in missing.algebra]
    notes += [Note(f"found: {words}") for words in nearest(missing.reached)]
    if any(search.cut_short for search in found.searches):
        tried = sum(search.steps for search in found.searches)
        notes.append(Note(f"the search was cut short at {tried:,} stages tried"))
    notes.append(Note(f"a new stage would need: {contract}"))
    help = "--stub writes that stage with a reference in PyTorch, and the pipeline that uses it"
    return Diagnostic(codes.NO_STAGES, message, missing.mark, tuple(notes), help)


def nearest(reached: Reached) -> list[str]:
    """The largest parts that were found, each with the stages that make it."""
    case = reached.case
    parts = {f"the output {name}": reached.output(name) for name in case.outputs}
    parts |= {f"{name} as it enters each chunk": reached.state(name) for name in case.readings.state_axes}
    found = []
    for words, value in parts.items():
        if value is not None and value.ways:
            steps = next(smallest_graphs([value]))
            found.append(f"{words}, by {', '.join(dict.fromkeys(step.stage.name for step in steps))}")
    return found
