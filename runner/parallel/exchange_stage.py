"""The stage of communication, bound to a process group: its reference is the collective."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ...stages import _exchange
from ..graphs.graph import Value
from ..stage_files.stage_library import SHIPPED, Stage
from .lost_rank import meeting


@dataclass(frozen=True)
class Ranks:
    """A process group as the rewrite sees it; None where a graph is planned and not run. rank: this one's place in it.
    members: global ranks, in order. transport: its back end, gloo or nccl."""

    group: dist.ProcessGroup | None
    rank: int
    members: tuple[int, ...]
    transport: str

    @property
    def size(self) -> int:
        return len(self.members)

    def beside(self, step: int) -> int | None:
        """The global rank so many places on; None beyond the ends."""
        place = self.rank + step
        return self.members[place] if 0 <= place < self.size else None


def ranks_of(group: dist.ProcessGroup) -> Ranks:
    members = tuple(dist.get_process_group_ranks(group))
    return Ranks(group, dist.get_rank(group), members, dist.get_backend(group))


def ranks_on_paper(count: int) -> Ranks:
    """For a graph that is drawn or planned and not run: the first of so many ranks."""
    return Ranks(None, 0, tuple(range(count)), "link")


def exchange_stage(id: str, values: Mapping[str, Value], ranks: Ranks, last: bool, near: bool) -> Stage:
    """values: what is exchanged, by port; each has one row for each sequence here, of which the first LANES are sent,
    or the last. near: to the next rank alone, in that direction; else to all."""
    rows = {port: " ".join(map(str, value.axes[1:])) for port, value in values.items()}
    contract = _exchange.contract(rows, {port: value.unit for port, value in values.items()})
    name, what = ("pass_on", "the rank next to this one") if near else ("all_gather", "every rank, on every rank")
    doc = f"The {' and '.join(values)} of {what}."
    reference = Exchange(id, tuple(values), ranks, last, near)
    return Stage(name, str(SHIPPED / "_exchange.py"), doc, contract, reference, transport=ranks.transport)


class Exchange:
    """The reference of an exchange: every rank runs it, at the same place of the same graph."""

    def __init__(self, id: str, ports: tuple[str, ...], ranks: Ranks, last: bool, near: bool):
        self.id, self.ranks, self.last, self.near = id, ranks, last, near
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ports]
        named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("RANKS", "LANES")]
        self.__signature__ = inspect.Signature([*first, *named])

    def __call__(self, *, RANKS: int, LANES: int, **given: torch.Tensor) -> dict[str, torch.Tensor]:
        with meeting(self.id, self.ranks.rank, self.ranks.size):
            return {f"{port}s": self.exchanged(x, RANKS, LANES) for port, x in given.items()}

    def exchanged(self, x: torch.Tensor, RANKS: int, LANES: int) -> torch.Tensor:
        if not self.near:
            return _exchange.gathered(x, self.ranks.group, RANKS, LANES, self.last)
        step = 1 if self.last else -1
        to, source = self.ranks.beside(step), self.ranks.beside(-step)
        return _exchange.passed_on(x, self.ranks.group, LANES, self.last, to, source)
