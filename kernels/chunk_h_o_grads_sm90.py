"""The scans that are a scan's gradients, for Hopper and in one grid: they do not wait for one another. In Gluon, as
chunk_delta_o_sm90 is, which says what is overlapped."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from .chunk_delta_o_sm90 import LOG2_E, copy_rows

SCANS = gl.constexpr(3)
PAST = gl.constexpr(-1e30)
"""log2 decay of rows past a chunk's end: no difference to it is nan, and 2^ of it is 0."""


@gluon.jit
def copy_chunk(
    s_x, s_y, s_z, slot, x, y, z, i_t, n, HX, HZ, K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, W: gl.constexpr
):  # fmt: skip
    """Chunk i_t's queries, keys and values on their way into this slot of the shared buffers."""
    row = i_t.to(gl.int64) * C
    copy_rows(s_y.index(slot), y + row * HX * K, HX * K, n, W)
    copy_rows(s_x.index(slot), x + row * HX * K, HX * K, n, W)
    copy_rows(s_z.index(slot), z + row * HZ * V, HZ * V, n, W)
    async_copy.commit_group()


@gluon.jit
def load_rates(g, i_t, n, HV, C: gl.constexpr, L: gl.constexpr):
    """g of the chunk's rows, past its n rows that of the last one, and g of its last row; 0 without."""
    b_g = gl.zeros([C], gl.float32, L)
    b_gl = 0.0
    if g is not None:
        p_g = g + i_t.to(gl.int64) * C * HV
        b_g = gl.load(p_g + gl.minimum(gl.arange(0, C, L), n - 1) * HV)
        b_gl = gl.load(p_g + (n - 1) * HV)
    return b_g, b_gl


@gluon.jit
def store_rates(s_r, slot, b_g, b_gl, slope, scale, n, sign, C: gl.constexpr, L: gl.constexpr):
    """The chunk's sign g, by what its rows read the state and by what they write it, into this slot of s_r; sign: 1
    forward, -1 backward."""
    o_c = gl.arange(0, C, L)
    b_g = gl.where(o_c < n, b_g + slope * (o_c + 1), PAST)
    b_gam = gl.exp2(b_g) * scale
    b_ga = gl.exp2(gl.where(o_c < n, b_gl + slope * n - b_g, float("-inf")))
    s_r[0].index(slot).store(b_g * sign)
    s_r[1].index(slot).store(gl.where(sign > 0, b_gam, b_ga))
    s_r[2].index(slot).store(gl.where(sign > 0, b_ga, b_gam))


@gluon.jit
def pair_decay(s_g, sign, M: gl.constexpr):
    """2^(g_i - g_j) with j <= i, else 0, in the layout M: queries i along the columns, keys j along the rows. Backward
    the keys are the later ones: queries j along the columns, keys i along the rows."""
    C: gl.constexpr = s_g.shape[0]
    o_y = gl.arange(0, C, gl.SliceLayout(1, M))
    o_x = gl.arange(0, C, gl.SliceLayout(0, M))
    b_y = s_g.load(gl.SliceLayout(1, M))
    b_x = s_g.load(gl.SliceLayout(0, M))
    m = (o_x * sign)[None, :] >= (o_y * sign)[:, None]
    return gl.exp2(gl.where(m, b_x[None, :] - b_y[:, None], float("-inf")))


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def chunk_h_o_grads_sm90_kernel(
    q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state, scale,
    cu_seqlens, chunk_offsets, T, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Three scans of keys and values of one width: 0 gives d_q and h, 1 d_k, d_s and d_initial_state, 2 d_v, as
    chunk_h_o_grads_kernel has them.

    One program of W warps owns BV value columns of one scan of one sequence's head. State and values are held
    transposed: what comes out of one product is in the registers, as the next one's left operand. Rows past a
    sequence's end repeat its last one; what they give is never stored, and enters nothing else with the factor 0.
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
    if h is None:
        i_nh = pid // NV // SCANS
        i_scan = pid // NV % SCANS
    else:
        # those that store states take longer: they begin together, and the third ones fill up what is left
        i_nh = pid // NV % (gl.num_programs(0) // (NV * SCANS))
        i_scan = pid // (gl.num_programs(0) // SCANS)
    i_h = i_nh % HV
    i_n = i_nh // HV
    if cu_seqlens is None:
        bos = i_n.to(gl.int64) * T
        length = T
        chunk = i_n.to(gl.int64) * NT
    else:
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
        chunk = gl.load(chunk_offsets + i_n).to(gl.int64)
    count = (length + C - 1) // C

    x, y, z, out, HX, HZ, sign = v, d_o, q, d_k, HV, H, -1
    if i_scan == 0:
        x, y, z, out, sign = d_o, v, k, d_q, 1
    if i_scan == 2:
        x, y, z, out, HX, HZ = k, q, d_o, d_v, H, HV
    x += (bos * HX + i_h // (HV // HX)) * K
    y += (bos * HX + i_h // (HV // HX)) * K
    z += (bos * HZ + i_h // (HV // HZ)) * V + i_v
    out += (bos * HV + i_h) * V + i_v
    slope = 0.0
    if g is not None:
        g += bos * HV + i_h
    if g_gamma is not None:
        slope = gl.load(g_gamma + i_h) * LOG2_E

    s_y = gl.allocate_shared_memory(IO, [2, C, K], S)
    s_x = gl.allocate_shared_memory(IO, [2, C, K], S)
    s_z = gl.allocate_shared_memory(IO, [2, C, BV], S)
    s_p = gl.allocate_shared_memory(IO, [C, C], S)
    s_g = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_read = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_write = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_r = (s_g, s_read, s_write)

    o_sv = i_v + gl.arange(0, BV, gl.SliceLayout(1, M_ck))
    o_sk = gl.arange(0, K, gl.SliceLayout(0, M_ck))
    p_n = (i_n.to(gl.int64) * HV + i_h) * (K * V)
    # the states of the first two lie in memory with their values' columns as rows
    o_s = o_sv[:, None] * K + o_sk[None, :]
    b_s = gl.zeros([BV, K], gl.float32, M_ck)
    if initial_state is not None:
        if i_scan == 0:
            b_s = gl.load(initial_state + p_n + o_s)
    if d_final_state is not None:
        if i_scan == 1:
            b_s = gl.load(d_final_state + p_n + o_s)
        if i_scan == 2:
            b_s = gl.load(d_final_state + p_n + o_sv[:, None] + o_sk[None, :] * V)
    b_gl = 0.0
    i_t = gl.where(sign > 0, 0, count - 1)
    if count > 0:
        n = gl.minimum(length - i_t * C, C)
        copy_chunk(s_x, s_y, s_z, 0, x, y, z, i_t, n, HX, HZ, K, V, C, W)
        b_g, b_gl = load_rates(g, i_t, n, HV, C, L_r)
        store_rates(s_r, 0, b_g, b_gl, slope, scale, n, sign, C, L_r)

    for i in range(count):
        slot = i % 2
        n = gl.minimum(length - i_t * C, C)
        async_copy.wait_group(0)
        fence_async_shared()
        # the next chunk; after the last one that one again, for nobody
        i_next = gl.where(i + 1 < count, i_t + sign, i_t)
        n_next = gl.minimum(length - i_next * C, C)
        b_g, b_gl_next = load_rates(g, i_next, n_next, HV, C, L_r)
        c_y = s_y.index(slot)
        c_x = s_x.index(slot)
        c_z = s_z.index(slot)
        b_s16 = b_s.to(IO)
        p_s = ((chunk + i_t) * HV + i_h) * (K * V)
        if h is not None:
            if i_scan == 0:
                gl.store(h + p_s + o_s, b_s16)
        if d_s is not None:
            if i_scan == 1:
                gl.store(d_s + p_s + o_s, b_s16)
        p = warpgroup_mma(c_y, c_x.permute((1, 0)), gl.zeros([C, C], gl.float32, M_cc), use_acc=False, is_async=True)
        read = warpgroup_mma(
            gl.convert_layout(b_s16, by_k), c_x.permute((1, 0)), gl.zeros([BV, C], gl.float32, M_vc),
            use_acc=False, is_async=True,
        )  # fmt: skip
        copy_chunk(s_x, s_y, s_z, 1 - slot, x, y, z, i_next, n_next, HX, HZ, K, V, C, W)
        b_E = pair_decay(s_g.index(slot), sign, M_cc) * scale
        b_p = warpgroup_mma_wait(1, [p])
        s_p.store((b_p * b_E).to(IO))
        b_z = c_z.permute((1, 0)).load(M_vc)
        fence_async_shared()
        b_o = warpgroup_mma_wait(0, [read])
        b_o *= s_read.index(slot).load(columns)[None, :]
        b_s *= gl.exp2(b_gl + slope * n)
        b_z16 = gl.convert_layout(b_z, by_k)
        b_end = gl.convert_layout((b_z.to(gl.float32) * s_write.index(slot).load(columns)[None, :]).to(IO), by_c)
        made = warpgroup_mma(b_z16, s_p, b_o, is_async=True)
        state = warpgroup_mma(b_end, c_y, b_s, is_async=True)
        store_rates(s_r, 1 - slot, b_g, b_gl_next, slope, scale, n_next, sign, C, L_r)
        b_o = warpgroup_mma_wait(1, [made])
        # the values have been read: their place takes the output on its way to rows
        c_z.permute((1, 0)).store(b_o.to(IO))
        o_r = gl.arange(0, C, gl.SliceLayout(1, L_o))
        o_v = gl.arange(0, BV, gl.SliceLayout(0, L_o))
        p_o = out + i_t.to(gl.int64) * C * HV * V + (o_r[:, None] * (HV * V) + o_v[None, :])
        gl.store(p_o, c_z.load(L_o), mask=(o_r < n)[:, None])
        b_s = warpgroup_mma_wait(0, [state])
        i_t, b_gl = i_next, b_gl_next

    async_copy.wait_group(0)
    if d_initial_state is not None:
        if i_scan == 1:
            gl.store(d_initial_state + p_n + o_s, b_s)
