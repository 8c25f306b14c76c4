"""Which rows of which sequences lie on which rank. Host numbers only; every rank computes the same.

Rank r holds rows[r] consecutive rows, in the order of the ranks. A sequence may begin and end anywhere, on one rank or
many. Ranks may hold no rows at all; inside a sequence such a rank passes the state on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic

ROWS = ("T", "Sq", "Sk")
"""Axes of tokens; the queries and keys of a rank are of the same ones."""
PLACE = {"before": "_rows_before", "after": "_rows_after"}
"""Params that say where among all rows a rank's own lie -> names that each call gives the numbers by."""


@dataclass(frozen=True)
class Cut:
    """One rank's part. of: for each sequence here, the number that it has in the whole call; -1 for an empty one that
    stands where a rank has none. lengths: their rows here, None in a plain batch. begins, ends: whether the first and
    the last row of it lie here. before, after: the ranks that hold what comes before the first of them, and after the
    last, nearest rank last and first. spans: the most ranks that any sequence of the call lies on. total: sequences of
    the whole call. rows: of each rank, where a stage needs those of all.
    """

    of: tuple[int, ...]
    lengths: tuple[int, ...] | None
    begins: tuple[bool, ...]
    ends: tuple[bool, ...]
    before: range
    after: range
    spans: int
    total: int
    rows: tuple[int, ...] | None = None

    @property
    def lanes(self) -> int:
        """Sequences that may cross a border of this rank at once."""
        return self.total if self.lengths is None else 1


def plain_cut(batch: int, rank: int, ranks: int) -> Cut:
    """Of a plain batch: every sequence lies on every rank."""
    of, first, last = tuple(range(batch)), rank == 0, rank == ranks - 1
    return Cut(of, None, (first,) * batch, (last,) * batch, range(rank), range(rank + 1, ranks), ranks, batch)


def rows_cut(rows: tuple[int, ...], rank: int) -> Cut:
    """Of an op without states, whose stages need the rows of all ranks."""
    ranks = len(rows)
    return Cut((), None, (), (), range(rank), range(rank + 1, ranks), ranks, 0, rows)


def packed_cut(lengths: Sequence[int], rows: Sequence[int], rank: int) -> Cut:
    """Of packed sequences. lengths: of the whole sequences. rows: of each rank."""
    held = ranks_of(lengths, rows)
    of = tuple(n for n, ranks in enumerate(held) if rank in ranks)
    return cut_of(rank, of, held, [0, *accumulate(lengths)], [0, *accumulate(rows)], most(held))


def packed_cuts(lengths: Sequence[int], rows: Sequence[int]) -> list[Cut]:
    """Those of all ranks."""
    held, of = ranks_of(lengths, rows), [[] for _ in rows]
    for n, ranks in enumerate(held):
        for rank in ranks:
            of[rank].append(n)
    starts, borders, spans = [0, *accumulate(lengths)], [0, *accumulate(rows)], most(held)
    return [cut_of(rank, tuple(mine), held, starts, borders, spans) for rank, mine in enumerate(of)]


def cut_of(rank: int, of: tuple[int, ...], held: list[range], starts: list[int], borders: list[int], spans: int) -> Cut:
    """of: the sequences that lie on the rank; held: the ranks that each lies on."""
    low, high = borders[rank], borders[rank + 1]
    if not of:
        return Cut((-1,), (0,), (True,), (True,), range(0), range(0), spans, len(held))
    return Cut(
        of=of,
        lengths=tuple(max(0, min(starts[n + 1], high) - max(starts[n], low)) for n in of),
        begins=tuple(held[n][0] == rank for n in of),
        ends=tuple(held[n][-1] == rank for n in of),
        before=range(held[of[0]][0], rank),
        after=range(rank + 1, held[of[-1]][-1] + 1),
        spans=spans,
        total=len(held),
    )


def ranks_of(lengths: Sequence[int], rows: Sequence[int]) -> list[range]:
    """The ranks that each sequence lies on; one without rows where its first row would lie, at the end on the last."""
    ends, found, first, start = [*accumulate(rows)], [], 0, 0
    for length in lengths:
        while first < len(rows) - 1 and ends[first] <= start:
            first += 1
        last = first
        while last < len(rows) - 1 and ends[last] < start + length:
            last += 1
        found.append(range(first, last + 1))
        start += length
    return found


def row_axis(axes: Sequence) -> int | None:
    """The place of the axis whose rows lie on the ranks; None where every rank has the whole."""
    return next((place for place, axis in enumerate(axes) if axis in ROWS), None)


def tokens_of(sizes: Mapping[str, int]) -> int:
    """How many rows there are, by the sizes of an op's axes. Raises ChunkwiseError where queries and keys differ."""
    found = {axis: sizes[axis] for axis in ROWS if axis in sizes}
    if len({*found.values()}) > 1:
        each = ", ".join(f"{axis} = {size}" for axis, size in found.items())
        message = f"{each}: queries and keys that are cut across ranks are of the same rows"
        raise ChunkwiseError(Diagnostic(codes.SIZE, message, help="give both the same number"))
    return next(iter(found.values()))


def most(held: Sequence[range]) -> int:
    return max([0, *(len(ranks) for ranks in held)])


def even_rows(tokens: int, ranks: int) -> tuple[int, ...]:
    """Rows of each rank when nobody says otherwise: the same number, the first ranks one more where that is left."""
    return tuple(tokens // ranks + (rank < tokens % ranks) for rank in range(ranks))
