"""The scan that emits its output, for Hopper, one program a multiprocessor: three groups of four warps side by side.
One carries the state from chunk to chunk, one emits the output's rows, one brings what both read. In Gluon, which
leaves this to the kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ._barrier import barrier
from ._handover import hand_over, scanned_part, take_over
from ._pieces import piece_chunks, piece_start
from ._warp_groups import SLOTS, barriers, next_slot, publish, row_offsets
from .chunk_delta_o_sm90 import LOG2_E

REGISTERS = gl.constexpr((160, 104))
"""A thread's, in the groups that emit and bring; 240 are left for the one that carries."""


@gluon.jit
def lower_bits(C: gl.constexpr, n):
    """Of a tile's numbers, two to a word, all bits of those not above the diagonal; n rows are there, past them the
    last one again."""
    L: gl.constexpr = gl.BlockedLayout([1, 4], [256 // C, C // 8], [4, 1], [1, 0])
    o_i = gl.minimum(gl.arange(0, C, gl.SliceLayout(1, L)), n - 1)[:, None]
    o_j = 2 * gl.arange(0, C // 2, gl.SliceLayout(0, L))[None, :]
    return gl.where(o_i > o_j, -1, gl.where(o_i == o_j, 0xFFFF, 0))


@gluon.jit
def load_rates(g, beta, Ai, o_r, o_Ai, n, there, HV):
    """A chunk's g, that of its last row, beta and Ai, all on their way; 0 without, or where there is no such chunk."""
    b_g = gl.zeros_like(o_r).to(gl.float32)
    b_gl = 0.0
    if g is not None:
        b_g = gl.load(g + o_r * HV, mask=there, other=0.0)
        b_gl = gl.load(g + (n - 1) * HV, mask=there, other=0.0)
    b_beta = b_g
    b_Ai = o_Ai
    if Ai is not None:
        b_beta = gl.load(beta + o_r * HV, mask=there, other=0.0)
        b_Ai = gl.load(Ai + o_Ai, mask=there, other=0)
    return b_g, b_gl, b_beta, b_Ai


@gluon.jit
def pair_decay(s_g, M: gl.constexpr):
    """E[i, j] = 2^(g_i - g_j) for j <= i, else 0, in the layout M."""
    C: gl.constexpr = s_g.shape[0]
    o_i = gl.arange(0, C, gl.SliceLayout(1, M))
    o_j = gl.arange(0, C, gl.SliceLayout(0, M))
    b_gi = s_g.load(gl.SliceLayout(1, M))
    b_gj = s_g.load(gl.SliceLayout(0, M))
    return gl.exp2(gl.where(o_i[:, None] >= o_j[None, :], b_gi[:, None] - b_gj[None, :], float("-inf")))


@gluon.jit
def bring(
    s_q, s_k, s_v, s_Ai, s_r, filled, emptied, q, k, v, Ai, beta, g, slope, row, row_k, length, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr,
):  # fmt: skip
    """Chunk after chunk into the slots: q, k, v, the lower triangle of Ai and, in s_r, g, 2^g, 2^(g_C - g) and under
    the delta rule beta and -beta 2^g. Rows past a sequence's end repeat its last one. What passes through registers is
    loaded a chunk ahead; Ai as words of two numbers, which are masked at once."""
    L: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    o_c = gl.arange(0, C, L)
    o_r = gl.arange(0, C, L)
    o_k = row_offsets(C, K, H * K, C)
    o_v = row_offsets(C, BV, HV * V, C)
    o_Ai = row_offsets(C, C // 2, HV * C // 2, C, 4)
    lower = lower_bits(C, C)
    q += row_k * K
    k += row_k * K
    v += row * V
    if Ai is not None:
        Ai = (Ai + row * C).to(gl.pointer_type(gl.int32), bitcast=True)
        beta += row
    if g is not None:
        g += row
    slot = 0
    phase = 1
    n = gl.minimum(length, C)
    if n < C:
        o_r = gl.minimum(o_c, n - 1)
        o_k = row_offsets(C, K, H * K, n)
        o_v = row_offsets(C, BV, HV * V, n)
        o_Ai = row_offsets(C, C // 2, HV * C // 2, n, 4)
        lower = lower_bits(C, n)
    b_g, b_gl, b_beta, b_Ai = load_rates(g, beta, Ai, o_r, o_Ai, n, NT > 0, HV)
    for i_t in range(NT):
        mbarrier.wait(emptied.index(slot), phase)
        async_copy.async_copy_global_to_shared(s_k.index(slot), k + o_k)
        async_copy.async_copy_global_to_shared(s_q.index(slot), q + o_k)
        async_copy.async_copy_global_to_shared(s_v.index(slot), v + o_v)
        async_copy.mbarrier_arrive(filled.index(slot), increment_count=False)
        b_g += slope * (o_r + 1)
        b_gam = gl.exp2(b_g)
        # buffers of their own: between two writes to one and the same the compiler puts a barrier
        s_r[0].index(slot).store(b_g)
        s_r[1].index(slot).store(b_gam)
        s_r[2].index(slot).store(gl.exp2(gl.where(o_c < n, b_gl + slope * n - b_g, float("-inf"))))
        if Ai is not None:
            b_beta32 = b_beta.to(gl.float32)
            s_r[3].index(slot).store(b_beta32)
            s_r[4].index(slot).store(-b_beta32 * b_gam)
            s_Ai.index(slot).store(b_Ai & lower)
        publish(filled.index(slot))
        k += C * H * K
        q += C * H * K
        v += C * HV * V
        slot, phase = next_slot(slot, phase)
        n = gl.minimum(length - (i_t + 1) * C, C)
        if n < C:
            o_r = gl.minimum(o_c, n - 1)
            o_k = row_offsets(C, K, H * K, n)
            o_v = row_offsets(C, BV, HV * V, n)
            o_Ai = row_offsets(C, C // 2, HV * C // 2, n, 4)
            lower = lower_bits(C, n)
        if g is not None:
            g += C * HV
        if Ai is not None:
            beta += C * HV
            Ai += C * HV * C // 2
        b_g, b_gl, b_beta, b_Ai = load_rates(g, beta, Ai, o_r, o_Ai, n, i_t + 1 < NT, HV)


@gluon.jit
def carry(
    s_k, s_v, s_Ai, s_S, s_u, s_r, filled, emptied, S_filled, u_filled, read, initial_state, turns, entered,
    final_state, first, chained, hands, last, NT,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, IO: gl.constexpr,
):  # fmt: skip
    """The state from chunk to chunk. Where it enters a chunk it goes to s_S, under the delta rule the chunk's values to
    s_u, both in turns. State and values are held transposed: what comes out of one product is in the registers, as
    the next one's left operand. Of a piece or part, first, chained, hands and last say which states are its own."""
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, K, 16])
    M_vc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C, 16])
    by_k: gl.constexpr = gl.DotOperandLayout(0, M_vc, 2)
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    columns: gl.constexpr = gl.SliceLayout(0, M_vc)
    o_v = gl.arange(0, BV, gl.SliceLayout(1, M_ck))
    o_k = gl.arange(0, K, gl.SliceLayout(0, M_ck))
    b_s = gl.zeros([BV, K], gl.float32, M_ck)
    if entered is not None:
        b_s = gl.load((entered + o_k * V)[None, :] + o_v[:, None], mask=chained, other=0.0)
        if initial_state is not None:
            b_s += gl.load((initial_state + o_k * V)[None, :] + o_v[:, None], mask=first, other=0.0)
    elif initial_state is not None:
        b_s = gl.load((initial_state + o_k * V)[None, :] + o_v[:, None])
    zeros = gl.zeros([BV, C], gl.float32, M_vc)
    inverse = s_Ai
    if len(s_r) > 3:
        inverse = s_Ai._reinterpret(IO, [SLOTS, C, C], gl.NVMMASharedLayout(128, 16, 2))
    slot = 0
    phase = 0
    before = 0
    if NT > 0:
        mbarrier.wait(filled.index(slot), phase)
        fence_async_shared()
    for i_t in range(NT):
        turn = i_t % 2
        c_k = s_k.index(slot)
        b_s16 = b_s.to(IO)
        if len(s_r) > 3:
            b_a = gl.convert_layout(b_s16, by_k)
            held = warpgroup_mma(b_a, c_k.permute((1, 0)), zeros, use_acc=False, is_async=True)
        mbarrier.wait(read.index(turn), ((i_t // 2) & 1) ^ 1)
        s_S.index(turn).store(b_s16)
        b_v = s_v.index(slot).permute((1, 0)).load(M_vc).to(gl.float32)
        publish(S_filled.index(turn))
        # all warps have met since they were done with the chunk before this one
        mbarrier.arrive(emptied.index(before), count=1, pred=i_t > 0)
        if len(s_r) > 3:
            b_x = b_v * s_r[3].index(slot).load(columns)[None, :]
            _, b_rate = gl.broadcast(b_x, s_r[4].index(slot).load(columns)[None, :])
            # one instruction a number once the product is there
            b_x = gl.fma(warpgroup_mma_wait(0, [held]), b_rate, b_x)
            b_a = gl.convert_layout(b_x.to(IO), by_k)
            new = warpgroup_mma(b_a, inverse.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        b_left = s_r[2].index(slot).load(columns)
        b_s *= s_r[1].index(slot).slice(C - 1, 1).load(gl.SliceLayout(1, M_ck))[:, None]
        if len(s_r) > 3:
            b_v = warpgroup_mma_wait(0, [new])
        b_a = gl.convert_layout((b_v * b_left[None, :]).to(IO), by_c)
        state = warpgroup_mma(b_a, c_k, b_s, is_async=True)
        if len(s_r) > 3:
            s_u.index(turn).store(b_v.to(IO))
            publish(u_filled.index(turn))
        before = slot
        if i_t + 1 < NT:
            slot, phase = next_slot(slot, phase)
        mbarrier.wait(filled.index(slot), phase)
        fence_async_shared()
        b_s = warpgroup_mma_wait(0, [state])
    if turns is not None:
        gl.store((entered + o_k * V)[None, :] + o_v[:, None], b_s, mask=hands)
    if final_state is not None:
        gl.store((final_state + o_k * V)[None, :] + o_v[:, None], b_s, mask=last)


@gluon.jit
def emit(
    s_q, s_k, s_v, s_S, s_u, s_o, s_r, filled, emptied, S_filled, u_filled, read, o, scale, before_it, length, NT, HV,
    V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, IO: gl.constexpr,
):  # fmt: skip
    """The rows of the output, but for the chunks that come before the piece. Scores do not depend on the state: they
    are made a chunk ahead."""
    M_cc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C, 16])
    M_cv: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BV, 16])
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_cv, 2)
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BV, BV // 8], [4, 1], [1, 0])
    o_r = gl.arange(0, C, gl.SliceLayout(1, L))
    o_o = row_offsets(C, BV, HV * V, C)
    zeros = gl.zeros([C, C], gl.float32, M_cc)
    slot = 0
    phase = 0
    b_p = gl.zeros([C, C], IO, by_c)
    if NT > 0:
        mbarrier.wait(filled.index(slot), phase)
        fence_async_shared()
        c_k = s_k.index(slot).permute((1, 0))
        p = warpgroup_mma(s_q.index(slot), c_k, zeros, use_acc=False, is_async=True)
        b_E = pair_decay(s_r[0].index(slot), M_cc) * scale
        b_p = gl.convert_layout((warpgroup_mma_wait(0, [p]) * b_E).to(IO), by_c)
    for i_t in range(NT):
        turn = i_t % 2
        b_rate = s_r[1].index(slot).load(gl.SliceLayout(1, M_cv)) * scale
        mbarrier.wait(S_filled.index(turn), (i_t // 2) & 1)
        c_s = s_S.index(turn).permute((1, 0))
        zeros_o = gl.zeros([C, BV], gl.float32, M_cv)
        held = warpgroup_mma(s_q.index(slot), c_s, zeros_o, use_acc=False, is_async=True)
        b_o = warpgroup_mma_wait(0, [held]) * b_rate[:, None]
        if len(s_r) > 3:
            mbarrier.wait(u_filled.index(turn), (i_t // 2) & 1)
            c_u = s_u.index(turn).permute((1, 0))
        else:
            c_u = s_v.index(slot)
        out = warpgroup_mma(b_p, c_u, b_o, is_async=True)
        # scores of the next chunk; after the last one once more, for nobody
        before = slot
        if i_t + 1 < NT:
            slot, phase = next_slot(slot, phase)
        mbarrier.wait(filled.index(slot), phase)
        fence_async_shared()
        c_k = s_k.index(slot).permute((1, 0))
        p = warpgroup_mma(s_q.index(slot), c_k, zeros, use_acc=False, is_async=True)
        b_E = pair_decay(s_r[0].index(slot), M_cc) * scale
        b_o = warpgroup_mma_wait(1, [out])
        # on its way to rows
        s_o.store(b_o.to(IO))
        barrier()
        mbarrier.arrive(read.index(turn), count=1)
        mbarrier.arrive(emptied.index(before), count=1)
        gl.store(o + o_o, s_o.load(L), mask=((o_r < length - i_t * C) & (i_t >= before_it))[:, None])
        b_p = gl.convert_layout((warpgroup_mma_wait(0, [p]) * b_E).to(IO), by_c)
        o += C * HV * V


@gluon.jit(do_not_specialize=["scale", "T", "H", "HV", "pieces", "ahead", "teams", "size", "scans"])
def chunk_delta_o_groups_sm90_kernel(
    q, k, v, beta, Ai, g, g_gamma, initial_state, starts, entered, turns, o, final_state, scale, cu_seqlens,
    T, H, HV, pieces, ahead, teams, size, scans,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr,
):  # fmt: skip
    """v_new = Ai beta (v - 2^g k S), v itself without Ai; o = scale (2^g q S + (E * q k^T) v_new);
    S <- 2^g_C S + (ga k)^T v_new.

    One program owns BV value columns of one sequence's head, or with ``entered`` of one of its pieces: from the chunk
    in starts, or from the piece's first one and the state in entered. With ``turns`` one of its parts (_handover.py).
    What rows past a sequence's end give is never stored, and enters the state with the factor 0.
    """
    L: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    L_r: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty
    NV: gl.constexpr = V // BV

    pid = gl.program_id(0)
    if turns is not None:
        pid, begin, end, place = scanned_part(pid, ahead, teams, size, scans, (T + C - 1) // C, NV)
    i_v = pid % NV * BV
    i_h = pid // NV % HV
    i_n = pid // NV // HV
    if cu_seqlens is None:
        if (entered is not None) and (turns is None):
            i_n = i_n // pieces
        bos = i_n.to(gl.int64) * T
        length = T
    else:
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
    NT = (length + C - 1) // C
    first = True
    chained = False
    hands = False
    last = True
    before_it = 0
    if turns is not None:
        first = begin == 0
        chained = (begin > 0) & (begin < end)
        hands = (begin < end) & (end < NT)
        last = (begin < end) & (end == NT)
        NT = end - begin
        bos += begin * C
        length = gl.minimum(length - begin * C, NT * C)
        entered += place.to(gl.int64) * (K * V)
        if chained:
            take_over(turns, place)
    elif entered is not None:
        i_p = pid // NV // HV % pieces
        start = piece_start(starts, i_n, i_p, i_h, pieces, HV, NT)
        scanned, end, before_it = piece_chunks(start, i_p, pieces, NT)
        first = start == 0
        chained = start < 0
        last = i_p == pieces - 1
        NT = end - scanned
        bos += scanned * C
        length = gl.minimum(length - scanned * C, NT * C)
        entered += ((i_n.to(gl.int64) * pieces + i_p) * HV + i_h) * (K * V) + i_v
    row = bos * HV + i_h
    row_k = bos * H + i_h // (HV // H)
    slope = 0.0
    if g_gamma is not None:
        slope = gl.load(g_gamma + i_h) * LOG2_E
    state = (i_n.to(gl.int64) * HV + i_h) * (K * V) + i_v
    if initial_state is not None:
        initial_state += state
    if final_state is not None:
        final_state += state

    s_k = gl.allocate_shared_memory(IO, [SLOTS, C, K], L)
    s_q = gl.allocate_shared_memory(IO, [SLOTS, C, K], L)
    s_v = gl.allocate_shared_memory(IO, [SLOTS, C, BV], L)
    s_S = gl.allocate_shared_memory(IO, [2, BV, K], L)
    s_o = gl.allocate_shared_memory(IO, [C, BV], L)
    s_g = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_gam = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_left = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_r = (s_g, s_gam, s_left)
    s_Ai = s_v
    s_u = s_v
    if Ai is not None:
        s_Ai = gl.allocate_shared_memory(gl.int32, [SLOTS, C, C // 2], gl.NVMMASharedLayout(128, 32, 2))
        s_u = gl.allocate_shared_memory(IO, [2, BV, C], L)
        s_beta = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
        s_beta_gam = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
        s_r = (s_g, s_gam, s_left, s_beta, s_beta_gam)
    # each thread that brings arrives when its copies have, and one for what was stored
    filled = barriers(SLOTS, 128 + 1)
    emptied = barriers(SLOTS, 2)
    S_filled = barriers(2, 1)
    u_filled = barriers(2, 1)
    read = barriers(2, 1)

    gl.warp_specialize(
        [
            (carry, (s_k, s_v, s_Ai, s_S, s_u, s_r, filled, emptied, S_filled, u_filled, read, initial_state, turns,
                     entered, final_state, first, chained, hands, last, NT, K, V, C, BV, IO)),
            (emit, (s_q, s_k, s_v, s_S, s_u, s_o, s_r, filled, emptied, S_filled, u_filled, read, o + row * V + i_v,
                    scale, before_it, length, NT, HV, V, C, BV, IO)),
            (bring, (s_q, s_k, s_v, s_Ai, s_r, filled, emptied, q, k, v + i_v, Ai, beta, g, slope, row, row_k, length,
                     NT, H, HV, K, V, C, BV)),
        ],
        [4, 4],
        REGISTERS,
    )  # fmt: skip
    if turns is not None:
        if hands:
            hand_over(turns, place)
