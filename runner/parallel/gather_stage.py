"""The stage of communication: what every rank has of something, on every rank. Its reference is the collective."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ...stages import _all_gather
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


def ranks_of(group: dist.ProcessGroup) -> Ranks:
    members = tuple(dist.get_process_group_ranks(group))
    return Ranks(group, dist.get_rank(group), members, dist.get_backend(group))


def ranks_on_paper(count: int) -> Ranks:
    """For a graph that is drawn or planned and not run: the first of so many ranks."""
    return Ranks(None, 0, tuple(range(count)), "link")


def gather_stage(id: str, values: Mapping[str, Value], ranks: Ranks, last: bool) -> Stage:
    """values: what is exchanged, by port; each has one row for each sequence here, of which the first LANES are sent,
    or the last."""
    rows = {port: " ".join(map(str, value.axes[1:])) for port, value in values.items()}
    contract = _all_gather.contract(rows, {port: value.unit for port, value in values.items()})
    doc = f"The {' and '.join(values)} of every rank, on every rank."
    reference = Collective(id, tuple(values), ranks, last)
    return Stage("all_gather", str(SHIPPED / "_all_gather.py"), doc, contract, reference, transport=ranks.transport)


class Collective:
    """The reference of a gather stage: every rank runs it, at the same place of the same graph."""

    def __init__(self, id: str, ports: tuple[str, ...], ranks: Ranks, last: bool):
        self.id, self.ranks, self.last = id, ranks, last
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ports]
        named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("RANKS", "LANES")]
        self.__signature__ = inspect.Signature([*first, *named])

    def __call__(self, *, RANKS: int, LANES: int, **given: torch.Tensor) -> dict[str, torch.Tensor]:
        with meeting(self.id, self.ranks.rank, RANKS):
            return {
                f"{port}s": _all_gather.gathered(x, self.ranks.group, RANKS, LANES, self.last)
                for port, x in given.items()
            }
