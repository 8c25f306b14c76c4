"""The smallest graphs among all that a search found: which step makes each value, so that few steps do it all."""

from collections.abc import Iterator, Sequence

from .feeding import Found, Step

LARGEST = 24
"""Stages in a graph, at most."""


def smallest_graphs(goals: Sequence[Found]) -> Iterator[list[Step]]:
    """Choices of steps that make the goals, in rising number of steps; steps in an order in which they can run."""
    goals = [each for goal in goals for each in goal.operands or (goal,)]
    for size in range(1, LARGEST + 1):
        yield from graphs_of(size, goals, (), frozenset())


def graphs_of(size: int, open_values: list[Found], chosen: tuple[Step, ...], done: frozenset[int]) -> Iterator:
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
        more = chosen if here else (*chosen, step)
        needed = [] if here else [each for each in step.inputs.values() if each]
        yield from graphs_of(size, [*todo.values(), *needed], more, done | {latest.id})


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
