"""Which operations of a program run before, inside and after the loop over tokens."""

from collections.abc import Iterable
from dataclasses import dataclass

from .program import LOOP, Apply, Program


@dataclass(frozen=True)
class Schedule:
    """Operation ids in the program's order.

    before: need no state; for all tokens at once. inside: the loop. after: only outputs need them; again for all
    tokens at once, from the vectors in ``gathered``, which the loop leaves behind for each token.
    captured: what the loop reads of ``before``. states: names of the states that are carried.
    """

    before: tuple[int, ...]
    inside: tuple[int, ...]
    after: tuple[int, ...]
    gathered: tuple[int, ...]
    captured: tuple[int, ...]
    states: tuple[str, ...]


def ancestors(program: Program, ids: Iterable[int]) -> set[int]:
    """The ids and all that they are computed from within one step."""
    found, todo = set(), list(ids)
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += program.operations[at].args
    return found


def carried_states(program: Program, wanted: Iterable[int], finals: Iterable[str]) -> tuple[str, ...]:
    """The states that the wanted values and final states depend on, through any number of tokens."""
    states = set(finals)
    while True:
        needed = ancestors(program, [*wanted, *(program.states[name].exit for name in states)])
        more = {name for name, slot in program.states.items() if slot.entry in needed} - states
        if not more:
            return tuple(name for name in program.states if name in states)
        states |= more


def schedule(program: Program, wanted: Iterable[int], finals: Iterable[str]) -> Schedule:
    """wanted: operation ids of the per-token outputs. finals: states whose last value is an output."""
    wanted = tuple(wanted)
    operations = program.operations
    states = carried_states(program, wanted, finals)
    exits = [program.states[name].exit for name in states]
    carried = ancestors(program, exits)
    needed = carried | ancestors(program, wanted)
    in_loop = {at for at in needed if operations[at].level == LOOP}
    after = _deferred(program, in_loop, carried)
    inside = [at for at in sorted(in_loop - after) if isinstance(operations[at].source, Apply)]
    read_after = {arg for at in after for arg in operations[at].args} | set(wanted)
    read_inside = {arg for at in inside for arg in operations[at].args} | set(exits)
    initial = ancestors(program, [program.states[name].initial for name in states])
    return Schedule(
        before=tuple(sorted(needed - in_loop | initial)),
        inside=tuple(inside),
        after=tuple(sorted(after)),
        gathered=tuple(sorted((read_after & in_loop) - after)),
        captured=tuple(sorted(read_inside - in_loop)),
        states=states,
    )


def _deferred(program: Program, in_loop: set[int], carried: set[int]) -> set[int]:
    """Operations that no state and nothing else inside the loop needs, on vectors only (matrices of every token
    would not fit)."""
    operations = program.operations
    deferred: set[int] = set()
    held = set(carried)  # what the loop itself reads
    for at in sorted(in_loop, reverse=True):
        operation = operations[at]
        small = operation.rank <= 1 and all(arg not in in_loop or operations[arg].rank <= 1 for arg in operation.args)
        if at not in held and small and isinstance(operation.source, Apply):
            deferred.add(at)
        else:
            held.update(operation.args)
    return deferred
