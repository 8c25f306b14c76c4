"""Chunk sums of a gate per channel, and the scores under them, in one kernel for Hopper in 16 bits.

A program goes from chunk to chunk. What the next one reads is copied to shared memory meanwhile, and while a product
runs the rows of the next size of blocks are made.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from ._prescan_sm90 import (
    BASE,
    block_row,
    copy_chunk,
    from_other_lane,
    middle_row,
    number_of_lane,
    offsets_of,
    place,
    rows_of,
    steps_of,
    store_rows,
    sum_before,
    sum_over_channels,
    sums_of,
    with_halves,
    with_part,
)
from .gla_intra_sm90 import across_blocks, decayed, stacked


@gluon.jit
def pairs_in_blocks(b_q, b_k, steps):
    """Sums over K of the rows of each block, 36 of them: those of 32 and of 4, [blocks, 32] each. Row i has i + 1, its
    query's with the keys so far, which take one step of decay with each row."""
    keys, sums = (), ()
    for i in gl.static_range(BASE):
        b_f = gl.exp2(steps[i])
        x_q = b_q[i].to(gl.float32)
        x_k = b_k[i].to(gl.float32)
        more = ()
        for j in gl.static_range(i):
            more = more + (keys[j] * b_f,)
            sums = with_part(sums, sum_over_channels(x_q * more[j]), i * (i + 1) // 2 + j)
        sums = with_part(sums, sum_over_channels(x_q * x_k), i * (i + 1) // 2 + i)
        keys = more + (x_k,)
    b_x = sums[1]
    for i_m in gl.static_range(3):
        b_x += from_other_lane(b_x, 4 >> i_m)
    return sums[0], b_x


@gluon.jit
def store_in_blocks(A, sums, scale, HV, n, C: gl.constexpr):
    """The blocks of 8 rows on the diagonal: each number, and a zero in the mirrored place."""
    W: gl.constexpr = sums[0].shape[0]
    P: gl.constexpr = sums[0].type.layout
    o_g = gl.arange(0, W, gl.SliceLayout(1, P))[:, None] * BASE
    o_l = number_of_lane(gl.arange(0, 32, gl.SliceLayout(0, P)))
    for e in gl.static_range(2):
        m_l = o_l < 32 - 28 * e
        o_s = o_l + 32 * e
        o_i = o_s * 0
        for i in gl.static_range(1, BASE):
            o_i += (o_s >= i * (i + 1) // 2).to(gl.int32)
        o_j = o_s - o_i * (o_i + 1) // 2
        m_0 = m_l & (o_j < o_i)
        o_i = o_g + o_i[None, :]
        o_j = o_g + o_j[None, :]
        b_A = (scale * sums[e]).to(A.dtype.element_ty)
        gl.store(A + (o_i * (HV * C) + o_j), b_A, mask=m_l[None, :] & (o_i < n))
        gl.store(A + (o_j * (HV * C) + o_i), gl.zeros_like(b_A), mask=m_0[None, :] & (o_j < n))


@gluon.jit
def times(rows, b_f):
    """Rows times what their block has."""
    found = ()
    for r in gl.static_range(BASE):
        found = found + (rows[r] * b_f,)
    return found


@gluon.jit
def start_product(s_x, M: gl.constexpr):
    C: gl.constexpr = s_x.shape[0]
    zero = gl.zeros([C, C], gl.float32, M)
    return warpgroup_mma(s_x, s_x.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def store_scores(A, b_A, scale, HV, n, M: gl.constexpr):
    """scale times the lower triangle, without the blocks of 8 rows on the diagonal, which are there."""
    C: gl.constexpr = b_A.shape[0]
    W: gl.constexpr = gl.num_warps()
    L: gl.constexpr = gl.BlockedLayout([1, C // W], [W // 2, 64 // W], [W, 1], [1, 0])
    o_i = gl.arange(0, C, gl.SliceLayout(1, M))
    o_j = gl.arange(0, C, gl.SliceLayout(0, M))
    b_A = gl.where(o_i[:, None] > o_j[None, :], scale * b_A, 0.0).to(A.dtype.element_ty)
    o_i = gl.arange(0, C, gl.SliceLayout(1, L))[:, None]
    o_j = gl.arange(0, C, gl.SliceLayout(0, L))[None, :]
    m = (o_i < n) & (o_i // BASE != o_j // BASE)
    gl.store(A + (o_i * (HV * C) + o_j), gl.convert_layout(b_A, L), mask=m)


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV", "COUNT"])
def gla_prescan_sm90_kernel(
    q, k, x, y, A, qg, kg, b_end, scale, cu_seqlens, chunk_table, T, NT, H, HV, COUNT,
    K: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """y the chunk sums of max(x log2 e, -126), A[i, j] = scale sum over K of q_i k_j 2^(y_i - y_j) for j <= i, else 0,
    of every chunk and value head, COUNT of them.

    Blocks of 8 rows pair by pair, in float32. Then for each size of blocks what their second halves read of the first,
    decayed to and from the last row before they meet: the product over the whole chunk stands where rows are further
    apart than the sizes before it reach.
    """
    W: gl.constexpr = C // BASE
    L: gl.constexpr = gl.BlockedLayout([1, K // 32], [1, 32], [W, 1], [1, 0])
    M: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, W // 4], [16, C * 4 // W, 16])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    IO: gl.constexpr = k.dtype.element_ty
    o_g = gl.arange(0, W, gl.SliceLayout(1, L)) * BASE
    o_k = gl.arange(0, K, gl.SliceLayout(0, L))
    offsets = offsets_of(o_g, o_k, HV * K)
    s_q = gl.allocate_shared_memory(IO, [C, K], R)
    s_k = gl.allocate_shared_memory(IO, [C, K], R)
    s_x = gl.allocate_shared_memory(gl.float32, [C, K], R)
    s_t = gl.allocate_shared_memory(gl.float32, [W, K], R)
    s_p = gl.allocate_shared_memory(gl.float32, [W, K], R)
    # two tiles by turns: what one product reads is overwritten only after all warps have come to the next
    s_0 = gl.allocate_shared_memory(IO, [C, K], S)
    s_1 = gl.allocate_shared_memory(IO, [C, K], S)
    s_y = (s_0, s_1)

    first = gl.program_id(0)
    step = gl.num_programs(0)
    i_hv, i_slot, t, n = place(first, cu_seqlens, chunk_table, T, NT, HV, C)
    copy_chunk(s_q, s_k, s_x, q, k, x, i_hv, t, n, H, HV)
    for i in range(first, COUNT, step):
        row = t * HV + i_hv
        p_end = b_end + (i_slot * HV + i_hv) * K
        # after the last one that one again, for nobody
        i_next = gl.minimum(i + step, COUNT - 1)
        next_hv, i_slot, next_t, next_n = place(i_next, cu_seqlens, chunk_table, T, NT, HV, C)
        async_copy.wait_group(0)
        steps = steps_of(rows_of(s_x, L))
        b_q = rows_of(s_q, L)
        b_k = rows_of(s_k, L)
        b_y = sums_of(steps)
        b_t = b_y[BASE - 1]
        s_t.store(b_t)
        b_from = sum_before(s_t, o_g, L)
        # all warps have what they read
        copy_chunk(s_q, s_k, s_x, q, k, x, next_hv, next_t, next_n, H, HV)
        store_in_blocks(A + row * C, pairs_in_blocks(b_q, b_k, steps), scale, HV, n, C)
        b_to = b_from + b_t
        s_p.store(b_to)
        q_d = decayed(b_q, b_y, 0.0, 1)
        k_d = decayed(b_k, b_y, b_t, -1)
        if y is not None:
            rows = ()
            for r in gl.static_range(BASE):
                rows = rows + (b_from + b_y[r],)
            store_rows(y + row * K, rows, offsets, o_g, n)
        for i_l in gl.static_range(W.bit_length() - 1):
            m_q = ((o_g & (BASE << i_l)) > 0)[:, None]
            b_m = middle_row(s_p, 1 << i_l, L)
            b_f = gl.exp2(gl.where(m_q, b_from - b_m, b_m - b_to))
            s_y[i_l % 2].store(stacked(across_blocks(q_d, k_d, m_q, b_f, IO)))
            fence_async_shared()
            if i_l == 0:
                c_A = start_product(s_y[0], M)
            else:
                b_more = warpgroup_mma_wait(0, [c_A])
                c_A = start_product(s_y[i_l % 2], M)
                if i_l == 1:
                    b_A = b_more
                else:
                    b_A = with_halves(b_A, b_more, BASE << (i_l - 1), M)
            if i_l == 0:
                store_rows(qg + row * K, times(q_d, scale * gl.exp2(b_from)), offsets, o_g, n)
                b_last = block_row(s_p, W - 1, L)
                gl.store(p_end + (o_g * 0)[:, None] + o_k[None, :], b_last, mask=((o_g == 0) & (n > 0))[:, None])
            if i_l == 1:
                store_rows(kg + row * K, times(k_d, gl.exp2(b_last - b_to)), offsets, o_g, n)
        b_A = with_halves(b_A, warpgroup_mma_wait(0, [c_A]), C // 2, M)
        store_scores(A + row * C, b_A, scale, HV, n, M)
        i_hv, t, n = next_hv, next_t, next_n
    async_copy.wait_group(0)
