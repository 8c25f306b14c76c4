"""Where a chunk's or a sequence's rows lie, for plain batches and for packed sequences."""

import triton
import triton.language as tl


@triton.jit
def chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C: tl.constexpr):
    """Rows of chunk slot i_slot: (sequence or -1, its first row as int64, its length, the chunk's first row in it)."""
    if cu_seqlens is None:
        i_n = (i_slot // NT).to(tl.int32)
        o_t = (i_slot % NT).to(tl.int32) * C
        bos = i_n.to(tl.int64) * T
        length = T
    else:
        i_n = tl.load(chunk_table + i_slot * 2)
        m_n = i_n >= 0
        o_t = tl.load(chunk_table + i_slot * 2 + 1) * C
        bos = tl.load(cu_seqlens + i_n, mask=m_n, other=0).to(tl.int64)
        length = (tl.load(cu_seqlens + i_n + 1, mask=m_n, other=0).to(tl.int64) - bos).to(tl.int32)
    return i_n, bos, length, o_t


@triton.jit
def sequence_span(i_n, cu_seqlens, T):
    """Rows of sequence i_n: (its first row as int64, its length)."""
    if cu_seqlens is None:
        bos = i_n.to(tl.int64) * T
        length = T
    else:
        bos = tl.load(cu_seqlens + i_n).to(tl.int64)
        length = (tl.load(cu_seqlens + i_n + 1).to(tl.int64) - bos).to(tl.int32)
    return bos, length


@triton.jit
def after_forgotten(skipped, bos, length, slot, C: tl.constexpr):
    """A sequence without its first chunks, as many as are skipped."""
    return bos + skipped * C, length - skipped * C, slot + skipped


@triton.jit
def sequence_rows(i_n, cu_seqlens, chunk_offsets, T, NT):
    """Rows of sequence i_n: (its first row as int64, its length, its first chunk slot as int64)."""
    bos, length = sequence_span(i_n, cu_seqlens, T)
    if cu_seqlens is None:
        slot = i_n.to(tl.int64) * NT
    else:
        slot = tl.load(chunk_offsets + i_n).to(tl.int64)
    return bos, length, slot
