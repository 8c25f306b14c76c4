"""The delta rule's scan over chunk states for Hopper: the next chunk is on its way while this one is at work, and what
leaves does so while products run. In Gluon, which leaves both to the kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from ._pieces import piece_chunks, piece_start
from .chunk_delta_o_sm90 import copy_rows, load_rates


@gluon.jit
def store_tile(p, stride, s_x, n, W: gl.constexpr):
    """The shared tile s_x, or its first n rows, to p, rows ``stride`` apart, 16 bytes at a time."""
    R: gl.constexpr = s_x.shape[0]
    D: gl.constexpr = s_x.shape[1]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [W, 1], [1, 0])
    o_r = gl.arange(0, R, gl.SliceLayout(1, L))
    o_d = gl.arange(0, D, gl.SliceLayout(0, L))
    p = p + (o_r[:, None] * stride + o_d[None, :])
    if n is None:
        gl.store(p, s_x.load(L))
    else:
        gl.store(p, s_x.load(L), mask=(o_r < n)[:, None])


@gluon.jit
def copy_chunk(s_k, s_v, s_Ai, slot, k, v, Ai, row, row_k, n, H, HV, K: gl.constexpr, V: gl.constexpr, W: gl.constexpr):
    """What a chunk's products read, on its way into this slot of the shared buffers."""
    C: gl.constexpr = s_Ai.shape[2]
    copy_rows(s_k.index(slot), k + row_k * K, H * K, n, W)
    if v is not None:
        copy_rows(s_v.index(slot), v + row * V, HV * V, n, W)
    copy_rows(s_Ai.index(slot), Ai + row * C, HV * C, n, W)
    async_copy.commit_group()


@gluon.jit
def store_rates(s_r, b_g, b_gl, b_beta, n, C: gl.constexpr, L: gl.constexpr):
    """The chunk's beta, beta 2^g and 2^(g_C - g) into the buffers s_r. Each is one of its own: between two writes to
    one and the same the compiler puts a barrier."""
    b_beta = b_beta.to(gl.float32)
    s_r[0].store(b_beta)
    s_r[1].store(b_beta * gl.exp2(b_g))
    s_r[2].store(gl.exp2(gl.where(gl.arange(0, C, L) < n, b_gl - b_g, float("-inf"))))


@gluon.jit(do_not_specialize=["T", "NT", "H", "HV", "pieces"])
def chunk_delta_states_sm90_kernel(
    k, v, beta, Ai, g, initial_state, starts, entered, h, v_new, final_state, forgotten, cu_seqlens, chunk_offsets,
    T, NT, H, HV, pieces,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """h = the state entering each chunk, v_new = Ai beta (v - 2^g k S), S <- 2^g_C S + (ga k)^T v_new. Without v that
    is 0, and S starts from the identity, V being K. The first ``forgotten`` chunks of a head, if any, and the state
    before them do not count, and are not scanned.

    One program of W warps owns BV value columns of one sequence's head, or with ``entered`` of one of its pieces: from
    the chunk in starts, or from its first one and the state in entered. STAGES chunks are in shared memory. State and
    values are held transposed: what comes out of one product is in the registers, as the next one's left operand. Rows
    past a sequence's end repeat its last one; what they give is never stored, and enters the state with the factor 0.
    """
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, K, 16])
    M_vc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, C, 16])
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
        if entered is not None:
            i_n = i_n // pieces
        bos = i_n.to(gl.int64) * T
        length = T
        i_slot = i_n.to(gl.int64) * NT
    else:
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
        i_slot = gl.load(chunk_offsets + i_n).to(gl.int64)
    skipped = 0
    if forgotten is not None:
        skipped = gl.load(forgotten + i_n * HV + i_h)
        bos, length, i_slot = bos + skipped * C, length - skipped * C, i_slot + skipped
    n_t = (length + C - 1) // C
    last = True
    if entered is not None:
        i_p = pid // NV // HV % pieces
        start = piece_start(starts, i_n, i_p, i_h, pieces, HV, n_t)
        scanned, end, before_it = piece_chunks(start, i_p, pieces, n_t)
        last = i_p == pieces - 1
        n_t = end - scanned
        bos += scanned * C
        i_slot += scanned
        length = gl.minimum(length - scanned * C, n_t * C)
    row = bos * HV + i_h
    row_k = bos * H + i_h // (HV // H)
    row_h = i_slot * HV + i_h

    s_k = gl.allocate_shared_memory(IO, [STAGES, C, K], S)
    s_v = s_k
    if v is not None:
        s_v = gl.allocate_shared_memory(IO, [STAGES, C, BV], S)
    s_Ai = gl.allocate_shared_memory(IO, [STAGES, C, C], S)
    s_h = gl.allocate_shared_memory(IO, [K, BV], S)
    s_beta = gl.allocate_shared_memory(gl.float32, [C], R)
    s_beta_gam = gl.allocate_shared_memory(gl.float32, [C], R)
    s_left = gl.allocate_shared_memory(gl.float32, [C], R)
    s_r = (s_beta, s_beta_gam, s_left)

    o_sv = i_v + gl.arange(0, BV, gl.SliceLayout(1, M_ck))
    o_sk = gl.arange(0, K, gl.SliceLayout(0, M_ck))
    p_s = (i_n.to(gl.int64) * HV + i_h) * (K * V) + o_sk[None, :] * V + o_sv[:, None]
    b_s = gl.zeros([BV, K], gl.float32, M_ck)
    if entered is not None:
        p_e = ((i_n.to(gl.int64) * pieces + i_p) * HV + i_h) * (K * V)
        b_s = gl.load((entered + p_e + o_sk[None, :] * V) + o_sv[:, None], mask=start < 0, other=0.0)
        if initial_state is not None:
            b_s += gl.load(initial_state + p_s, mask=start == 0, other=0.0)
    elif initial_state is not None:
        if forgotten is not None:
            b_s = gl.load(initial_state + p_s, mask=skipped == 0, other=0.0)
        else:
            b_s = gl.load(initial_state + p_s)
    if v is not None:
        v += i_v
    else:
        b_s = ((o_sk[None, :] == o_sv[:, None]) & (skipped == 0)).to(gl.float32)
    b_gl = 0.0
    if n_t > 0:
        for i in gl.static_range(STAGES - 1):
            i_t = gl.minimum(i, n_t - 1)
            n = gl.minimum(length - i_t * C, C)
            copy_chunk(s_k, s_v, s_Ai, i, k, v, Ai, row + i_t * C * HV, row_k + i_t * C * H, n, H, HV, K, V, W)
        n = gl.minimum(length, C)
        b_g, b_gl, b_beta = load_rates(beta, g, row, n, HV, C, L_r)
        store_rates(s_r, b_g, b_gl, b_beta, n, C, L_r)

    for i_t in range(n_t):
        slot, slot_ahead = i_t % STAGES, (i_t + STAGES - 1) % STAGES
        n = gl.minimum(length - i_t * C, C)
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        # a later chunk, and the next one's rates; after the last one that one again, for nobody
        i_ahead = gl.minimum(i_t + STAGES - 1, n_t - 1)
        n_ahead = gl.minimum(length - i_ahead * C, C)
        i_next = gl.minimum(i_t + 1, n_t - 1)
        n_next = gl.minimum(length - i_next * C, C)
        b_g, b_gl_next, b_beta = load_rates(beta, g, row + (i_next - i_t) * C * HV, n_next, HV, C, L_r)
        c_k = s_k.index(slot)
        c_v = s_v.index(slot)
        b_s16 = b_s.to(IO)
        zeros = gl.zeros([BV, C], gl.float32, M_vc)
        held = warpgroup_mma(gl.convert_layout(b_s16, by_k), c_k.permute((1, 0)), zeros, use_acc=False, is_async=True)
        copy_chunk(
            s_k, s_v, s_Ai, slot_ahead, k, v, Ai, row + (i_ahead - i_t) * C * HV, row_k + (i_ahead - i_t) * C * H,
            n_ahead, H, HV, K, V, W,
        )  # fmt: skip
        if h is not None:
            s_h.permute((1, 0)).store(b_s16)
        b_v = zeros
        if v is not None:
            b_v = c_v.permute((1, 0)).load(M_vc).to(gl.float32) * s_beta.load(columns)[None, :]
        b_beta_gam = s_beta_gam.load(columns)
        b_left = s_left.load(columns)
        own = True
        n_own = n
        if entered is not None:
            own = i_t >= before_it
            n_own = gl.where(own, n, 0)
        if h is not None:
            if own:
                store_tile(h + row_h * (K * V) + i_v, V, s_h, None, W)
        b_held = warpgroup_mma_wait(0, [held])
        b_x16 = gl.convert_layout((b_v - b_held * b_beta_gam[None, :]).to(IO), by_k)
        new = warpgroup_mma(b_x16, s_Ai.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        b_s *= gl.exp2(b_gl)
        b_new = warpgroup_mma_wait(0, [new])
        b_end = gl.convert_layout((b_new * b_left[None, :]).to(IO), by_c)
        state = warpgroup_mma(b_end, c_k, b_s, is_async=True)
        if v_new is not None:
            # the values have been read: their place takes the new ones on their way to rows
            c_v.permute((1, 0)).store(b_new.to(IO))
            store_tile(v_new + row * V + i_v, HV * V, c_v, n_own, W)
        store_rates(s_r, b_g, b_gl_next, b_beta, n_next, C, L_r)
        b_s = warpgroup_mma_wait(0, [state])
        row, row_k, row_h, b_gl = row + C * HV, row_k + C * H, row_h + HV, b_gl_next

    async_copy.wait_group(0)
    if final_state is not None:
        gl.store(final_state + p_s, b_s, mask=last)
