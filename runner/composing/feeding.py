"""The ways to feed a stage: every choice of found values for its ports that fits by axes, dtype, unit and law."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product

import torch

from ...stages._contract import Port
from ..graphs.graph import Value
from ..graphs.unify import Bindings, match_axes, match_dtype, match_law, match_unit
from ..stage_files.stage_library import Stage


@dataclass(eq=False)
class Found:
    """A value that stages can give, or an input of the file. Values that agree on the tiny case are one.

    ways: how it can be made; none for an input. known: the definition computes it too. direct: as of a Reading, or a
    product of a stage whose states are the definition's. roles: port -> the value that stands there in every way.
    parts: of a value that an edge says, its text, with values of stages between pieces of it.
    """

    id: int
    value: Value
    x: torch.Tensor
    known: bool
    direct: bool
    born: int
    ways: list["Step"] = field(default_factory=list)
    roles: dict[str, int] = field(default_factory=dict)
    parts: tuple["str | Found", ...] = ()

    @property
    def operands(self) -> tuple["Found", ...]:
        return tuple(part for part in self.parts if isinstance(part, Found))


@dataclass(eq=False)
class Step:
    """A stage with its ports fed. params: name -> text, for those that are not left at their defaults."""

    id: int
    stage: Stage
    inputs: Mapping[str, Found | None]
    params: Mapping[str, str]
    outputs: dict[str, Found] = field(default_factory=dict)


Roles = Mapping[str, int]
BINDINGS = [each.name for each in fields(Bindings)]


def in_chunks(stage: Stage) -> bool:
    """Whether a stage's tokens meet: it names chunks, or has something of each chunk or sequence."""
    return not {"C", "NT", "N"}.isdisjoint(stage.axis_names)


def ways_to_feed(
    stage: Stage, candidates: Callable[[Port], Sequence[Found]], roles_agree: bool, since: int
) -> Iterator[tuple[dict[str, Found | None], Bindings, Roles]]:
    """Every choice of one candidate a port, optional ports also without one, in a fixed order.

    since: one value at least was born in this round or later; the other choices were met before.
    """
    if any(port.mutates for port in stage.contract.outputs.values()):
        return  # it writes over an input: an op of its own, and no value of a graph that is trained
    ports = stage.contract.inputs
    pools = {name: [each for each in candidates(port) if plausible(port, each.value)] for name, port in ports.items()}
    optional = [name for name, port in ports.items() if port.optional]
    for present in product((True, False), repeat=len(optional)):
        absent = {name for name, there in zip(optional, present) if not there}
        if all(pools[name] for name in ports if name not in absent):
            yield from fed(stage, pools, absent, roles_agree, since)


def plausible(port: Port, value: Value) -> bool:
    """What can be said without the other ports."""
    return (
        len(port.axes) == len(value.axes) and port.dtype == value.dtype and (port.unit is None) == (value.unit is None)
    )


def fed(stage: Stage, pools, absent: set[str], roles_agree: bool, since: int) -> Iterator:
    start = Bindings()
    for name, (port, present, missing) in stage.contract.presence.items():
        start.variables[name] = missing if port in absent else present
    ports = [name for name in stage.contract.inputs if name not in absent]
    last_new = max((at for at, name in enumerate(ports) if any(x.born >= since for x in pools[name])), default=-1)

    def rest(at: int, bound: dict, bindings: Bindings, roles: Roles, new: bool) -> Iterator:
        if not new and at > last_new:
            return
        if at == len(ports):
            yield {name: bound.get(name) for name in stage.contract.inputs}, bindings, roles
            return
        name = ports[at]
        port, by_kind = stage.contract.inputs[name], {}
        for found in pools[name]:
            more = joined_roles(roles, name, found, in_chunks(stage) and port.unit is None)
            if roles_agree and more is None:
                continue
            kind = kind_of(found.value)
            if kind not in by_kind:
                by_kind[kind] = bound_to(bindings, name, port, found.value)
            if trial := by_kind[kind]:
                yield from rest(at + 1, {**bound, name: found}, trial, more or {}, new or found.born >= since)

    yield from rest(0, {}, start, {}, False)


def kind_of(value: Value) -> tuple:
    """What unification looks at: values of one kind fit alike."""
    return value.axes, value.dtype, value.unit, value.laws


def bound_to(bindings: Bindings, name: str, port: Port, value: Value) -> Bindings | None:
    """The bindings with one more edge unified; None where it does not fit."""
    trial = Bindings(*(dict(getattr(bindings, each)) for each in BINDINGS))
    wrong = (
        match_axes(name, None, port, value, trial)
        or match_dtype(name, None, port, value)
        or match_unit(name, None, port, value, trial, {}, {})
        or match_law(name, None, port, value, trial)
    )
    return None if wrong else trial


def joined_roles(roles: Roles, port: str, found: Found, is_role: bool) -> Roles | None:
    """The roles with one more port fed; None where two ports of one name would hold different values.

    Stages that share a port's name mean the same by it: one k, one beta in a graph. A value that was made of another
    one under that name may take its place further on, as v_new does for v.
    """
    own = {port: found.id} if is_role and port not in found.roles else {}
    result = dict(roles)
    for name, id in {**found.roles, **own}.items():
        if result.setdefault(name, id) != id:
            return None
    return result
