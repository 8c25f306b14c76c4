"""All values that stages can make of a definition's inputs, level by level of what is let in.

Types close most doors (feeding.py); the definition's own values close the rest: a stage token by token must give a
value that the definition has too, a state entering a chunk must be the definition's. What comes out equal on the tiny
case is one value with several ways to it. No stage is named here: a contract is all that the search knows of one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from ...stages._contract import Port
from ..diagnostics.marks import Mark
from ..graphs.build_graph import node_of
from ..graphs.graph import Node, Value
from ..graphs.sizes import broken, local_sizes
from ..graphs.unify import output_value
from ..loading.spec import StageSpec
from ..parallel.cut import PLACE
from ..planning.references import run_reference
from ..stage_files.stage_library import Stage
from .feeding import Found, Step, in_chunks, ways_to_feed
from .matching import STATES, Truths, same
from .tiny_case import UNSAID, TinyCase

MOST_STEPS = 6_000
"""Stages that are run on the tiny case in one level, at most."""


@dataclass(frozen=True)
class Level:
    """What is let in. direct: ports that name no unit take what the recurrence reads, not what that is made of.
    roles: ports of one name take one value. states: a chunk's entering state is the definition's."""

    name: str
    direct: bool
    roles: bool
    states: bool


LEVELS = (
    Level("values that the recurrence reads", direct=True, roles=True, states=True),
    Level("all values of the definition", direct=False, roles=True, states=True),
    Level("other states than the definition's", direct=False, roles=True, states=False),
)


def of_pieces(stage: Stage) -> bool:
    """Whether a stage is for sequences that are cut across ranks (parallel/): a definition has none."""
    units = (port.unit or "" for port in stage.contract.outputs.values())
    return stage.contract.across or any(unit.startswith("segment/") for unit in units)


def of_attention(stage: Stage) -> bool:
    """Whether a stage has queries and keys instead of tokens: a definition token by token has none such."""
    return not {"Sq", "Sk"}.isdisjoint(stage.axis_names)


def of_gradients(stage: Stage) -> bool:
    """Whether a stage is part of a backward pass: it reads or makes a gradient."""
    ports = (*stage.contract.inputs.values(), *stage.contract.outputs.values())
    return any((port.unit or "").startswith("cotangent/") for port in ports)


class Search:
    """One level's search. found: every value, inputs first."""

    def __init__(
        self,
        case: TinyCase,
        stages: Mapping[str, Stage],
        level: Level,
        progress: Callable[[str], None] = str,
        leaves: Sequence[tuple[Value, torch.Tensor]] = (),
        limit: int = MOST_STEPS,
    ):
        """leaves: values beside the inputs that an edge can say. limit: stages to run, at most."""
        self.limit = min(limit, MOST_STEPS)
        self.case, self.level, self.progress = case, level, progress
        self.stages = {
            name: stage
            for name, stage in stages.items()
            if not (of_pieces(stage) or of_attention(stage) or of_gradients(stage) or stage.fuses)
        }
        self.truths = Truths(case)
        self.found: list[Found] = []
        self.groups: dict[tuple, list[Found]] = {}
        self.tried: set[tuple] = set()
        self.steps = self.round = 0
        for name, value in case.values.items():
            reading = self.truths.reading(value, case.inputs[name])
            self.add(value, case.inputs[name], known=True, direct=reading is None or reading.direct)
        for value, x in leaves:
            self.add(value, x, known=True, direct=True)

    @property
    def cut_short(self) -> bool:
        return self.steps >= self.limit

    def run(self) -> None:
        """Until no stage gives anything new."""
        grown = True
        while grown and self.steps < self.limit:
            self.round += 1
            before = len(self.found)
            self.progress(f"{before} values, {self.steps} stages tried ({self.level.name})")
            for stage in self.stages.values():
                self.apply(stage)
            grown = len(self.found) > before or any(each.born == self.round for each in self.found)

    def apply(self, stage: Stage) -> None:
        old = [each for each in self.found if each.born < self.round]
        pool = lambda port: self.pool(stage, port, old)  # noqa: E731
        for bound, bindings, roles in ways_to_feed(stage, pool, self.level.roles, self.round - 1):
            for params in self.param_choices(stage):
                key = (stage.name, tuple(each and each.id for each in bound.values()), tuple(params.items()))
                if key not in self.tried and self.steps < self.limit:
                    self.tried.add(key)
                    self.take(stage, bound, bindings, params, roles)

    def pool(self, stage: Stage, port: Port, found: Sequence[Found]) -> list[Found]:
        if port.unit is not None:
            return [each for each in found if each.value.unit is not None]
        if in_chunks(stage) and self.level.direct:
            return [each for each in found if each.direct]
        return [each for each in found if each.known or each.direct]

    def param_choices(self, stage: Stage) -> Iterator[dict[str, str]]:
        """Each param at its default, or at a number of the definition that differs from it; none of a cut."""
        choices, read = [], self.case.readings.constants
        for name, default in stage.contract.params.items():
            if stage.gathered and name in PLACE:
                continue
            texts = [text for text, number in self.case.numbers.items() if number != default]
            if in_chunks(stage) and self.level.direct:
                texts = [text for text in texts if text == UNSAID or read.get(text, True)]
            choices.append([(name, text) for text in ([] if default is None else [None]) + texts])
        for chosen in product(*choices):
            yield {name: text for name, text in chosen if text is not None}

    def take(self, stage: Stage, bound: Mapping[str, Found | None], bindings, params, roles) -> None:
        """Run a stage and keep what it gives, unless it contradicts the definition."""
        spec = StageSpec(f"#{self.steps}", NOWHERE, stage.name, NOWHERE)
        typed = {port: output_value(spec, stage, port, bindings, {}) for port in stage.contract.outputs}
        if any(wrong for _, wrong in typed.values()):
            return
        outputs = {port: value for port, (value, _) in typed.items()}
        given = {port: each and each.value for port, each in bound.items()}
        node = node_of(spec, stage, given, outputs, bindings)
        results = self.evaluate(node, bound, params)
        if results is None:
            return
        self.steps += 1
        flags = self.judged(stage, {port: (outputs[port], x) for port, x in results.items() if x is not None})
        if flags is None:
            return
        step = Step(self.steps, stage, dict(bound), params)
        for port, (known, direct) in flags.items():
            step.outputs[port] = self.add(outputs[port], results[port], known, direct, step, roles)

    def evaluate(self, node: Node, bound, params: Mapping[str, str]) -> dict | None:
        """The reference's outputs; None for sizes that the stage refuses, or where numbers overflow."""
        case, names = self.case, local_sizes(node, self.case.sizes)
        if any(broken(text, names) for text in node.stage.contract.requires):
            return None
        numbers = {name: default for name, default in node.stage.contract.params.items() if default is not None}
        numbers |= {name: case.numbers[text] for name, text in params.items()}
        inputs = {port: each.x if each else None for port, each in bound.items()}
        results = run_reference(node, inputs, {**names, **numbers}, case.seqs, torch.float64)
        finite = all(bool(torch.isfinite(x).all()) for x in results.values() if x is not None)
        return results if finite else None

    def judged(self, stage: Stage, results: Mapping[str, tuple[Value, torch.Tensor]]) -> dict | None:
        """Port -> (known, direct) of what a stage gave; None where it contradicts the definition."""
        readings = {port: self.truths.reading(*each) for port, each in results.items()}
        goals = {port for port, each in results.items() if self.truths.outputs_of(*each)}
        states = {port: self.truths.is_state(*each) for port, each in results.items()}
        if self.level.states and False in states.values():
            return None
        trusted = any(states[port] and value.unit == STATES[0] for port, (value, _) in results.items())
        for port, (value, _) in results.items():
            free = in_chunks(stage) and (value.unit is not None or trusted)
            if not free and readings[port] is None and port not in goals:
                return None
        direct = {port for port, reading in readings.items() if reading is not None and reading.direct}
        direct |= set(results) - goals if trusted else set()  # what leaves the op enters no chunk again
        return {port: (readings[port] is not None or port in goals, port in direct) for port in results}

    def outputs_of(self, found: Found) -> list[str]:
        return self.truths.outputs_of(found.value, found.x)

    def add(self, value: Value, x, known: bool, direct: bool, step: Step | None = None, roles=None) -> Found:
        """The value that this is: one found before, or a new one."""
        laws = tuple(law.text for law in value.laws)
        group = self.groups.setdefault((value.axes, value.dtype, value.unit, laws), [])
        for each in group:
            if same(each.x, x):
                if step is not None and each.ways and not leads_back(step, each):
                    each.ways.append(step)
                    self.loosen(each, roles)
                return each
        found = Found(len(self.found), value, x, known, direct, self.round, [step] if step else [], dict(roles or {}))
        self.found.append(found)
        group.append(found)
        return found

    def loosen(self, found: Found, roles: Mapping[str, int]) -> None:
        """A value that can be made in another way leans on what both have in common; it is tried again with that."""
        kept = {name: id for name, id in found.roles.items() if roles.get(name) == id}
        if kept != found.roles:
            found.roles, found.born = kept, self.round


def leads_back(step: Step, found: Found) -> bool:
    """Whether a value is made, in some way, of what a step that gives it once more reads."""
    seen, todo = set(), [each for each in step.inputs.values() if each]
    while todo:
        at = todo.pop()
        if at is found:
            return True
        if at.id not in seen:
            seen.add(at.id)
            todo += [each for way in at.ways for each in way.inputs.values() if each]
    return False


NOWHERE = Mark("", 1, 1, 1, 1)
