"""Chunk sums of a gate per channel, scores and Gram matrix under them, in one kernel for Hopper in 16 bits.

As gla_prescan_sm90, with a second product at each size of blocks: queries and keys in one tile of 2 C rows.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from .gla_intra_sm90 import BASE, stacked
from .gla_prescan_sm90 import block_row, copy_chunk, middle_row, place, rows_of, sum_before, sums_inside_blocks


@gluon.jit
def factors_inside(b_y, H: gl.constexpr):
    """What rows of blocks of 2 H rows decay by to or from the first of the second half; 1.0 for that one."""
    found = ()
    for r in gl.static_range(BASE):
        if r % (2 * H) == H:
            found = found + (1.0,)
        else:
            found = found + (gl.exp2(b_y[r] - b_y[r & -H] if r & H else b_y[(r & -H) + H] - b_y[r]),)
    return found


@gluon.jit
def factors(b_y, b_sign, b_c):
    """2^(sign y + c)."""
    found = ()
    for r in gl.static_range(BASE):
        found = found + (gl.exp2(gl.fma(b_y[r], b_sign, b_c)),)
    return found


@gluon.jit
def scaled(b_x, b_f, H: gl.constexpr = BASE):
    """Rows times factors, in the rows' dtype; those in the middle of blocks of 2 H rows as they are."""
    rows = ()
    for r in gl.static_range(BASE):
        if r % (2 * H) == H:
            rows = rows + (b_x[r],)
        else:
            rows = rows + ((b_x[r].to(gl.float32) * b_f[r]).to(b_x[r].dtype),)
    return rows


@gluon.jit
def above(b_q, b_k):
    """[2 C, K]: b_q above b_k, both [C, K]."""
    C: gl.constexpr = b_q.shape[0]
    K: gl.constexpr = b_q.shape[1]
    return gl.reshape(gl.permute(gl.join(b_q, b_k), (2, 0, 1)), [2 * C, K])


@gluon.jit
def store_rows(x, rows, o_g, o_k, stride, n):
    for r in gl.static_range(BASE):
        o_r = o_g + r
        gl.store(x + o_r[:, None] * stride + o_k[None, :], rows[r], mask=(o_r < n)[:, None])


@gluon.jit
def start_product(s_x, M: gl.constexpr):
    """A tile of queries above keys times its keys."""
    C: gl.constexpr = s_x.shape[0] // 2
    zero = gl.zeros([2 * C, C], gl.float32, M)
    return warpgroup_mma(s_x, s_x.slice(C, C).permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def with_halves(b_A, b_more, S: gl.constexpr, M: gl.constexpr):
    """b_A, and b_more where the second halves of blocks of 2 S rows read the first; anything above the diagonal."""
    C: gl.constexpr = b_A.shape[1]
    o_i = gl.arange(0, 2 * C, gl.SliceLayout(1, M))
    o_j = gl.arange(0, C, gl.SliceLayout(0, M))
    return gl.where(((o_i & S) > 0)[:, None] & ((o_j & S) == 0)[None, :], b_more, b_A)


@gluon.jit
def store_scores(A_qk, A_kk, beta, b_A, scale, HV, n, M: gl.constexpr):
    """b_A [2 C, C]: above scale times the lower triangle, below that without the diagonal, beta times each row."""
    C: gl.constexpr = b_A.shape[1]
    W: gl.constexpr = gl.num_warps()
    o_i = gl.arange(0, 2 * C, gl.SliceLayout(1, M))
    o_r = (o_i % C)[:, None]
    o_j = gl.arange(0, C, gl.SliceLayout(0, M))[None, :]
    b_f = gl.load(beta + gl.minimum(o_i % C, n - 1) * HV, mask=n > 0, other=0.0).to(gl.float32)
    b_f = gl.where(o_i < C, scale, b_f)
    b_A = gl.where(o_r > o_j - gl.where(o_i < C, 1, 0)[:, None], b_f[:, None] * b_A, 0.0)
    p = o_r * (HV * C) + o_j
    m = o_r < n
    gl.store(A_qk + p, b_A.to(A_qk.dtype.element_ty), mask=m & (o_i < C)[:, None])
    gl.store(A_kk + p, b_A, mask=m & (o_i >= C)[:, None])


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV", "COUNT"])
def kda_prescan_sm90_kernel(
    q, k, beta, x, y, A_qk, A_kk, qg, kb, kg, b_end, scale, cu_seqlens, chunk_table, T, NT, H, HV, COUNT,
    K: gl.constexpr, C: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    """y the chunk sums of max(x log2 e, -126), A_qk[i, j] = scale sum over K of q_i k_j 2^(y_i - y_j) for j <= i,
    A_kk[i, j] = beta_i sum of k_i k_j 2^(y_i - y_j) for j < i, else 0, of every chunk and value head, COUNT of them.
    """
    W: gl.constexpr = C // BASE
    SIZES: gl.constexpr = 3 + W.bit_length() - 1
    L: gl.constexpr = gl.BlockedLayout([1, K // 32], [1, 32], [W, 1], [1, 0])
    M: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, C, 16])
    L_A: gl.constexpr = gl.BlockedLayout([1, 8], [256 // C, C // 8], [W, 1], [1, 0])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    IO: gl.constexpr = k.dtype.element_ty
    o_g = gl.arange(0, W, gl.SliceLayout(1, L)) * BASE
    o_k = gl.arange(0, K, gl.SliceLayout(0, L))
    s_qk = gl.allocate_shared_memory(IO, [SLOTS, 2 * C, K], S)
    s_x = gl.allocate_shared_memory(gl.float32, [SLOTS, C, K], R)
    s_t = gl.allocate_shared_memory(gl.float32, [W, K], R)
    s_p = gl.allocate_shared_memory(gl.float32, [W, K], R)
    # two tiles by turns: what one product reads is overwritten only after all warps have come to the next
    s_0 = gl.allocate_shared_memory(IO, [2 * C, K], S)
    s_1 = gl.allocate_shared_memory(IO, [2 * C, K], S)
    s_y = (s_0, s_1)

    first = gl.program_id(0)
    step = gl.num_programs(0)
    i_hv, i_slot, t, n = place(first, cu_seqlens, chunk_table, T, NT, HV, C)
    copy_chunk(s_qk.index(0).slice(0, C), s_qk.index(0).slice(C, C), s_x.index(0), q, k, x, i_hv, t, n, H, HV)
    slot = first * 0
    for i in range(first, COUNT, step):
        row = t * HV + i_hv
        next_hv, next_slot, next_t, next_n = place(gl.minimum(i + step, COUNT - 1), cu_seqlens, chunk_table, T, NT, HV, C)
        async_copy.wait_group(0)
        if SLOTS == 2:
            copy_chunk(
                s_qk.index(1 - slot).slice(0, C), s_qk.index(1 - slot).slice(C, C), s_x.index(1 - slot), q, k, x, next_hv, next_t, next_n, H, HV
            )
        b_y = sums_inside_blocks(rows_of(s_x.index(slot), L), o_g, n)
        b_t = b_y[BASE - 1]
        s_t.store(b_t)
        c_A = start_product(s_qk.index(slot), M)
        for i_l in gl.static_range(SIZES):
            if i_l < 3:
                b_f = factors_inside(b_y, 1 << i_l)
            else:
                # to the middle from a block in the first half, from there to one in the second
                b_sign = gl.where((o_g & (1 << i_l)) > 0, 1.0, -1.0)[:, None]
                b_f = factors(b_y, b_sign, b_sign * (b_from - middle_row(s_p, 1 << (i_l - 3), L)))
            b_q = rows_of(s_qk.index(slot).slice(0, C), L)
            b_k = rows_of(s_qk.index(slot).slice(C, C), L)
            # of queries those in the second halves count, whatever the others are
            s_y[i_l % 2].store(above(stacked(scaled(b_q, b_f, 1 << i_l)), stacked(scaled(b_k, b_f, 1 << i_l))))
            fence_async_shared()
            c_A = warpgroup_mma_wait(0, [c_A])
            if i_l == 0:
                b_A = c_A
            else:
                b_A = with_halves(b_A, c_A, 1 << (i_l - 1), M)
            c_A = start_product(s_y[i_l % 2], M)
            if i_l == 0:
                if SLOTS == 1:
                    copy_chunk(s_qk.index(0).slice(0, C), s_qk.index(0).slice(C, C), s_x.index(0), q, k, x, next_hv, next_t, next_n, H, HV)
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
                b_f = factors(b_y, 1.0, b_from)
                b_q = rows_of(s_qk.index(slot).slice(0, C), L)
                b_k = rows_of(s_qk.index(slot).slice(C, C), L)
                store_rows(kb + row * K, scaled(b_k, b_f), o_g, o_k, HV * K, n)
                b_s = ()
                for r in gl.static_range(BASE):
                    b_s = b_s + (scale * b_f[r],)
                store_rows(qg + row * K, scaled(b_q, b_s), o_g, o_k, HV * K, n)
                store_rows(kg + row * K, scaled(b_k, factors(b_y, -1.0, b_last - b_from)), o_g, o_k, HV * K, n)
        b_A = with_halves(b_A, warpgroup_mma_wait(0, [c_A]), C // 2, M)
        store_scores(A_qk + row * C, A_kk + row * C, beta + row, b_A, scale, HV, n, M)
        i_hv, i_slot, t, n = next_hv, next_slot, next_t, next_n
        if SLOTS == 2:
            slot = 1 - slot
    async_copy.wait_group(0)
