"""Chunk sums of a gate per channel, scores and Gram matrix under them, in one kernel for Hopper in 16 bits.

As gla_prescan_sm90, with queries and keys in one tile of 2 C rows, and each size of blocks decayed anew: an exponential
for both costs less than what would be kept of either.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from ._prescan_sm90 import (
    BASE,
    LOG2_E,
    block_row,
    copy_chunk,
    from_lane,
    from_other_lane,
    middle_row,
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
from .gla_intra_sm90 import stacked

LOG2_LOG2_E = gl.constexpr(0.5287663729448977)
TO_BF16 = gl.constexpr("cvt.rn.bf16x2.f32 $0, $2, $1;")
TO_FP16 = gl.constexpr("cvt.rn.f16x2.f32 $0, $2, $1;")


@gluon.jit
def pairs_in_blocks(b_q, b_k, steps):
    """Sums over K of the rows of each block: 64 tensors [blocks, 32] of parts, the (8 i + j)-th that of q_i and k_j
    for j <= i, else of k_j and k_i. The keys so far take one step of decay with each row."""
    keys, qk, kk = (), (), ()
    for i in gl.static_range(BASE):
        b_f = gl.exp2(steps[i])
        x_q = b_q[i].to(gl.float32)
        x_k = b_k[i].to(gl.float32)
        more = ()
        for j in gl.static_range(i):
            b_x = keys[j] * b_f
            kk = kk + (sum_over_channels(x_k * b_x),)
            qk = qk + (sum_over_channels(x_q * b_x),)
            more = more + (b_x,)
        qk = qk + (sum_over_channels(x_q * x_k),)
        keys = more + (x_k,)
    found = ()
    for i in gl.static_range(BASE):
        for j in gl.static_range(BASE):
            if j <= i:
                found = found + (qk[i * (i + 1) // 2 + j],)
            else:
                found = found + (kk[j * (j - 1) // 2 + i],)
    return found


@gluon.jit
def sum_over_lanes(parts):
    """Of 64 tensors [blocks, 32] the sums over the lanes: two tensors, the e-th with that of the (2 l + e)-th in lane
    l. At each step a lane hands on half of what it has, and keeps the other half. With with_part, which has fewer
    numbers at work, this kernel is slower."""
    o_l = gl.arange(0, 32, gl.SliceLayout(0, parts[0].type.layout))
    for i_m in gl.static_range(5):
        m_l = ((o_l & (16 >> i_m)) > 0)[None, :]
        half = ()
        for j in gl.static_range(32 >> i_m):
            b_0 = parts[j]
            b_1 = parts[j + (32 >> i_m)]
            half = half + (gl.where(m_l, b_1, b_0) + from_other_lane(gl.where(m_l, b_0, b_1), 16 >> i_m),)
        parts = half
    return parts


@gluon.jit
def of_pairs(s_f, P: gl.constexpr):
    """Of the keys' rows: two tensors [blocks, 32], the e-th with that of row 2 (l % 4) + e of each block in lane l."""
    W: gl.constexpr = s_f.shape[0] // (2 * BASE)
    R: gl.constexpr = gl.BlockedLayout([1, 1, 1, 2], [1, 8, 4, 1], [W, 1, 1, 1], [3, 2, 1, 0])
    b_0, b_1 = gl.split(s_f.reshape([2 * W, 1, 4, 2]).slice(W, W).load(R).broadcast_to(W, 8, 4, 2))
    b_0 = gl.convert_layout(gl.reshape(b_0, [W, 32]), P, assert_trivial=True)
    return b_0, gl.convert_layout(gl.reshape(b_1, [W, 32]), P, assert_trivial=True)


@gluon.jit
def store_in_blocks(A_qk, A_kk, s_f, parts, scale, HV, n, C: gl.constexpr):
    """The blocks of 8 rows on the diagonal of both."""
    sums = sum_over_lanes(parts)
    W: gl.constexpr = sums[0].shape[0]
    P: gl.constexpr = sums[0].type.layout
    b_beta = of_pairs(s_f, P)
    o_g = gl.arange(0, W, gl.SliceLayout(1, P))[:, None] * BASE
    o_l = gl.arange(0, 32, gl.SliceLayout(0, P))
    o_i = o_g + (o_l // 4)[None, :]
    for e in gl.static_range(2):
        o_j = o_g + (o_l % 4 * 2 + e)[None, :]
        b_qk = gl.where(o_j <= o_i, scale * sums[e], 0.0)
        gl.store(A_qk + (o_i * (HV * C) + o_j), b_qk.to(A_qk.dtype.element_ty), mask=o_i < n)
        b_kk = gl.where(o_j <= o_i, 0.0, b_beta[e] * sums[e])
        gl.store(A_kk + (o_j * (HV * C) + o_i), b_kk, mask=o_j < n)


@gluon.jit
def rounded(b_x, like):
    """In the 16 bits of like, two numbers at a time, which the compiler does only for what is stored."""
    asm: gl.constexpr = TO_BF16 if like.dtype == gl.bfloat16 else TO_FP16
    return gl.inline_asm_elementwise(asm, "=r,f,f", [b_x], like.dtype, is_pure=True, pack=2)


@gluon.jit
def normalised(b_q, b_k, eps, L: gl.constexpr):
    """Rows of length at most 1, as l2norm makes them."""
    W: gl.constexpr = b_q[0].shape[0]
    K: gl.constexpr = b_q[0].shape[1]
    sums = ()
    for r in gl.static_range(BASE):
        b_x = b_q[r].to(gl.float32)
        sums = with_part(sums, sum_over_channels(b_x * b_x), r)
    for r in gl.static_range(BASE):
        b_x = b_k[r].to(gl.float32)
        sums = with_part(sums, sum_over_channels(b_x * b_x), BASE + r)
    b_r = gl.rsqrt(sums[0] + from_other_lane(sums[0], 1) + eps)
    x_q, x_k = (), ()
    for r in gl.static_range(2 * BASE):
        # the lane whose number has the row's bits the other way round
        b_f = from_lane(b_r, (r & 1) << 4 | (r & 2) << 2 | r & 4 | (r & 8) >> 2)
        if r < BASE:
            b_x = b_q[r]
        else:
            b_x = b_k[r - BASE]
        b_x = gl.reshape(b_x.to(gl.float32), [W, 32, K // 32]) * gl.expand_dims(b_f, 2)
        b_x = rounded(gl.convert_layout(gl.reshape(b_x, [W, K]), L, assert_trivial=True), b_q[0])
        if r < BASE:
            x_q = x_q + (b_x,)
        else:
            x_k = x_k + (b_x,)
    return x_q, x_k


@gluon.jit
def gate_steps(b_a, bias, slope, shift, o_g, n):
    """The steps of log decays -exp(A_log) softplus(a + bias), 0 in rows past the n-th. slope: -exp(A_log) log2 e;
    shift: A_log log2 e + log2(log2 e).

    softplus(x) = max(x, 0) + log1p(e), e = exp(-|x|), as kda_gate has it; here nothing is that large or small that an
    exponent's rounding would show in a sum of steps.
    """
    steps = ()
    for r in gl.static_range(BASE):
        b_x = b_a[r].to(gl.float32) + bias
        b_t = gl.abs(b_x) * -LOG2_E
        b_p = minus_log1p_ratio(gl.exp2(b_t)) * gl.exp2(b_t + shift)
        b_d = gl.fma(gl.maximum(b_x, 0.0), slope, b_p)
        least = gl.where(o_g + r < n, -126.0, 0.0)[:, None]
        steps = steps + (gl.maximum(b_d, least, propagate_nan=tl.PropagateNan.ALL),)
    return steps


@gluon.jit
def minus_log1p_ratio(e):
    """-log1p(e) / e for e in 0..1: kernels/_softplus.py."""
    p = gl.fma(e, -0.005364826414734125, 0.03006580099463463)
    p = gl.fma(e, p, -0.07920455187559128)
    p = gl.fma(e, p, 0.13753803074359894)
    p = gl.fma(e, p, -0.1915365606546402)
    p = gl.fma(e, p, 0.24857163429260254)
    p = gl.fma(e, p, -0.3332132399082184)
    p = gl.fma(e, p, 0.49999648332595825)
    return gl.fma(e, p, -1.0)


@gluon.jit
def factors(b_y, b_sign, b_c):
    """2^(sign y + c)."""
    found = ()
    for r in gl.static_range(BASE):
        found = found + (gl.exp2(gl.fma(b_y[r], b_sign, b_c)),)
    return found


@gluon.jit
def scaled(b_x, b_f):
    """Rows times factors, in the rows' dtype."""
    rows = ()
    for r in gl.static_range(BASE):
        rows = rows + ((b_x[r].to(gl.float32) * b_f[r]).to(b_x[r].dtype),)
    return rows


@gluon.jit
def above(b_q, b_k):
    """[2 C, K]: b_q above b_k, both [C, K]."""
    C: gl.constexpr = b_q.shape[0]
    K: gl.constexpr = b_q.shape[1]
    return gl.reshape(gl.permute(gl.join(b_q, b_k), (2, 0, 1)), [2 * C, K])


@gluon.jit
def start_product(s_x, M: gl.constexpr):
    """A tile of queries above keys times its keys."""
    C: gl.constexpr = s_x.shape[0] // 2
    zero = gl.zeros([2 * C, C], gl.float32, M)
    return warpgroup_mma(s_x, s_x.slice(C, C).permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def store_scores(A_qk, A_kk, s_f, b_A, HV, n, M: gl.constexpr):
    """b_A [2 C, C]: the lower triangles of both times s_f of each row, without the blocks of 8 rows on the diagonal,
    which are there."""
    C: gl.constexpr = b_A.shape[1]
    o_i = gl.arange(0, 2 * C, gl.SliceLayout(1, M))
    o_r = (o_i % C)[:, None]
    o_j = gl.arange(0, C, gl.SliceLayout(0, M))[None, :]
    b_A = gl.where(o_r > o_j, s_f.load(gl.SliceLayout(1, M))[:, None] * b_A, 0.0)
    p = o_r * (HV * C) + o_j
    m = (o_r < n) & (o_r // BASE != o_j // BASE)
    gl.store(A_qk + p, b_A.to(A_qk.dtype.element_ty), mask=m & (o_i < C)[:, None])
    gl.store(A_kk + p, b_A, mask=m & (o_i >= C)[:, None])


@gluon.jit(do_not_specialize=["scale", "eps", "T", "NT", "H", "HV", "COUNT"])
def kda_prescan_sm90_kernel(
    q, k, beta, x, A_log, dt_bias, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, scale, eps, cu_seqlens, chunk_table,
    T, NT, H, HV, COUNT, K: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """y the chunk sums of max(x log2 e, -126), A_qk[i, j] = scale sum over K of q_i k_j 2^(y_i - y_j) for j <= i,
    A_kk[i, j] = beta_i sum of k_i k_j 2^(y_i - y_j) for j < i, else 0, of every chunk and value head, COUNT of them.
    With eps the rows of q and k are normalised first, and stored in qn and kn where these are given. With A_log and
    dt_bias log decays are made of x: -exp(A_log) softplus(x + dt_bias).
    """
    W: gl.constexpr = C // BASE
    L: gl.constexpr = gl.BlockedLayout([1, K // 32], [1, 32], [W, 1], [1, 0])
    M: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, C, 16])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    IO: gl.constexpr = k.dtype.element_ty
    o_g = gl.arange(0, W, gl.SliceLayout(1, L)) * BASE
    o_k = gl.arange(0, K, gl.SliceLayout(0, L))
    offsets = offsets_of(o_g, o_k, HV * K)
    s_q = gl.allocate_shared_memory(IO, [C, K], R)
    s_k = gl.allocate_shared_memory(IO, [C, K], R)
    s_x = gl.allocate_shared_memory(x.dtype.element_ty, [C, K], R)
    s_t = gl.allocate_shared_memory(gl.float32, [W, K], R)
    s_p = gl.allocate_shared_memory(gl.float32, [W, K], R)
    # what scores are multiplied by: scale for each row of queries, beta for each of keys
    s_f = gl.allocate_shared_memory(gl.float32, [2 * C], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    o_f = gl.arange(0, 2 * C, gl.BlockedLayout([1], [32], [W], [0]))
    # two tiles by turns: what one product reads is overwritten only after all warps have come to the next
    s_0 = gl.allocate_shared_memory(IO, [2 * C, K], S)
    s_1 = gl.allocate_shared_memory(IO, [2 * C, K], S)
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
        b_f = gl.load(beta + row + (o_f - C) * HV, mask=(o_f >= C) & (o_f < C + n), other=0.0).to(gl.float32)
        if A_log is not None:
            b_rate = gl.load(A_log + i_hv) * LOG2_E
            bias = gl.load(dt_bias + i_hv * K + o_k)[None, :]
        async_copy.wait_group(0)
        if A_log is not None:
            # beyond 88 any step that this slope is used for stops
            slope = -gl.exp2(gl.minimum(b_rate, 88.0 * LOG2_E) + LOG2_LOG2_E)
            steps = gate_steps(rows_of(s_x, L), bias, slope, b_rate + LOG2_LOG2_E, o_g, n)
        else:
            steps = steps_of(rows_of(s_x, L))
        b_q = rows_of(s_q, L)
        b_k = rows_of(s_k, L)
        if eps is not None:
            b_q, b_k = normalised(b_q, b_k, eps, L)
            # of value heads that share keys, the first
            own = gl.where(i_hv % (HV // H) == 0, n, 0)
            row_h = t * H + i_hv // (HV // H)
            if qn is not None:
                store_rows(qn + row_h * K, b_q, offsets_of(o_g, o_k, H * K), o_g, own)
            if kn is not None:
                store_rows(kn + row_h * K, b_k, offsets_of(o_g, o_k, H * K), o_g, own)
        b_y = sums_of(steps)
        b_t = b_y[BASE - 1]
        s_t.store(b_t)
        s_f.store(gl.where(o_f < C, scale, b_f))
        b_from = sum_before(s_t, o_g, L)
        # all warps have what they read
        copy_chunk(s_q, s_k, s_x, q, k, x, next_hv, next_t, next_n, H, HV)
        store_in_blocks(A_qk + row * C, A_kk + row * C, s_f, pairs_in_blocks(b_q, b_k, steps), scale, HV, n, C)
        s_p.store(b_from + b_t)
        if y is not None:
            rows = ()
            for r in gl.static_range(BASE):
                rows = rows + (b_from + b_y[r],)
            store_rows(y + row * K, rows, offsets, o_g, n)
        for i_l in gl.static_range(W.bit_length() - 1):
            # to the middle from a block in the first half, from there to one in the second
            b_sign = gl.where((o_g & (BASE << i_l)) > 0, 1.0, -1.0)[:, None]
            b_f = factors(b_y, b_sign, b_sign * (b_from - middle_row(s_p, 1 << i_l, L)))
            # of queries those in the second halves count, whatever the others are
            s_y[i_l % 2].store(above(stacked(scaled(b_q, b_f)), stacked(scaled(b_k, b_f))))
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
                b_last = block_row(s_p, W - 1, L)
                gl.store(p_end + (o_g * 0)[:, None] + o_k[None, :], b_last, mask=((o_g == 0) & (n > 0))[:, None])
                store_rows(kg + row * K, scaled(b_k, factors(b_y, -1.0, b_last - b_from)), offsets, o_g, n)
            if i_l == 1:
                b_f = factors(b_y, 1.0, b_from)
                store_rows(kb + row * K, scaled(b_k, b_f), offsets, o_g, n)
                b_s = ()
                for r in gl.static_range(BASE):
                    b_s = b_s + (scale * b_f[r],)
                store_rows(qg + row * K, scaled(b_q, b_s), offsets, o_g, n)
        b_A = with_halves(b_A, warpgroup_mma_wait(0, [c_A]), C // 2, M)
        store_scores(A_qk + row * C, A_kk + row * C, s_f, b_A, HV, n, M)
        i_hv, t, n = next_hv, next_t, next_n
    async_copy.wait_group(0)
