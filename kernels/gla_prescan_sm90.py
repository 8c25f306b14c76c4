"""Chunk sums of a gate per channel, and the scores under them, in one kernel for Hopper in 16 bits.

A program goes from chunk to chunk. What the next one reads is copied to shared memory meanwhile, and while a product
runs the rows of the next size of blocks are made.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from .gla_intra_sm90 import BASE, across_blocks, decayed, inside_blocks, stacked, store_blocks

LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def copy_rows(s_x, x, stride, n):
    """The n rows of x, ``stride`` apart, to a shared tile, 16 bytes at a time; past them the last one again."""
    C: gl.constexpr = s_x.shape[0]
    K: gl.constexpr = s_x.shape[1]
    SIZE: gl.constexpr = 128 // s_x.dtype.primitive_bitwidth
    L: gl.constexpr = gl.BlockedLayout([1, SIZE], [32 * SIZE // K, K // SIZE], [gl.num_warps(), 1], [1, 0])
    o_r = gl.minimum(gl.arange(0, C, gl.SliceLayout(1, L)), n - 1)
    o_k = gl.arange(0, K, gl.SliceLayout(0, L))
    async_copy.async_copy_global_to_shared(s_x, x + (o_r[:, None] * stride + o_k[None, :]))


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
def sums_inside_blocks(b_x, o_g, n):
    """Of each block's rows, the n of the chunk alone: sums of max(x log2 e, -126) from the block's first row on."""
    sums = ()
    for r in gl.static_range(BASE):
        # not a maximum, which would make -126 of a nan
        b_d = b_x[r] * LOG2_E
        b_d = gl.where(b_d < -126.0, -126.0, b_d)
        b_d = gl.where((o_g + r < n)[:, None], b_d, 0.0)
        if r > 0:
            b_d = sums[r - 1] + b_d
        sums = sums + (b_d,)
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
def copy_chunk(s_q, s_k, s_x, q, k, x, i_hv, t, n, H, HV):
    """What the scores of a chunk read, on its way; of a slot without rows, the first token's."""
    K: gl.constexpr = s_k.shape[1]
    n = gl.maximum(n, 1)
    row_h = t * H + i_hv // (HV // H)
    copy_rows(s_x, x + (t * HV + i_hv) * K, HV * K, n)
    copy_rows(s_k, k + row_h * K, H * K, n)
    copy_rows(s_q, q + row_h * K, H * K, n)
    async_copy.commit_group()


@gluon.jit
def start_product(s_x, s_y, M: gl.constexpr):
    C: gl.constexpr = s_x.shape[0]
    zero = gl.zeros([C, C], gl.float32, M)
    return warpgroup_mma(s_x, s_y.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def with_halves(b_A, b_more, S: gl.constexpr, M: gl.constexpr):
    """b_A, and b_more where the second halves of blocks of 2 S rows read the first; anything above the diagonal."""
    C: gl.constexpr = b_A.shape[1]
    o_i = gl.arange(0, C, gl.SliceLayout(1, M))
    o_j = gl.arange(0, C, gl.SliceLayout(0, M))
    return gl.where(((o_i & S) > 0)[:, None] & ((o_j & S) == 0)[None, :], b_more, b_A)


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV", "COUNT"])
def gla_prescan_sm90_kernel(
    q, k, x, y, A, qg, kg, b_end, scale, cu_seqlens, chunk_table, T, NT, H, HV, COUNT,
    K: gl.constexpr, C: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    """y the chunk sums of max(x log2 e, -126), A[i, j] = scale sum over K of q_i k_j 2^(y_i - y_j) for j <= i, else 0,
    of every chunk and value head, COUNT of them.

    As gla_intra_sm90, but blocks decay to and from the last row before their second half.
    """
    W: gl.constexpr = C // BASE
    SIZES: gl.constexpr = 3 + W.bit_length() - 1
    L: gl.constexpr = gl.BlockedLayout([1, K // 32], [1, 32], [W, 1], [1, 0])
    M: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, W // 4], [16, C * 4 // W, 16])
    L_A: gl.constexpr = gl.BlockedLayout([1, 8], [256 // C, C // 8], [W, 1], [1, 0])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    IO: gl.constexpr = k.dtype.element_ty
    o_g = gl.arange(0, W, gl.SliceLayout(1, L)) * BASE
    o_k = gl.arange(0, K, gl.SliceLayout(0, L))
    s_q = gl.allocate_shared_memory(IO, [SLOTS, C, K], S)
    s_k = gl.allocate_shared_memory(IO, [SLOTS, C, K], S)
    s_x = gl.allocate_shared_memory(gl.float32, [SLOTS, C, K], R)
    s_t = gl.allocate_shared_memory(gl.float32, [W, K], R)
    s_p = gl.allocate_shared_memory(gl.float32, [W, K], R)
    # two tiles by turns: what one product reads is overwritten only after all warps have come to the next
    s_0 = gl.allocate_shared_memory(IO, [C, K], S)
    s_1 = gl.allocate_shared_memory(IO, [C, K], S)
    s_y = (s_0, s_1)

    first = gl.program_id(0)
    step = gl.num_programs(0)
    i_hv, i_slot, t, n = place(first, cu_seqlens, chunk_table, T, NT, HV, C)
    copy_chunk(s_q.index(0), s_k.index(0), s_x.index(0), q, k, x, i_hv, t, n, H, HV)
    slot = first * 0
    for i in range(first, COUNT, step):
        row = t * HV + i_hv
        next_hv, next_slot, next_t, next_n = place(gl.minimum(i + step, COUNT - 1), cu_seqlens, chunk_table, T, NT, HV, C)
        async_copy.wait_group(0)
        if SLOTS == 2:
            copy_chunk(
                s_q.index(1 - slot), s_k.index(1 - slot), s_x.index(1 - slot), q, k, x, next_hv, next_t, next_n, H, HV
            )
        b_y = sums_inside_blocks(rows_of(s_x.index(slot), L), o_g, n)
        b_t = b_y[BASE - 1]
        s_t.store(b_t)
        b_q = rows_of(s_q.index(slot), L)
        b_k = rows_of(s_k.index(slot), L)
        c_A = start_product(s_q.index(slot), s_k.index(slot), M)
        for i_l in gl.static_range(SIZES):
            if i_l < 3:
                rows = inside_blocks(b_q, b_k, b_y, 1 << i_l)
            else:
                m_q = ((o_g & (1 << i_l)) > 0)[:, None]
                b_m = middle_row(s_p, 1 << (i_l - 3), L)
                rows = across_blocks(q_d, k_d, m_q, gl.exp2(gl.where(m_q, b_from - b_m, b_m - b_to)), IO)
            s_y[i_l % 2].store(stacked(rows))
            fence_async_shared()
            c_A = warpgroup_mma_wait(0, [c_A])
            if i_l == 0:
                b_A = c_A
            else:
                b_A = with_halves(b_A, c_A, 1 << (i_l - 1), M)
            c_A = start_product(s_y[i_l % 2], s_y[i_l % 2], M)
            if i_l == 0:
                if SLOTS == 1:
                    copy_chunk(s_q.index(0), s_k.index(0), s_x.index(0), q, k, x, next_hv, next_t, next_n, H, HV)
                b_from = sum_before(s_t, o_g, L)
                b_to = b_from + b_t
                s_p.store(b_to)
            if i_l == 1:
                b_last = block_row(s_p, W - 1, L)
                if y is not None:
                    for r in gl.static_range(BASE):
                        p_y = y + row * K + (o_g + r)[:, None] * (HV * K) + o_k[None, :]
                        gl.store(p_y, b_from + b_y[r], mask=(o_g + r < n)[:, None])
                p_end = b_end + (i_slot * HV + i_hv) * K + (o_g * 0)[:, None] + o_k[None, :]
                gl.store(p_end, b_last, mask=((o_g == 0) & (n > 0))[:, None])
            if i_l == 2:
                q_d = decayed(b_q, b_y, 0.0, 1)
                k_d = decayed(b_k, b_y, b_t, -1)
                store_blocks(qg + row * K, q_d, scale * gl.exp2(b_from), o_g, o_k, HV * K, n)
                store_blocks(kg + row * K, k_d, gl.exp2(b_last - b_to), o_g, o_k, HV * K, n)
        b_A = with_halves(b_A, warpgroup_mma_wait(0, [c_A]), C // 2, M)
        o_i = gl.arange(0, C, gl.SliceLayout(1, M))
        o_j = gl.arange(0, C, gl.SliceLayout(0, M))
        b_A = gl.where(o_i[:, None] >= o_j[None, :], scale * b_A, 0.0).to(IO)
        o_i = gl.arange(0, C, gl.SliceLayout(1, L_A))
        o_j = gl.arange(0, C, gl.SliceLayout(0, L_A))
        p_A = A + row * C + o_i[:, None] * (HV * C) + o_j[None, :]
        gl.store(p_A, gl.convert_layout(b_A, L_A), mask=(o_i < n)[:, None])
        i_hv, i_slot, t, n = next_hv, next_slot, next_t, next_n
        if SLOTS == 2:
            slot = 1 - slot
    async_copy.wait_group(0)
