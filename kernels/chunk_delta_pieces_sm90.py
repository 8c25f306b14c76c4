"""What each piece of a sequence does to a state under the delta rule, for Hopper: chunk_delta_states_sm90 without what
that gives of every chunk."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from ._pieces import piece_chunks, piece_start
from .chunk_delta_o_sm90 import load_rates
from .chunk_delta_states_sm90 import copy_chunk, store_rates


@gluon.jit(do_not_specialize=["T", "H", "HV", "pieces"])
def chunk_delta_pieces_sm90_kernel(
    k, v, beta, Ai, g, initial_state, starts, maps, passed, T, H, HV, pieces,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """S <- 2^g_C S + (ga k)^T Ai beta (v - 2^g k S) over a piece: passed from the chunk where the piece starts, and
    what is known there; maps, of pieces without a start, from S = 1 with v = 0.

    Only where the next piece has no start, so never of the last one. Without passed, maps alone, for a reverse scan:
    where the piece before has none; the last one has a start. So all chunks are full, and v is of any values. One
    program of W warps owns BV columns of either for one piece of one sequence's head, held transposed, as in
    chunk_delta_states_sm90.
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
    REVERSE: gl.constexpr = passed is None
    NB: gl.constexpr = K // BV if REVERSE else (V + K) // BV

    pid = gl.program_id(0)
    i_b = pid % NB
    i_h = pid // NB % HV
    i_p = pid // NB // HV % (pieces - 1)
    i_n = pid // NB // HV // (pieces - 1)
    NT = (T + C - 1) // C
    is_map = i_b >= NV
    o_map = (i_b - NV) * BV
    after = i_p + 1
    if REVERSE:
        is_map = i_b >= 0
        o_map = i_b * BV
        after = i_p
        i_p += 1
    start = piece_start(starts, i_n, i_p, i_h, pieces, HV, NT, REVERSE)
    asked = piece_start(starts, i_n, after, i_h, pieces, HV, NT, REVERSE) < 0
    if (asked == 0) | (is_map & (start >= 0)):
        return
    scanned, end, _ = piece_chunks(start, i_p, pieces, NT)
    n_t = end - scanned
    i_v = gl.where(is_map, 0, i_b * BV)
    row = i_n.to(gl.int64) * T + scanned * C
    row_k = row * H + i_h // (HV // H)
    row = row * HV + i_h
    place = (i_n.to(gl.int64) * pieces + i_p) * HV + i_h

    s_k = gl.allocate_shared_memory(IO, [STAGES, C, K], S)
    s_v = gl.allocate_shared_memory(IO, [STAGES, C, BV], S)
    s_Ai = gl.allocate_shared_memory(IO, [STAGES, C, C], S)
    s_beta = gl.allocate_shared_memory(gl.float32, [C], R)
    s_beta_gam = gl.allocate_shared_memory(gl.float32, [C], R)
    s_left = gl.allocate_shared_memory(gl.float32, [C], R)
    s_r = (s_beta, s_beta_gam, s_left)

    o_sv = gl.arange(0, BV, gl.SliceLayout(1, M_ck))[:, None]
    o_sk = gl.arange(0, K, gl.SliceLayout(0, M_ck))[None, :]
    b_s = gl.where(is_map & (o_sk == o_sv + o_map), 1.0, 0.0)
    if initial_state is not None:
        p_s = (i_n.to(gl.int64) * HV + i_h) * (K * V) + i_v
        b_s += gl.load((initial_state + p_s + o_sk * V) + o_sv, mask=start == 0, other=0.0)
    v += i_v
    for i in gl.static_range(STAGES - 1):
        i_t = gl.minimum(i, n_t - 1)
        copy_chunk(s_k, s_v, s_Ai, i, k, v, Ai, row + i_t * C * HV, row_k + i_t * C * H, C, H, HV, K, V, W)
    b_g, b_gl, b_beta = load_rates(beta, g, row, C, HV, C, L_r)
    store_rates(s_r, b_g, b_gl, b_beta, C, C, L_r)

    for i_t in range(n_t):
        slot, slot_ahead = i_t % STAGES, (i_t + STAGES - 1) % STAGES
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        # a later chunk, and the next one's rates; after the last one that one again, for nobody
        ahead = gl.minimum(i_t + STAGES - 1, n_t - 1) - i_t
        following = gl.minimum(i_t + 1, n_t - 1) - i_t
        b_g, b_gl_next, b_beta = load_rates(beta, g, row + following * C * HV, C, HV, C, L_r)
        c_k = s_k.index(slot)
        zeros = gl.zeros([BV, C], gl.float32, M_vc)
        b_a = gl.convert_layout(b_s.to(IO), by_k)
        held = warpgroup_mma(b_a, c_k.permute((1, 0)), zeros, use_acc=False, is_async=True)
        copy_chunk(s_k, s_v, s_Ai, slot_ahead, k, v, Ai, row + ahead * C * HV, row_k + ahead * C * H, C, H, HV, K, V, W)
        b_v = s_v.index(slot).permute((1, 0)).load(M_vc).to(gl.float32) * s_beta.load(columns)[None, :]
        b_v = gl.where(is_map, 0.0, b_v)
        b_beta_gam = s_beta_gam.load(columns)
        b_left = s_left.load(columns)
        b_held = warpgroup_mma_wait(0, [held])
        b_x16 = gl.convert_layout((b_v - b_held * b_beta_gam[None, :]).to(IO), by_k)
        new = warpgroup_mma(b_x16, s_Ai.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        b_s *= gl.exp2(b_gl)
        b_new = warpgroup_mma_wait(0, [new])
        b_end = gl.convert_layout((b_new * b_left[None, :]).to(IO), by_c)
        state = warpgroup_mma(b_end, c_k, b_s, is_async=True)
        store_rates(s_r, b_g, b_gl_next, b_beta, C, C, L_r)
        b_s = warpgroup_mma_wait(0, [state])
        row, row_k, b_gl = row + C * HV, row_k + C * H, b_gl_next

    async_copy.wait_group(0)
    if is_map:
        gl.store((maps + place * (K * K) + o_map + o_sk * K) + o_sv, b_s)
    if passed is not None:
        if is_map == 0:
            gl.store((passed + place * (K * V) + i_v + o_sk * V) + o_sv, b_s)
