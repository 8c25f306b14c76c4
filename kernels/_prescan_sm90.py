"""What the prescans under a decay per channel share, for Hopper: chunks on their way to shared memory, sums of decay,
pairs of rows inside blocks of 8.

A warp holds a block of 8 rows as 8 tensors, the r-th of which has row r of each block: sums over rows stay in a lane,
and which rows of a block decay into which is known when compiled.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

BASE = gl.constexpr(8)
"""Rows of a block."""
LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def place(i, cu_seqlens, chunk_table, T, NT, HV, C: gl.constexpr):
    """Of the i-th chunk: its head, its slot, its first token and how many rows it has."""
    i_hv = i % HV
    i_slot = (i // HV).to(gl.int64)
    if cu_seqlens is None:
        i_n = (i_slot // NT).to(gl.int32)
        o_t = (i_slot % NT).to(gl.int32) * C
        bos = i_n.to(gl.int64) * T
        length = T
    else:
        i_n = gl.load(chunk_table + i_slot * 2)
        o_t = gl.load(chunk_table + i_slot * 2 + 1) * C
        m_n = i_n >= 0
        bos = gl.load(cu_seqlens + i_n, mask=m_n, other=0).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1, mask=m_n, other=0).to(gl.int64) - bos).to(gl.int32)
        o_t = gl.where(m_n, o_t, 0)
    return i_hv, i_slot, bos + o_t, gl.minimum(length - o_t, C)


@gluon.jit
def copy_rows(s_x, x, stride, n, ZERO: gl.constexpr):
    """The n rows of x, ``stride`` apart, to a shared tile, 16 bytes at a time; past them zeros, or the last one."""
    C: gl.constexpr = s_x.shape[0]
    K: gl.constexpr = s_x.shape[1]
    SIZE: gl.constexpr = 128 // s_x.dtype.primitive_bitwidth
    L: gl.constexpr = gl.BlockedLayout([1, SIZE], [32 * SIZE // K, K // SIZE], [gl.num_warps(), 1], [1, 0])
    o_r = gl.arange(0, C, gl.SliceLayout(1, L))
    o_k = gl.arange(0, K, gl.SliceLayout(0, L))
    if ZERO:
        p = x + (o_r[:, None] * stride + o_k[None, :])
        async_copy.async_copy_global_to_shared(s_x, p, mask=(o_r < n)[:, None])
    else:
        async_copy.async_copy_global_to_shared(s_x, x + (gl.minimum(o_r, n - 1)[:, None] * stride + o_k[None, :]))


@gluon.jit
def copy_chunk(s_q, s_k, s_x, q, k, x, i_hv, t, n, H, HV):
    """What a chunk's scores read, on its way: of a slot without rows, keys and queries of the first token. Rows that
    are not there have zeros for x."""
    K: gl.constexpr = s_k.shape[1]
    row_h = t * H + i_hv // (HV // H)
    copy_rows(s_x, x + (t * HV + i_hv) * K, HV * K, n, True)
    copy_rows(s_k, k + row_h * K, H * K, gl.maximum(n, 1), False)
    copy_rows(s_q, q + row_h * K, H * K, gl.maximum(n, 1), False)
    async_copy.commit_group()


@gluon.jit
def rows_of(s_x, L: gl.constexpr):
    """BASE tensors [blocks, K] of a shared tile, the r-th of which has row r of each block."""
    W: gl.constexpr = s_x.shape[0] // BASE
    K: gl.constexpr = s_x.shape[1]
    R: gl.constexpr = gl.BlockedLayout([BASE, K // 32], [1, 32], [W, 1], [1, 0])
    rows = (gl.permute(gl.reshape(s_x.load(R), [W, 2, 2, 2, K]), (0, 4, 1, 2, 3)),)
    for i_l in gl.static_range(3):
        halves = ()
        for j in gl.static_range(1 << i_l):
            b_0, b_1 = gl.split(rows[j])
            halves = halves + (b_0, b_1)
        rows = halves
    found = ()
    for r in gl.static_range(BASE):  # the last bit was split first
        found = found + (gl.convert_layout(rows[((r & 1) << 2) | (r & 2) | (r >> 2)], L, assert_trivial=True),)
    return found


@gluon.jit
def offsets_of(o_g, o_k, stride):
    """Where the rows of the blocks lie, o_g the first ones: BASE tensors [blocks, K]."""
    found = ()
    for r in gl.static_range(BASE):
        found = found + ((o_g + r)[:, None] * stride + o_k[None, :],)
    return found


@gluon.jit
def store_rows(x, rows, offsets, o_g, n):
    """The n rows of the chunk."""
    for r in gl.static_range(BASE):
        gl.store(x + offsets[r], rows[r].to(x.dtype.element_ty), mask=(o_g + r < n)[:, None])


@gluon.jit
def steps_of(b_x):
    """max(x log2 e, -126)."""
    steps = ()
    for r in gl.static_range(BASE):
        # not a maximum, which would make -126 of a nan
        b_d = b_x[r] * LOG2_E
        steps = steps + (gl.where(b_d < -126.0, -126.0, b_d),)
    return steps


@gluon.jit
def sums_of(steps):
    """From each block's first row on."""
    sums = (steps[0],)
    for r in gl.static_range(1, BASE):
        sums = sums + (sums[r - 1] + steps[r],)
    return sums


@gluon.jit
def block_row(s_x, j, L: gl.constexpr):
    """Row j of a shared tile [blocks, K], for each block."""
    W: gl.constexpr = s_x.shape[0]
    K: gl.constexpr = s_x.shape[1]
    return s_x.slice(j, 1).load(L).broadcast_to(W, K)


@gluon.jit
def sum_before(s_t, o_g, L: gl.constexpr):
    """The sum of the rows of s_t [blocks, K] before each block's."""
    W: gl.constexpr = s_t.shape[0]
    K: gl.constexpr = s_t.shape[1]
    b_s = gl.zeros([W, K], gl.float32, L)
    for j in gl.static_range(W - 1):
        b_s += gl.where((o_g > j * BASE)[:, None], block_row(s_t, j, L), 0.0)
    return b_s


@gluon.jit
def middle_row(s_x, S: gl.constexpr, L: gl.constexpr):
    """Of each 2 S rows of a shared tile [blocks, K] the last in the first half, in the place of each."""
    W: gl.constexpr = s_x.shape[0]
    K: gl.constexpr = s_x.shape[1]
    P: gl.constexpr = gl.BlockedLayout([1, 1, K // 32], [1, 1, 32], [W // (2 * S), 2 * S, 1], [2, 1, 0])
    b_x = s_x.reshape([W // (2 * S), 2 * S, K]).slice(S - 1, 1, dim=1).load(P)
    b_x = gl.reshape(b_x.broadcast_to(W // (2 * S), 2 * S, K), [W, K])
    return gl.convert_layout(b_x, L, assert_trivial=True)


@gluon.jit
def sum_over_channels(b_x):
    """[blocks, 32]: of the channels that each lane has."""
    W: gl.constexpr = b_x.shape[0]
    K: gl.constexpr = b_x.shape[1]
    return gl.sum(gl.reshape(b_x, [W, 32, K // 32]), axis=2)


@gluon.jit
def from_other_lane(x, BIT: gl.constexpr):
    """x of the lane whose number differs in this bit."""
    asm: gl.constexpr = f"shfl.sync.bfly.b32 $0, $1, {BIT}, 0x1f, 0xffffffff;"
    return gl.inline_asm_elementwise(asm, "=f,f", [x], gl.float32, is_pure=False, pack=1)


@gluon.jit
def from_lane(x, LANE: gl.constexpr):
    """x of one lane, in all of them."""
    asm: gl.constexpr = f"shfl.sync.idx.b32 $0, $1, {LANE}, 0x1f, 0xffffffff;"
    return gl.inline_asm_elementwise(asm, "=f,f", [x], gl.float32, is_pure=False, pack=1)


@gluon.jit
def with_part(sums, b_x, NUMBER: gl.constexpr):
    """Sums over lanes of tensors [blocks, 32], with that of the next one, b_x, the NUMBER-th.

    Of two tensors a lane hands on one and keeps the other, added to what it is handed; of two of these again, up to 32
    that have become one. Bit by bit, the lowest first, their numbers are those of lanes, the highest first.
    """
    sums = sums + (b_x,)
    for i in gl.static_range(5):
        if (NUMBER + 1) % (2 << i) == 0:
            b_0 = sums[len(sums) - 2]
            b_1 = sums[len(sums) - 1]
            o_l = gl.arange(0, 32, gl.SliceLayout(0, b_x.type.layout))
            m_l = ((o_l & (16 >> i)) > 0)[None, :]
            b_x = gl.where(m_l, b_1, b_0) + from_other_lane(gl.where(m_l, b_0, b_1), 16 >> i)
            sums = sums[: len(sums) - 2] + (b_x,)
    return sums


@gluon.jit
def number_of_lane(o_l):
    """Which of 32 tensors' sums with_part leaves in a lane: its bits the other way round."""
    return (o_l & 1) << 4 | (o_l & 2) << 2 | o_l & 4 | o_l >> 2 & 2 | o_l >> 4


@gluon.jit
def with_halves(b_A, b_more, S: gl.constexpr, M: gl.constexpr):
    """b_A, and b_more where the second halves of blocks of 2 S rows read the first; anything above the diagonal."""
    R: gl.constexpr = b_A.shape[0]
    C: gl.constexpr = b_A.shape[1]
    m_i = (gl.arange(0, R, gl.SliceLayout(1, M)) & S) > 0
    m_j = (gl.arange(0, C, gl.SliceLayout(0, M)) & S) == 0
    return gl.where(m_i[:, None] & m_j[None, :], b_more, b_A)
