"""The scan that emits its output, for Hopper: the next chunk is on its way while this one is at work, and products that
do not need one another run side by side. In Gluon, which leaves both to the kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def copy_rows(b, x, stride, n, W: gl.constexpr):
    """The n rows of x, ``stride`` apart, to the shared tile b, 16 bytes at a time; past them the last one again."""
    C: gl.constexpr = b.shape[0]
    D: gl.constexpr = b.shape[1]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [W, 1], [1, 0])
    o_r = gl.minimum(gl.arange(0, C, gl.SliceLayout(1, L)), n - 1)
    o_d = gl.arange(0, D, gl.SliceLayout(0, L))
    async_copy.async_copy_global_to_shared(b, x + (o_r[:, None] * stride + o_d[None, :]))


@gluon.jit
def copy_chunk(
    s_q, s_k, s_v, s_Ai, slot, q, k, v, Ai, row, row_k, n, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """What a chunk's products read, on its way into this slot of the shared buffers."""
    copy_rows(s_k.index(slot), k + row_k * K, H * K, n, W)
    copy_rows(s_q.index(slot), q + row_k * K, H * K, n, W)
    copy_rows(s_v.index(slot), v + row * V, HV * V, n, W)
    if Ai is not None:
        copy_rows(s_Ai.index(slot), Ai + row * C, HV * C, n, W)
    async_copy.commit_group()


@gluon.jit
def load_rates(beta, g, row, n, HV, C: gl.constexpr, L: gl.constexpr):
    """g and beta of the chunk's rows, past its n rows those of the last one, and g of its last row; 0 without."""
    o_r = gl.minimum(gl.arange(0, C, L), n - 1)
    b_g = gl.zeros([C], gl.float32, L)
    b_gl = 0.0
    b_beta = b_g
    if g is not None:
        b_g = gl.load(g + row + o_r * HV)
        b_gl = gl.load(g + row + (n - 1) * HV)
    if beta is not None:
        b_beta = gl.load(beta + row + o_r * HV)
    return b_g, b_gl, b_beta


@gluon.jit
def store_rates(s_r, slot, b_g, b_gl, b_beta, slope, n, C: gl.constexpr, L: gl.constexpr):
    """The chunk's g, 2^g, 2^(g_C - g) and, under the delta rule, beta and beta 2^g into this slot of the buffers s_r.

    Each has a buffer of its own: between two writes to one and the same the compiler puts a barrier.
    """
    o_c = gl.arange(0, C, L)
    b_g += slope * (gl.minimum(o_c, n - 1) + 1)
    b_gam = gl.exp2(b_g)
    s_r[0].index(slot).store(b_g)
    s_r[1].index(slot).store(b_gam)
    s_r[2].index(slot).store(gl.exp2(gl.where(o_c < n, b_gl + slope * n - b_g, float("-inf"))))
    if len(s_r) > 3:
        b_beta = b_beta.to(gl.float32)
        s_r[3].index(slot).store(b_beta)
        s_r[4].index(slot).store(b_beta * b_gam)


@gluon.jit
def clear_above_diagonal(s_Ai, n, W: gl.constexpr):
    """Zeros above the diagonal of the shared tile s_Ai, of which n rows are there."""
    C: gl.constexpr = s_Ai.shape[0]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // C, C // 8], [W, 1], [1, 0])
    o_i = gl.minimum(gl.arange(0, C, gl.SliceLayout(1, L)), n - 1)
    o_j = gl.arange(0, C, gl.SliceLayout(0, L))
    b_Ai = s_Ai.load(L)
    s_Ai.store(gl.where(o_i[:, None] >= o_j[None, :], b_Ai, gl.zeros_like(b_Ai)))


@gluon.jit
def pair_decay_transposed(s_g, M: gl.constexpr):
    """E[i, j] = 2^(g_i - g_j) for j <= i, else 0, with j along the rows and i along the columns, in the layout M."""
    C: gl.constexpr = s_g.shape[0]
    o_j = gl.arange(0, C, gl.SliceLayout(1, M))
    o_i = gl.arange(0, C, gl.SliceLayout(0, M))
    b_gj = s_g.load(gl.SliceLayout(1, M))
    b_gi = s_g.load(gl.SliceLayout(0, M))
    return gl.exp2(gl.where(o_i[None, :] >= o_j[:, None], b_gi[None, :] - b_gj[:, None], float("-inf")))


@gluon.jit(do_not_specialize=["scale", "T", "H", "HV"])
def chunk_delta_o_sm90_kernel(
    q, k, v, beta, Ai, g, g_gamma, initial_state, o, final_state, scale, cu_seqlens, T, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """v_new = Ai beta (v - 2^g k S), v itself without Ai; o = scale (2^g q S + (E * q k^T) v_new);
    S <- 2^g_C S + (ga k)^T v_new.

    One program of W warps owns BV value columns of one sequence's head. State and values are held transposed: what
    comes out of one product is in the registers, as the next one's left operand. Rows past a sequence's end repeat its
    last one; what they give is never stored, and enters the state with the factor 0.
    """
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, K, 16])
    M_vc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, C, 16])
    M_cc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, W // 4], [16, C * 4 // W, 16])
    by_k: gl.constexpr = gl.DotOperandLayout(0, M_vc, 2)
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    columns: gl.constexpr = gl.SliceLayout(0, M_vc)
    L_r: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    L_o: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BV, BV // 8], [W, 1], [1, 0])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty
    NV: gl.constexpr = V // BV

    pid = gl.program_id(0)
    i_v = pid % NV * BV
    i_h = pid // NV % HV
    i_n = pid // NV // HV
    if cu_seqlens is None:
        bos = i_n.to(gl.int64) * T
        length = T
    else:
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
    NT = (length + C - 1) // C
    row = bos * HV + i_h
    row_k = bos * H + i_h // (HV // H)
    slope = 0.0
    if g_gamma is not None:
        slope = gl.load(g_gamma + i_h) * LOG2_E

    s_k = gl.allocate_shared_memory(IO, [2, C, K], S)
    s_q = gl.allocate_shared_memory(IO, [2, C, K], S)
    s_v = gl.allocate_shared_memory(IO, [2, C, BV], S)
    s_Ai = s_v
    if Ai is not None:
        s_Ai = gl.allocate_shared_memory(IO, [2, C, C], S)
    s_p = gl.allocate_shared_memory(IO, [C, C], S)
    s_g = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_gam = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_left = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_r = (s_g, s_gam, s_left)
    if Ai is not None:
        s_beta = gl.allocate_shared_memory(gl.float32, [2, C], R)
        s_beta_gam = gl.allocate_shared_memory(gl.float32, [2, C], R)
        s_r = (s_g, s_gam, s_left, s_beta, s_beta_gam)

    o_sv = i_v + gl.arange(0, BV, gl.SliceLayout(1, M_ck))
    o_sk = gl.arange(0, K, gl.SliceLayout(0, M_ck))
    p_s = (i_n.to(gl.int64) * HV + i_h) * (K * V) + o_sk[None, :] * V + o_sv[:, None]
    b_s = gl.zeros([BV, K], gl.float32, M_ck)
    if initial_state is not None:
        b_s = gl.load(initial_state + p_s)
    v += i_v
    b_gl = 0.0
    if NT > 0:
        n = gl.minimum(length, C)
        copy_chunk(s_q, s_k, s_v, s_Ai, 0, q, k, v, Ai, row, row_k, n, H, HV, K, V, C, W)
        b_g, b_gl, b_beta = load_rates(beta, g, row, n, HV, C, L_r)
        store_rates(s_r, 0, b_g, b_gl, b_beta, slope, n, C, L_r)

    for i_t in range(NT):
        slot = i_t % 2
        n = gl.minimum(length - i_t * C, C)
        async_copy.wait_group(0)
        fence_async_shared()
        # the next chunk; after the last one that one again, for nobody
        i_next = gl.minimum(i_t + 1, NT - 1)
        n_next = gl.minimum(length - i_next * C, C)
        row_next = row + (i_next - i_t) * C * HV
        row_k_next = row_k + (i_next - i_t) * C * H
        if Ai is not None:
            copy_chunk(s_q, s_k, s_v, s_Ai, 1 - slot, q, k, v, Ai, row_next, row_k_next, n_next, H, HV, K, V, C, W)
        b_g, b_gl_next, b_beta = load_rates(beta, g, row_next, n_next, HV, C, L_r)

        c_k = s_k.index(slot)
        c_q = s_q.index(slot)
        c_v = s_v.index(slot)
        b_s16 = gl.convert_layout(b_s.to(IO), by_k)
        p = warpgroup_mma(c_k, c_q.permute((1, 0)), gl.zeros([C, C], gl.float32, M_cc), use_acc=False, is_async=True)
        zeros = gl.zeros([BV, C], gl.float32, M_vc)
        if Ai is not None:
            held = warpgroup_mma(b_s16, c_k.permute((1, 0)), zeros, use_acc=False, is_async=True)
        read = warpgroup_mma(b_s16, c_q.permute((1, 0)), zeros, use_acc=False, is_async=True)
        if Ai is not None:
            clear_above_diagonal(s_Ai.index(slot), n, W)
        else:
            # here the copy's addresses take registers that are free; under the delta rule none are (timed)
            copy_chunk(s_q, s_k, s_v, s_Ai, 1 - slot, q, k, v, Ai, row_next, row_k_next, n_next, H, HV, K, V, C, W)
        b_E = pair_decay_transposed(s_g.index(slot), M_cc)
        b_p = warpgroup_mma_wait(2 if Ai is not None else 1, [p])
        s_p.store((b_p * b_E).to(IO))
        b_v = c_v.permute((1, 0)).load(M_vc).to(gl.float32)
        if Ai is not None:
            b_held = warpgroup_mma_wait(1, [held])
            b_x = b_v * s_beta.index(slot).load(columns)[None, :]
            b_x -= b_held * s_beta_gam.index(slot).load(columns)[None, :]
            b_x16 = gl.convert_layout(b_x.to(IO), by_k)
            fence_async_shared()
            new = warpgroup_mma(b_x16, s_Ai.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        else:
            fence_async_shared()
        b_o = warpgroup_mma_wait(1 if Ai is not None else 0, [read])
        b_o *= s_gam.index(slot).load(columns)[None, :]
        b_s *= gl.exp2(b_gl + slope * n)
        if Ai is not None:
            b_v = warpgroup_mma_wait(0, [new])
        b_u16 = gl.convert_layout(b_v.to(IO), by_k)
        b_end = gl.convert_layout((b_v * s_left.index(slot).load(columns)[None, :]).to(IO), by_c)
        out = warpgroup_mma(b_u16, s_p, b_o, is_async=True)
        state = warpgroup_mma(b_end, c_k, b_s, is_async=True)
        store_rates(s_r, 1 - slot, b_g, b_gl_next, b_beta, slope, n_next, C, L_r)
        b_o = warpgroup_mma_wait(1, [out])
        # the values have been read: their place takes the output on its way to rows
        c_v.permute((1, 0)).store((b_o * scale).to(IO))
        o_r = gl.arange(0, C, gl.SliceLayout(1, L_o))
        o_v = i_v + gl.arange(0, BV, gl.SliceLayout(0, L_o))
        p_o = o + row * V + (o_r[:, None] * (HV * V) + o_v[None, :])
        gl.store(p_o, c_v.load(L_o), mask=(o_r < n)[:, None])
        b_s = warpgroup_mma_wait(0, [state])
        row, row_k, b_gl = row_next, row_k_next, b_gl_next

    async_copy.wait_group(0)
    if final_state is not None:
        gl.store(final_state + p_s, b_s)
