"""How tokens are cut into sequences and chunks, as launchers see it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seqs:
    """The sequences of one call. Built and owned by the runner; launchers only pass it on to kernels.

    N: sequences (= B for plain batches).
    T: rows of the token axis.
    C: chunk length.
    NT: chunk slots per batch row: ceil(T / C), or for packed sequences the capacity (T + N (C - 1)) // C.
    cu_seqlens: [N + 1] int32 or int64, first row of each sequence and the end; None for plain batches.
    chunk_table: [NT, 2] int32, (sequence, chunk inside it) of each slot; sequence -1 in slots not used.
    chunk_offsets: [N + 1] int32, first slot of each sequence.
    lengths: host lengths, for references; launches hold for any lengths and are handed None.
    """

    N: int
    T: int
    C: int
    NT: int
    cu_seqlens: Any = None
    chunk_table: Any = None
    chunk_offsets: Any = None
    lengths: tuple[int, ...] | None = None

    @property
    def packed(self) -> bool:
        return self.cu_seqlens is not None
