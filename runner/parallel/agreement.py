"""Whether all ranks of a group mean the same call: asked before the first launch of each.

The question goes through the store that the process group was made with, so that it waits for no device, cannot be
taken for a collective of the call, and a rank that refuses its call can still say so. A rank leaves a digest of what it
means and counts itself in; the last one compares them and leaves the verdict, so that nobody else reads more than that,
however many they are. Who differs in what is asked for where the verdict is against them.

A rank that waits for the others holds its connection to the store: each thread has one of its own, or two threads that
call ops of two groups would wait for each other across the ranks.
"""

import hashlib
import json
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os.path import commonprefix

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from .exchange_stage import Ranks
from .lost_rank import lost

Facts = Mapping[str, Hashable]

_ops: dict[tuple[int, ...], int] = {}
"""Ops that this process has made for each group, by its members: every rank makes them in the same order."""
_own = threading.local()
"""store: a thread's own connection. of: the default group's store that it leads to."""


def connection() -> Store:
    store = _get_default_store()
    if getattr(_own, "of", None) is not store:
        _own.of, _own.store = store, store.clone()
    return _own.store


class Agreement:
    """What one op asks of the other ranks of its group. calls: how many there were, the same number on every rank."""

    def __init__(self, ranks: Ranks):
        self.ranks, self.calls = ranks, 0
        number = _ops[ranks.members] = _ops.get(ranks.members, 0) + 1
        self.prefix = f"chunkwise/{'-'.join(map(str, ranks.members))}/{number}"

    @property
    def store(self) -> Store:
        return PrefixStore(self.prefix, connection())

    def require(self, facts: Facts) -> None:
        """Raises ChunkwiseError, on every rank, where two ranks differ in a fact."""
        if self.ranks.size == 1:
            return
        text = json.dumps({name: str(fact) for name, fact in facts.items()})
        self.arrive(hashlib.sha256(text.encode()).hexdigest())
        if self.awaited([self.key("same")]) != [b"1"]:
            self.store.set(self.key("says", self.ranks.rank), text)
            said = self.awaited([self.key("says", rank) for rank in range(self.ranks.size)])
            raise ChunkwiseError(difference([json.loads(each) for each in said]))
        self.store.delete_key(self.key(self.ranks.rank, call=self.calls - 1))

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Around what this rank alone looks at: an error is told to the others too."""
        try:
            yield
        except Exception as error:
            self.refuse(error)
            raise

    def refuse(self, error: Exception) -> None:
        """Tells the others, where they ask, that this rank's call is refused."""
        if self.ranks.size > 1:
            found = [each.message for each in error.diagnostics] if isinstance(error, ChunkwiseError) else [repr(error)]
            said = {"refused": "\n".join(found)}
            self.store.set(self.key("says", self.ranks.rank, call=self.calls + 1), json.dumps(said))
            self.arrive("refused")

    def arrive(self, digest: str) -> None:
        self.calls += 1
        self.store.set(self.key(self.ranks.rank), digest)
        if self.store.add(self.key("there"), 1) == self.ranks.size:
            said = {self.store.get(self.key(rank)) for rank in range(self.ranks.size)}
            self.store.set(self.key("same"), "1" if len(said) == 1 and said != {b"refused"} else "0")
            for name in ("there", "same"):  # whoever is here has read what the last call came to
                self.store.delete_key(self.key(name, call=self.calls - 1))

    def awaited(self, keys: list[str]) -> list[bytes]:
        """What stands under the keys, once it is there."""
        try:
            self.store.wait(keys, self.store.timeout)
            return [self.store.get(key) for key in keys]
        except RuntimeError as error:
            what = f"the question whether all mean the same call{self.silent()}"
            raise ChunkwiseError(lost(what, self.ranks.rank, self.ranks.size, error)) from error

    def silent(self) -> str:
        """Who did not come, as far as the store is still there to say it. A rank with another mesh asks elsewhere."""
        with suppress(RuntimeError):
            ranks = [rank for rank in range(self.ranks.size) if not self.store.check([self.key(rank)])]
            return f" (no answer of rank {', '.join(map(str, ranks))})" if ranks else ""
        return ""

    def key(self, *name: "str | int", call: int | None = None) -> str:
        return "/".join(map(str, (self.calls if call is None else call, *name)))


def difference(said: list[dict[str, str]]) -> Diagnostic:
    """The first refusal of a rank, else the first fact in which a rank differs from rank 0."""
    for rank, facts in enumerate(said):
        if "refused" in facts:
            message = f"rank {rank} of {len(said)} refuses its call: {facts['refused']}"
            return Diagnostic(codes.RANKS_DIFFER, message, help="every rank of the group makes the same call")
    pairs = ((rank, name) for rank, facts in enumerate(said) for name in {**said[0], **facts})
    rank, name = next((rank, name) for rank, name in pairs if said[rank].get(name) != said[0].get(name))
    first, other = where_they_part(str(said[0].get(name)), str(said[rank].get(name)))
    message = f"the ranks differ in {name}: rank 0 has {first}, rank {rank} has {other}"
    return Diagnostic(codes.RANKS_DIFFER, message, help=HELP.get(name, "every rank of the group makes the same call"))


HELP = {
    "rows": "pass rows=[...] on every rank: how many each has",
    "group": "pass the same mesh or process group on every rank",
}
"""By the fact that differs, where there is more to say."""


def where_they_part(first: str, other: str, longest: int = 120) -> tuple[str, str]:
    """Two texts, the long ones from shortly before they differ."""
    start = max(0, len(commonprefix([first, other])) - longest // 2)
    return tuple(("..." if start else "") + text[start : start + longest] for text in (first, other))


def is_ready() -> bool:
    return dist.is_available() and dist.is_initialized()
