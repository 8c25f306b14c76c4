"""The smallest graphs among all that a search found: which step makes each value, so that few steps do it all.

An op is to be trained: graphs of stages with a gradient of their own come first, then those that need one stage whose
gradient is autograd through its reference, and so on.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from .feeding import Found, Step

LARGEST = 24
"""Stages in a graph, at most."""


def smallest_graphs(goals: Sequence[Found]) -> Iterator[list[Step]]:
    """Choices of steps that make the goals, in rising number of steps; steps in an order in which they can run."""
    goals = [each for goal in goals for each in goal.operands or (goal,)]
    others = sorted({step.stage.name for step in steps_to(goals) if step.stage.vjp is None})
    for count in range(len(others) + 1):
        for without in combinations(others, len(others) - count):
            if all(makeable(goal, frozenset(without), {}) for goal in goals):
                for size in range(1, LARGEST + 1):
                    yield from graphs_of(size, goals, (), frozenset(), frozenset(without))


def steps_to(goals: Sequence[Found]) -> list[Step]:
    """Every step that is on some way to a goal."""
    found, todo = {}, list(goals)
    while todo:
        for step in todo.pop().ways:
            if step.id not in found:
                found[step.id] = step
                todo += [each for each in step.inputs.values() if each]
    return list(found.values())


def makeable(value: Found, without: frozenset[str], known: dict[int, bool]) -> bool:
    """Whether a value can be made without these stages."""
    if value.id not in known:
        ways = (step for step in value.ways if step.stage.name not in without)
        known[value.id] = not value.ways or any(
            all(makeable(each, without, known) for each in step.inputs.values() if each) for step in ways
        )
    return known[value.id]


def graphs_of(
    size: int, open_values: list[Found], chosen: tuple[Step, ...], done: frozenset[int], without: frozenset[str]
) -> Iterator[list[Step]]:
    """Graphs of exactly size steps that extend the chosen ones. done: ids of the values that have their step."""
    todo = {each.id: each for each in open_values if each.ways and each.id not in done}
    if not todo:
        if len(chosen) == size:
            yield in_order(chosen)
        return
    latest = todo[max(todo)]
    here = next((step for step in chosen if step in latest.ways), None)
    ways = [here] if here else latest.ways if len(chosen) < size else []
    for step in ways:
        if step.stage.name not in without:
            more = chosen if here else (*chosen, step)
            needed = [] if here else [each for each in step.inputs.values() if each]
            yield from graphs_of(size, [*todo.values(), *needed], more, done | {latest.id}, without)


def in_order(steps: Sequence[Step]) -> list[Step]:
    """The steps so that each reads what stands before it, the first found first."""
    placed, rest = [], sorted(steps, key=lambda step: step.id)
    while rest:
        made = {value.id for step in rest for value in step.outputs.values() if step in value.ways}
        made -= {value.id for step in placed for value in step.outputs.values() if step in value.ways}
        ready = [step for step in rest if all(each is None or each.id not in made for each in step.inputs.values())]
        placed.append(ready[0])
        rest.remove(ready[0])
    return placed
