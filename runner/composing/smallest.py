"""The smallest graphs among all that a search found: which step makes each value, so that few steps do it all."""

from collections.abc import Iterator, Sequence

from .feeding import Found, Step

LARGEST = 24
"""Stages in a graph, at most."""


def smallest_graphs(goals: Sequence[Found]) -> Iterator[list[Step]]:
    """Choices of steps that make the goals, in rising number of steps; steps in an order in which they can run."""
    for size in range(1, LARGEST + 1):
        yield from graphs_of(size, list(goals), (), frozenset())


def graphs_of(size: int, open_values: list[Found], chosen: tuple[Step, ...], done: frozenset[int]) -> Iterator:
    """Graphs of exactly size steps that extend the chosen ones. The latest value is settled first: what reads it is
    then chosen already. done: ids of the values that have their step."""
    todo = {each.id: each for each in open_values if each.ways and each.id not in done}
    if not todo:
        if len(chosen) == size:
            yield sorted(chosen, key=lambda step: max(each.id for each in step.outputs.values()))
        return
    latest = todo[max(todo)]
    here = next((step for step in chosen if step in latest.ways), None)
    ways = [here] if here else latest.ways if len(chosen) < size else []
    for step in ways:
        more = chosen if here else (*chosen, step)
        needed = [] if here else [each for each in step.inputs.values() if each]
        yield from graphs_of(size, [*todo.values(), *needed], more, done | {latest.id})
