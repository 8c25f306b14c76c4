"""Whether all ranks of a group mean the same call: asked once for each kind of call, before its first launch.

The question goes through the store that the process group was made with, so that it waits for no device, cannot be
taken for a collective of the call, and a rank that refuses its call can still say so.
"""

import json
from collections.abc import Hashable, Mapping
from contextlib import suppress
from os.path import commonprefix

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..planning.least_recent import LeastRecent
from .exchange_stage import Ranks
from .lost_rank import lost

Facts = Mapping[str, Hashable]

_ops: dict[tuple[int, ...], int] = {}
"""Ops that this process has made for each group, by its members: every rank makes them in the same order."""


class Agreement:
    """What one op asks of the other ranks of its group."""

    def __init__(self, ranks: Ranks):
        self.ranks, self.asked, self.known = ranks, 0, LeastRecent(1024)
        number = _ops[ranks.members] = _ops.get(ranks.members, 0) + 1
        self.store = PrefixStore(f"chunkwise/{'-'.join(map(str, ranks.members))}/{number}", _get_default_store())

    def require(self, facts: Facts) -> None:
        """Raises ChunkwiseError, on every rank, where two ranks differ in a fact; facts that all had once are not
        asked for again."""
        if self.ranks.size > 1:
            self.known.get(tuple(facts.items()), lambda: self.ask(facts))

    def refuse(self, error: ChunkwiseError) -> None:
        """Tells the others, where they ask, that this rank's call is refused."""
        self.say({"refused": "\n".join(each.message for each in error.diagnostics)})

    def ask(self, facts: Facts) -> bool:
        self.say({name: str(fact) for name, fact in facts.items()})
        keys = [f"{self.asked}/{rank}" for rank in range(self.ranks.size)]
        try:
            self.store.wait(keys, self.store.timeout)
            said = [json.loads(self.store.get(key)) for key in keys]
        except RuntimeError as error:
            what = f"the question whether all mean the same call{self.silent(keys)}"
            raise ChunkwiseError(lost(what, self.ranks.rank, self.ranks.size, error)) from error
        if found := difference(said):
            raise ChunkwiseError(found)
        return True

    def silent(self, keys: list[str]) -> str:
        """Who did not come, as far as the store is still there to say it. A rank with another mesh asks elsewhere."""
        with suppress(RuntimeError):
            ranks = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            return f" (no answer of rank {', '.join(map(str, ranks))})" if ranks else ""
        return ""

    def say(self, facts: Mapping[str, str]) -> None:
        self.asked += 1
        self.store.set(f"{self.asked}/{self.ranks.rank}", json.dumps(facts))


def difference(said: list[dict[str, str]]) -> Diagnostic | None:
    """The first refusal of a rank, else the first fact in which a rank differs from rank 0."""
    for rank, facts in enumerate(said):
        if "refused" in facts:
            message = f"rank {rank} of {len(said)} refuses its call: {facts['refused']}"
            return Diagnostic(codes.RANKS_DIFFER, message, help="every rank of the group makes the same call")
    for rank, facts in enumerate(said):
        for name, fact in facts.items():
            if fact != said[0].get(name):
                first, other = where_they_part(said[0].get(name), fact)
                message = f"the ranks differ in {name}: rank 0 has {first}, rank {rank} has {other}"
                return Diagnostic(codes.RANKS_DIFFER, message, help="every rank of the group makes the same call")
    return None


def where_they_part(first: str, other: str, longest: int = 120) -> tuple[str, str]:
    """Two texts, the long ones from shortly before they differ."""
    start = max(0, len(commonprefix([first, other])) - longest // 2)
    return tuple(("..." if start else "") + text[start : start + longest] for text in (first, other))


def is_ready() -> bool:
    return dist.is_available() and dist.is_initialized()
