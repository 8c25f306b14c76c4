"""The reverse scan of the delta rule for Hopper, with what comes through each chunk's own output made on the way. In
Gluon: the next chunk is copied, and what leaves is stored, while products run."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from ._pieces import piece_chunks, piece_start
from .chunk_delta_o_sm90 import copy_rows, load_rates
from .chunk_delta_states_sm90 import store_tile


@gluon.jit
def copy_chunk(
    s_q, s_k, s_do, s_Ai, slot, q, k, d_o, Ai, row, row_k, n, H, HV, K: gl.constexpr, V: gl.constexpr, W: gl.constexpr
):  # fmt: skip
    """What a chunk's products read, on its way into this slot of the shared buffers."""
    C: gl.constexpr = s_Ai.shape[2]
    copy_rows(s_k.index(slot), k + row_k * K, H * K, n, W)
    copy_rows(s_q.index(slot), q + row_k * K, H * K, n, W)
    copy_rows(s_do.index(slot), d_o + row * V, HV * V, n, W)
    copy_rows(s_Ai.index(slot), Ai + row * C, HV * C, n, W)
    async_copy.commit_group()


@gluon.jit
def store_rates(s_r, b_g, b_gl, b_beta, scale, n, C: gl.constexpr, L: gl.constexpr):
    """The chunk's g as keys have it and, -inf past its n rows, as queries have it, scale 2^g, -beta 2^g and
    2^(g_C - g), the last three 0 past its rows, into the buffers s_r. Each is one of its own: between two writes to one
    and the same the compiler puts a barrier."""
    m = gl.arange(0, C, L) < n
    b_gi = gl.where(m, b_g, float("-inf"))
    b_gam = gl.exp2(b_gi)
    s_r[0].store(b_g)
    s_r[1].store(b_gi)
    s_r[2].store(b_gam * scale)
    s_r[3].store(b_gam * -b_beta.to(gl.float32))
    s_r[4].store(gl.exp2(gl.where(m, b_gl - b_g, float("-inf"))))


@gluon.jit
def pair_decay_transposed(s_gj, s_gi, M: gl.constexpr):
    """E[i, j] = 2^(g_i - g_j) for j <= i, else 0, with j along the rows and i along the columns, in the layout M."""
    C: gl.constexpr = s_gj.shape[0]
    o_j = gl.arange(0, C, gl.SliceLayout(1, M))
    o_i = gl.arange(0, C, gl.SliceLayout(0, M))
    b_gj = s_gj.load(gl.SliceLayout(1, M))
    b_gi = s_gi.load(gl.SliceLayout(0, M))
    return gl.exp2(gl.where(o_i[None, :] >= o_j[:, None], b_gi[None, :] - b_gj[:, None], float("-inf")))


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV", "pieces"])
def chunk_delta_reverse_sm90_kernel(
    q, k, beta, Ai, g, d_o, d_final_state, starts, passed, entered, d_x, d_s, d_initial_state, forgotten, scale,
    cu_seqlens, chunk_offsets, T, NT, H, HV, pieces,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """d_s = dS leaving each chunk; d_x = Ai^T (scale P^T d_o + (ga k) dS), P = E * q k^T;
    dS <- 2^g_C dS + scale (gam q)^T d_o - (beta gam k)^T d_x.

    One program of W warps owns BV value columns of one sequence's head, or of one of its pieces: with ``entered`` from
    the chunk before that in starts, or from the piece's last one and the state in entered; with ``passed`` the dS that
    leaves the piece is all that is wanted, where the piece before has no start, and none enters. STAGES chunks are in
    shared memory. dS and what has V columns is held transposed: what comes out of one product is in the registers, as
    the next one's left operand. Rows past a sequence's end repeat its last one; their factors are 0. The last
    ``forgotten`` chunks of a head, if any, and dS after them do not count, and are not scanned.
    """
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, K, 16])
    M_vc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, C, 16])
    M_cc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, W // 4], [16, C * 4 // W, 16])
    by_k: gl.constexpr = gl.DotOperandLayout(0, M_vc, 2)
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    columns: gl.constexpr = gl.SliceLayout(0, M_vc)
    L_r: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty
    NV: gl.constexpr = V // BV

    pid = gl.program_id(0)
    i_v = pid % NV * BV
    i_h = pid // NV % HV
    i_n = pid // NV // HV
    if cu_seqlens is None:
        if (entered is not None) or (passed is not None):
            i_n = i_n // pieces
        bos = i_n.to(gl.int64) * T
        length = T
        i_slot = i_n.to(gl.int64) * NT
    else:
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
        i_slot = gl.load(chunk_offsets + i_n).to(gl.int64)
    n_t = (length + C - 1) // C
    skipped = 0
    if forgotten is not None:
        skipped = gl.load(forgotten + i_n * HV + i_h)
        length = gl.minimum(length, (n_t - skipped) * C)
        n_t -= skipped
    if (entered is not None) or (passed is not None):
        i_p = pid // NV // HV % pieces
        start = piece_start(starts, i_n, i_p, i_h, pieces, HV, n_t, True)
        if passed is not None:
            if i_p == 0:
                return
            if piece_start(starts, i_n, i_p - 1, i_h, pieces, HV, n_t, True) >= 0:
                return
        last = start == n_t
        begin, end, before_it = piece_chunks(start, i_p, pieces, n_t, True)
        n_t = end - begin
        bos += begin * C
        i_slot += begin
        length = gl.minimum(length - begin * C, n_t * C)
        place = ((i_n.to(gl.int64) * pieces + i_p) * HV + i_h) * (K * V) + i_v

    s_q = gl.allocate_shared_memory(IO, [STAGES, C, K], S)
    s_k = gl.allocate_shared_memory(IO, [STAGES, C, K], S)
    s_do = gl.allocate_shared_memory(IO, [STAGES, C, BV], S)
    s_Ai = gl.allocate_shared_memory(IO, [STAGES, C, C], S)
    s_p = gl.allocate_shared_memory(IO, [C, C], S)
    s_gj = gl.allocate_shared_memory(gl.float32, [C], R)
    s_gi = gl.allocate_shared_memory(gl.float32, [C], R)
    s_read = gl.allocate_shared_memory(gl.float32, [C], R)
    s_held = gl.allocate_shared_memory(gl.float32, [C], R)
    s_left = gl.allocate_shared_memory(gl.float32, [C], R)
    s_r = (s_gj, s_gi, s_read, s_held, s_left)

    o_sv = gl.arange(0, BV, gl.SliceLayout(1, M_ck))[:, None]
    o_sk = gl.arange(0, K, gl.SliceLayout(0, M_ck))[None, :] * V
    p_s = (i_n.to(gl.int64) * HV + i_h) * (K * V) + i_v
    b_ds = gl.zeros([BV, K], gl.float32, M_ck)
    if entered is not None:
        b_ds = gl.load((entered + place + o_sk) + o_sv, mask=start < 0, other=0.0)
    if d_final_state is not None:
        if (entered is not None) or (passed is not None):
            b_ds += gl.load((d_final_state + p_s + o_sk) + o_sv, mask=last, other=0.0)
        elif forgotten is not None:
            b_ds = gl.load((d_final_state + p_s + o_sk) + o_sv, mask=skipped == 0, other=0.0)
        else:
            b_ds = gl.load((d_final_state + p_s + o_sk) + o_sv)
    d_o += i_v
    b_gl = 0.0
    # rows of the chunk at work: the last one first
    row = (bos + (n_t - 1) * C) * HV + i_h
    row_k = (bos + (n_t - 1) * C) * H + i_h // (HV // H)
    row_s = (i_slot + n_t - 1) * HV + i_h
    if n_t > 0:
        for i in gl.static_range(STAGES - 1):
            back = gl.minimum(i, n_t - 1) * C
            n = gl.minimum(length - (n_t - 1) * C + back, C)
            copy_chunk(s_q, s_k, s_do, s_Ai, i, q, k, d_o, Ai, row - back * HV, row_k - back * H, n, H, HV, K, V, W)
        n = length - (n_t - 1) * C
        b_g, b_gl, b_beta = load_rates(beta, g, row, n, HV, C, L_r)
        store_rates(s_r, b_g, b_gl, b_beta, scale, n, C, L_r)

    for i in range(n_t):
        i_t = n_t - 1 - i
        slot, slot_ahead = i % STAGES, (i + STAGES - 1) % STAGES
        n = gl.minimum(length - i_t * C, C)
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        # an earlier chunk, and the previous one's rates; before the first one that one again, for nobody
        ahead = gl.minimum(STAGES - 1, i_t) * C
        n_ahead = gl.minimum(n + ahead, C)
        previous = gl.minimum(i_t, 1) * C
        n_next = gl.minimum(n + previous, C)
        b_g, b_gl_next, b_beta = load_rates(beta, g, row - previous * HV, n_next, HV, C, L_r)
        c_q = s_q.index(slot)
        c_k = s_k.index(slot)
        c_do = s_do.index(slot)
        zeros = gl.zeros([BV, C], gl.float32, M_vc)
        b_ds16 = b_ds.to(IO)
        b_ds16k = gl.convert_layout(b_ds16, by_k)
        p = warpgroup_mma(c_k, c_q.permute((1, 0)), gl.zeros([C, C], gl.float32, M_cc), use_acc=False, is_async=True)
        # waits for nothing; without it ptxas waits for p before the next product, whose left operand is in registers
        p = warpgroup_mma_wait(1, [p])
        after = warpgroup_mma(b_ds16k, c_k.permute((1, 0)), zeros, use_acc=False, is_async=True)
        own_chunk = True
        n_own = n
        if entered is not None:
            own_chunk = i >= before_it
            n_own = gl.where(own_chunk, n, 0)
        if d_s is not None:
            # the queries that are copied ahead find their place free until then
            c_ds = s_q.index(slot_ahead)._reinterpret(IO, [K, BV], S)
            c_ds.permute((1, 0)).store(b_ds16)
            if own_chunk:
                store_tile(d_s + row_s * (K * V) + i_v, V, c_ds, None, W)
        b_E = pair_decay_transposed(s_gj, s_gi, M_cc)
        b_p = warpgroup_mma_wait(1, [p])
        s_p.store((b_p * b_E).to(IO))
        fence_async_shared()
        own = warpgroup_mma(c_do.permute((1, 0)), s_p.permute((1, 0)), zeros, use_acc=False, is_async=True)
        b_left = s_left.load(columns)
        b_held = s_held.load(columns)
        b_do = c_do.permute((1, 0)).load(M_vc).to(gl.float32) * s_read.load(columns)[None, :]
        b_do16 = gl.convert_layout(b_do.to(IO), by_c)
        b_after = warpgroup_mma_wait(1, [after]) * b_left[None, :]
        b_own = warpgroup_mma_wait(0, [own])
        b_x16 = gl.convert_layout((b_own * scale + b_after).to(IO), by_k)
        dx = warpgroup_mma(b_x16, s_Ai.index(slot), zeros, use_acc=False, is_async=True)
        b_ds *= gl.exp2(b_gl)
        state = warpgroup_mma(b_do16, c_q, b_ds, is_async=True)
        copy_chunk(
            s_q, s_k, s_do, s_Ai, slot_ahead, q, k, d_o, Ai, row - ahead * HV, row_k - ahead * H, n_ahead, H, HV,
            K, V, W,
        )  # fmt: skip
        b_dx = warpgroup_mma_wait(1, [dx])
        b_dx16 = gl.convert_layout((b_dx * b_held[None, :]).to(IO), by_c)
        state = warpgroup_mma(b_dx16, c_k, state, is_async=True)
        if d_x is not None:
            # d_o has been read: its place takes d_x on its way to rows
            c_do.permute((1, 0)).store(b_dx.to(IO))
            store_tile(d_x + row * V + i_v, HV * V, c_do, n_own, W)
        store_rates(s_r, b_g, b_gl_next, b_beta, scale, n_next, C, L_r)
        b_ds = warpgroup_mma_wait(0, [state])
        row, row_k, row_s, b_gl = row - C * HV, row_k - C * H, row_s - HV, b_gl_next

    async_copy.wait_group(0)
    if passed is not None:
        gl.store((passed + place + o_sk) + o_sv, b_ds)
    elif d_initial_state is not None:
        first = True
        if entered is not None:
            first = i_p == 0
        gl.store((d_initial_state + p_s + o_sk) + o_sv, b_ds, mask=first)
