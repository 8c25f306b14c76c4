"""Gradients of the delta rule inside each chunk for Hopper: all copies are on their way before the first product, and
two programs share a multiprocessor. In Gluon, which leaves both to the kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from ._barrier import barrier
from ._handover import hand_over, take_over
from .chunk_delta_o_sm90 import copy_rows, load_rates
from .chunk_delta_states_sm90 import store_tile

PAST = gl.constexpr(-1e30)
"""log2 decay of rows past a chunk's end: no difference to it is nan, and 2^ of it is 0."""


@gluon.constexpr_function
def row_pieces(C, D):
    """Layout of a tile [C, D] on four warps, 8 columns of 16 bits to a thread. Rows are where a product's accumulator
    has them and a row's columns are with the same four threads: from one to the other nothing leaves a warp."""
    wide = [[0, column] for column in (32, 64) if column < D]
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [8, 0], *wide],
        [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [C, D],
    )


@gluon.jit
def chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C: gl.constexpr):
    """Rows of chunk slot i_slot: (sequence or -1, the chunk's first row as int64, how many)."""
    if cu_seqlens is None:
        i_n = (i_slot // NT).to(gl.int32)
        o_t = (i_slot % NT).to(gl.int32) * C
        row = i_n.to(gl.int64) * T + o_t
        left = T - o_t
    else:
        i_n = gl.load(chunk_table + i_slot * 2)
        o_t = gl.load(chunk_table + i_slot * 2 + 1) * C
        # an unused slot's sequence is -1
        row = gl.load(cu_seqlens + gl.maximum(i_n, 0)).to(gl.int64) + o_t
        left = (gl.load(cu_seqlens + gl.maximum(i_n, 0) + 1).to(gl.int64) - row).to(gl.int32)
    return i_n, row, gl.minimum(left, C)


@gluon.jit
def piece_offsets(stride, n, L: gl.constexpr):
    """Offsets of a tile of n rows, ``stride`` apart, in the layout L; past them the last one's again."""
    o_r = gl.minimum(gl.arange(0, L.shape[0], gl.SliceLayout(1, L)), n - 1)
    return o_r[:, None] * stride + gl.arange(0, L.shape[1], gl.SliceLayout(0, L))[None, :]


@gluon.jit
def store_pieces(p, stride, b_x, n, L: gl.constexpr):
    """The first n rows of the tile b_x, which is in the layout L, to p, ``stride`` apart."""
    o_r = gl.arange(0, L.shape[0], gl.SliceLayout(1, L))
    o_d = gl.arange(0, L.shape[1], gl.SliceLayout(0, L))
    gl.store(p + (o_r[:, None] * stride + o_d[None, :]), b_x.to(p.dtype.element_ty), mask=(o_r < n)[:, None])


@gluon.jit
def product(a, b, M: gl.constexpr):
    """The rows of the tile a times those of b, under way."""
    R: gl.constexpr = a.shape[0]
    D: gl.constexpr = b.shape[0]
    zeros = gl.zeros([R, D], gl.float32, M)
    return warpgroup_mma(a, b.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def row_product(s_x, b_y, M: gl.constexpr, L: gl.constexpr):
    """<x_i, y_i> for each row, in the layout L; x in shared memory, y as the accumulator M has it."""
    by_d: gl.constexpr = gl.DotOperandLayout(0, M, 2)
    b_x = gl.convert_layout(s_x.load(by_d), M).to(gl.float32)
    return gl.convert_layout(gl.sum(b_x * b_y, axis=1), L)


@gluon.jit
def shared_product(s_x, s_y, M: gl.constexpr, L: gl.constexpr):
    """The same, both in shared memory and read in the layout M."""
    return gl.convert_layout(gl.sum(s_x.load(M).to(gl.float32) * s_y.load(M).to(gl.float32), axis=1), L)


@gluon.jit
def add_tile(p, stride, s_x, n, is_first, W: gl.constexpr):
    """The first n rows of the shared tile s_x, on top of what p holds but for the first, rows ``stride`` apart."""
    R: gl.constexpr = s_x.shape[0]
    D: gl.constexpr = s_x.shape[1]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [W, 1], [1, 0])
    o_r = gl.arange(0, R, gl.SliceLayout(1, L))
    o_d = gl.arange(0, D, gl.SliceLayout(0, L))
    p = p + (o_r[:, None] * stride + o_d[None, :])
    m = (o_r < n)[:, None]
    b_x = s_x.load(L)
    if is_first:
        gl.store(p, b_x, mask=m)
    else:
        # from L2: who stored it may have run elsewhere
        b_before = gl.load(p, mask=m, other=0.0, cache_modifier=".cg")
        gl.store(p, (b_before.to(gl.float32) + b_x.to(gl.float32)).to(b_x.dtype), mask=m)


@gluon.jit(do_not_specialize=["scale", "tasks", "band", "T", "NT", "H", "HV"])
def chunk_delta_grads_sm90_kernel(
    q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_q, d_k, d_v, d_beta, d_g, turns, scale, cu_seqlens, chunk_table,
    tasks, band, T, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """One chunk and value head, as chunk_delta_grads_kernel has it, on four warps; V 64 or 128. With SHARED keys
    d_q and d_k are [rows, H, K]: of the two value heads of a task, which is a chunk and key head, the second one adds
    to them when the first one has, which turns [tasks] tell (_handover.py). It waits for a program of a lower number,
    and relies on that to start before it does.

    D^T and what is above the diagonal of M + M^T come from products of their own: nothing is turned. An accumulator
    is an operand as soon as it is made: ptxas packs it only where it is used. Sums by row that are made early go to
    shared memory: ptxas would sink them to the end, with all that they are made of. Rows past the chunk's end repeat
    its last one; what they give is never stored, and enters nothing else with the factor 0.
    """
    LN2: gl.constexpr = 0.6931471805599453
    W: gl.constexpr = 4
    M_cc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, C, 16])
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, K, 16])
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    L_i: gl.constexpr = gl.SliceLayout(1, M_cc)
    L_j: gl.constexpr = gl.SliceLayout(0, M_cc)
    L_k: gl.constexpr = gl.SliceLayout(1, M_ck)
    L_cv: gl.constexpr = row_pieces(C, V)
    L_ck: gl.constexpr = row_pieces(C, K)
    L_r: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    IO: gl.constexpr = k.dtype.element_ty
    WROTE: gl.constexpr = d_k is not None or d_g is not None
    PARTS: gl.constexpr = V // C

    group = HV // H
    if not SHARED:
        pid = gl.program_id(0).to(gl.int64)
        i_h = pid % HV
        i_slot = pid // HV
    else:
        pid = gl.program_id(0)
        i_r = pid // band % group
        task = pid // band // group * band + pid % band
        if task >= tasks:
            return
        i_h = task % H * group + i_r
        i_slot = (task // H).to(gl.int64)
    i_n, row, n = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    row_k = row * H + i_h // group
    row = row * HV + i_h
    p_s = (i_slot * HV + i_h) * (K * V)

    s_x = gl.allocate_shared_memory(IO, [2, C, V], S)
    s_new = gl.allocate_shared_memory(IO, [C, V], S)
    s_k = gl.allocate_shared_memory(IO, [C, K], S)
    s_q = gl.allocate_shared_memory(IO, [C, K], S)
    s_h = gl.allocate_shared_memory(IO, [K, V], S)
    s_g = gl.allocate_shared_memory(gl.float32, [C], R)
    s_beta = gl.allocate_shared_memory(beta.dtype.element_ty, [C], R)
    s_dg = gl.allocate_shared_memory(gl.float32, [C], R)
    s_rows = gl.allocate_shared_memory(gl.float32, [C], R)
    s_do = s_x.index(0)
    s_dx = s_x.index(1)
    # d_s comes in 64 columns at a time, in place of rows that have been read
    if PARTS == 2:
        s_ds = (s_do._reinterpret(IO, [K, C], S), s_dx._reinterpret(IO, [K, C], S))
    else:
        s_ds = (s_x._reinterpret(IO, [K, C], S),)
    copy_rows(s_do, d_o + row * V, HV * V, n, W)
    copy_rows(s_new, v_new + row * V, HV * V, n, W)
    async_copy.commit_group()
    copy_rows(s_k, k + row_k * K, H * K, n, W)
    copy_rows(s_q, q + row_k * K, H * K, n, W)
    async_copy.commit_group()
    copy_rows(s_h, h + p_s, V, K, W)
    async_copy.commit_group()
    copy_rows(s_dx, d_x + row * V, HV * V, n, W)
    async_copy.commit_group()
    b_g, b_gl, b_beta = load_rates(beta, g, row, n, HV, C, L_r)
    s_g.store(gl.where(gl.arange(0, C, L_r) < n, b_g, PAST))
    s_beta.store(b_beta)
    o_i = gl.arange(0, C, L_i)
    o_j = gl.arange(0, C, L_j)
    m = o_i[:, None] >= o_j[None, :]

    zeros = gl.zeros([C, K], gl.float32, M_ck)

    async_copy.wait_group(3)
    fence_async_shared()
    D = product(s_do, s_new, M_cc)
    Dt = product(s_new, s_do, M_cc)
    b_gi = s_g.load(L_i)
    b_E = b_gi[:, None] - s_g.load(L_j)[None, :]
    # 2^(g_i - g_j) below the diagonal, above it the same of j and i
    b_E = gl.exp2(gl.where(m, b_E, -b_E)) * scale
    async_copy.wait_group(2)
    fence_async_shared()
    if d_g is not None:
        kq = product(s_k, s_q, M_cc)
        b_Dt = warpgroup_mma_wait(1, [Dt]) * gl.where(o_i[:, None] <= o_j[None, :], b_E, 0.0)
        b_kq = warpgroup_mma_wait(0, [kq])
        b_columns = gl.sum(b_Dt * b_kq, axis=1)
        qk = product(s_q, s_k, M_cc)
        dk = warpgroup_mma(gl.convert_layout(b_Dt.to(IO), by_c), s_q, zeros, use_acc=False, is_async=True)
        b_D, b_qk = warpgroup_mma_wait(1, [D, qk])
        b_D *= gl.where(m, b_E, 0.0)
        # what both have on the diagonal is the same
        s_dg.store(gl.sum(b_D * b_qk, axis=1) - b_columns)
    else:
        b_D, b_Dt = warpgroup_mma_wait(0, [D, Dt])
        b_Dt *= gl.where(o_i[:, None] <= o_j[None, :], b_E, 0.0)
        b_D *= gl.where(m, b_E, 0.0)
        dk = warpgroup_mma(gl.convert_layout(b_Dt.to(IO), by_c), s_q, zeros, use_acc=False, is_async=True)
    async_copy.wait_group(1)
    fence_async_shared()
    read = product(s_do, s_h, M_ck)
    b_gam = gl.convert_layout(gl.exp2(b_gi), L_k)
    b_dk, b_dq = warpgroup_mma_wait(0, [dk, read])
    b_dq *= (b_gam * scale)[:, None]
    if d_g is not None:
        s_dg.store(s_dg.load(L_i) + row_product(s_q, b_dq, M_ck, L_i))
    if d_beta is not None:
        b_v = gl.load(v + row * V + piece_offsets(HV * V, n, L_cv))
    if SHARED:
        if i_r > 0:
            # the one before it came earlier, and is done by now
            take_over(turns, task)
    if d_q is not None:
        dq = warpgroup_mma(gl.convert_layout(b_D.to(IO), by_c), s_k, b_dq, is_async=True)
        b_dq = warpgroup_mma_wait(0, [dq])
        # no warp's product reads it any longer
        barrier()
        c_dq = s_do._reinterpret(IO, [C, K], S) if K <= V else gl.allocate_shared_memory(IO, [C, K], S)
        c_dq.store(b_dq.to(IO))
        if not SHARED:
            store_tile(d_q + row * K, HV * K, c_dq, n, W)
        else:
            add_tile(d_q + row_k * K, H * K, c_dq, n, i_r == 0, W)
    if WROTE:
        if PARTS == 2:
            barrier()
            copy_rows(s_ds[0], d_s + p_s, V, K, W)
            async_copy.commit_group()

    async_copy.wait_group(PARTS - 1 if WROTE else 0)
    fence_async_shared()
    low = product(s_dx, s_new, M_cc)
    high = product(s_new, s_dx, M_cc)
    b_beta = s_beta.load(L_i).to(gl.float32)
    b_dx = s_dx.load(L_cv).to(gl.float32)
    if d_v is not None:
        b_dv = b_dx * gl.convert_layout(b_beta, gl.SliceLayout(1, L_cv))[:, None]
        store_pieces(d_v + row * V, HV * V, b_dv, n, L_cv)
    if d_beta is not None:
        s_rows.store(gl.convert_layout(gl.sum(b_dx * b_v.to(gl.float32), axis=1), L_i))
    b_E = b_gi[:, None] - s_g.load(L_j)[None, :]
    b_E = gl.exp2(gl.where(m, b_E, -b_E))
    b_E = gl.where(o_i[:, None] == o_j[None, :], 0.0, -b_E)
    b_low, b_high = warpgroup_mma_wait(0, [low, high])
    kk = product(s_k, s_k, M_cc)
    b_N = gl.where(m, b_low, b_high) * b_E
    b_rate = gl.where(m, b_beta[:, None], s_beta.load(L_j).to(gl.float32)[None, :])
    b_kk = warpgroup_mma_wait(0, [kk]) * b_N
    b_N *= b_rate
    dk = warpgroup_mma(gl.convert_layout(b_N.to(IO), by_c), s_k, b_dk, is_async=True)
    held = product(s_dx, s_h, M_ck)
    if d_beta is not None or d_g is not None:
        b_rows = gl.sum(gl.where(m, b_kk, 0.0), axis=1)
        if d_beta is not None:
            s_rows.store(s_rows.load(L_i) + b_rows)
        if d_g is not None:
            b_columns = gl.sum(gl.where(m, 0.0, b_kk * b_rate), axis=1)
            s_dg.store(s_dg.load(L_i) + b_rows * b_beta - b_columns)
    b_dk, b_held = warpgroup_mma_wait(0, [dk, held])
    if WROTE:
        barrier()
        copy_rows(s_ds[PARTS - 1], d_s + p_s + (PARTS - 1) * C, V, K, W)
        async_copy.commit_group()
    b_held *= b_gam[:, None]
    if d_beta is not None or d_g is not None:
        b_rows = row_product(s_k, b_held, M_ck, L_i)
    if d_beta is not None:
        gl.store(d_beta + row + o_i * HV, s_rows.load(L_i) - b_rows, mask=o_i < n)
    if d_g is not None:
        s_dg.store(s_dg.load(L_i) - b_rows * b_beta)
    b_dk -= b_held * gl.convert_layout(b_beta, L_k)[:, None]

    if WROTE:
        wrote = zeros
        b_hds = gl.zeros([C], gl.float32, L_i)
        for p in gl.static_range(PARTS):
            async_copy.wait_group(PARTS - 1 - p)
            fence_async_shared()
            c_new = s_new.slice(p * C, C, dim=1)
            wrote = warpgroup_mma(c_new, s_ds[p].permute((1, 0)), wrote, use_acc=p > 0, is_async=True)
            if d_g is not None:
                # both lie in the same order, whatever it is
                c_h = s_h._reinterpret(IO, [PARTS, C, K], S).index(p)
                b_hds += shared_product(c_h, s_ds[p]._reinterpret(IO, [C, K], S), L_ck, L_i)
        b_wrote = warpgroup_mma_wait(0, [wrote])
        b_wrote *= gl.convert_layout(gl.exp2(gl.where(o_i < n, b_gl - b_gi, float("-inf"))), L_k)[:, None]
        if d_g is not None:
            b_t = gl.where(o_i < n - 1, row_product(s_k, b_wrote, M_ck, L_i), 0.0)
            b_end = gl.sum(b_t + gl.exp2(b_gl) * b_hds, axis=0)
            b_dg = s_dg.load(L_i) + gl.where(o_i == n - 1, b_end, -b_t)
            gl.store(d_g + row + o_i * HV, LN2 * b_dg, mask=o_i < n)
        if d_k is not None:
            c_dk = s_h._reinterpret(IO, [C, K], S)
            c_dk.store((b_dk + b_wrote).to(IO))
            if not SHARED:
                store_tile(d_k + row * K, HV * K, c_dk, n, W)
            else:
                add_tile(d_k + row_k * K, H * K, c_dk, n, i_r == 0, W)
    if SHARED:
        if i_r == 0:
            hand_over(turns, task)
