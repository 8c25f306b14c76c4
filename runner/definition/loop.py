"""The loop over tokens, for all sequences and heads at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from .lanes import Lanes, Stretch
from .program import SEQUENCE, TOKEN, Apply, Program
from .schedule import Schedule

Values = Mapping[int, torch.Tensor | float]


@dataclass(frozen=True)
class Body:
    """One step as data. instructions: (function, operation ids it reads, id it writes).

    entries, exits: the states' ids before and after the step. streams, fixed: ids captured per token, and for all
    tokens. size: number of operation ids.
    """

    instructions: tuple[tuple[Callable, tuple[int, ...], int], ...]
    entries: tuple[int, ...]
    exits: tuple[int, ...]
    streams: tuple[int, ...]
    fixed: tuple[int, ...]
    gathered: tuple[int, ...]
    size: int


def body_of(program: Program, schedule: Schedule) -> Body:
    operations = program.operations
    slots = [program.states[name] for name in schedule.states]
    return Body(
        instructions=tuple((bound(operations[at].source), operations[at].args, at) for at in schedule.inside),
        entries=tuple(slot.entry for slot in slots),
        exits=tuple(slot.exit for slot in slots),
        streams=tuple(at for at in schedule.captured if operations[at].level == TOKEN),
        fixed=tuple(at for at in schedule.captured if operations[at].level < TOKEN),
        gathered=schedule.gathered,
        size=len(operations),
    )


def bound(source: Apply) -> Callable:
    """The function of an operation on its tensors alone."""
    if not source.static:
        return source.compute
    return lambda *tensors: source.compute(*tensors, *source.static)


def run_steps(body: Body, steps: int, *tensors):
    """tensors: the states [L, ...], streams [steps, L, ...], fixed [L, ...] (or numbers), in the body's order.

    Returns the new states and, stacked over the steps, what is gathered.
    """
    states = tensors[: len(body.entries)]
    streams = [x.unbind(0) for x in tensors[len(states) : len(states) + len(body.streams)]]
    values = [None] * body.size
    for at, x in zip(body.fixed, tensors[len(states) + len(streams) :], strict=True):
        values[at] = x
    tokens = list(zip(*streams, strict=True)) if streams else [()] * steps
    kept = [[] for _ in body.gathered]
    for token in tokens:
        for at, x in zip(body.entries, states):
            values[at] = x
        for at, x in zip(body.streams, token):
            values[at] = x
        for compute, args, out in body.instructions:
            values[out] = compute(*[values[at] for at in args])
        for part, at in zip(kept, body.gathered):
            part.append(values[at])
        states = tuple([values[at] for at in body.exits])
    return *states, *(torch.stack(part) for part in kept)


def flat(x, lead: tuple[int, ...], heads: int):
    """[lead..., 1 or heads, ...] with the heads joined to the last leading dimension; numbers as they are."""
    if not isinstance(x, torch.Tensor):
        return x
    inner = x.shape[2:]
    return x.expand(-1, heads, *inner).reshape(*lead[:-1], lead[-1] * heads, *inner)


def fixed_lanes(x, level: int, running: int, heads: int):
    """A value that no token changes, for the lanes still running."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x[:running] if level == SEQUENCE else x.expand(running, *x.shape[1:])
    return flat(x, (running,), heads)


def run_stretch(body: Body, stretch: Stretch, states, streams, fixed, segment: int | None):
    """One stretch, in segments that autograd computes again instead of keeping them."""
    size = segment or stretch.steps
    pieces = zip(*(x.split(size) for x in streams), strict=True) if streams else None
    kept = [[] for _ in body.gathered]
    for start in range(0, stretch.steps, size):
        steps = min(size, stretch.steps - start)
        piece = next(pieces) if pieces else ()
        run = partial(run_steps, body, steps)
        if segment and torch.is_grad_enabled():
            run = partial(checkpoint, run, use_reentrant=False, preserve_rng_state=False)
        result = run(*states, *piece, *fixed)
        states = result[: len(states)]
        for part, x in zip(kept, result[len(states) :], strict=True):
            part.append(x)
    return states, [torch.cat(part) for part in kept]


def run_loop(
    program: Program, schedule: Schedule, values: Values, lanes: Lanes, heads: int, segment: int | None
) -> tuple[dict[int, torch.Tensor], dict[str, torch.Tensor]]:
    """({gathered id: [R, heads, ...]}, {state: [N, heads, ...] by rank, after each sequence's last token})."""
    operations, body = program.operations, body_of(program, schedule)
    slots = [program.states[name] for name in schedule.states]
    states = [fixed_lanes(values[s.initial], operations[s.initial].level, lanes.N, heads) for s in slots]
    by_stretch = {at: values[at].split([stretch.rows for stretch in lanes.stretches]) for at in body.streams}
    ended = [[] for _ in slots]
    gathered = {at: [] for at in body.gathered}
    for index, stretch in enumerate(lanes.stretches):
        lead = stretch.steps, stretch.running
        for part, x in zip(ended, states, strict=True):
            part.append(x[stretch.running * heads :])
        states = [x[: stretch.running * heads] for x in states]
        streams = [flat(by_stretch[at][index], lead, heads) for at in body.streams]
        fixed = [fixed_lanes(values[at], operations[at].level, stretch.running, heads) for at in body.fixed]
        states, results = run_stretch(body, stretch, states, streams, fixed, segment)
        for at, x in zip(body.gathered, results, strict=True):
            gathered[at].append(x.reshape(stretch.rows, heads, *x.shape[2:]))
    finals = {}
    for name, part, x in zip(schedule.states, ended, states, strict=True):
        joined = torch.cat([x, *reversed(part)])
        finals[name] = joined.reshape(lanes.N, heads, *joined.shape[1:])
    return {at: torch.cat(parts) for at, parts in gathered.items()}, finals
