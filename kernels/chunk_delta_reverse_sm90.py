"""The reverse scan of the delta rule for Hopper, one program a multiprocessor: three groups of four warps side by side.
One carries the state's cotangent from chunk to chunk, one makes the scores and stores what leaves, one brings what both
read. In Gluon, which leaves this to the kernel."""

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

REGISTERS = gl.constexpr((160, 104))
"""A thread's, in the groups that emit and bring; 240 are left for the one that carries."""


@gluon.jit
def load_rates(g, beta, o_r, n, there, HV):
    """A chunk's g, that of its last row, and beta, on their way; g is 0 without, all are where there is no chunk."""
    b_g = gl.zeros_like(o_r).to(gl.float32)
    b_gl = 0.0
    if g is not None:
        b_g = gl.load(g + o_r * HV, mask=there, other=0.0)
        b_gl = gl.load(g + (n - 1) * HV, mask=there, other=0.0)
    return b_g, b_gl, gl.load(beta + o_r * HV, mask=there, other=0.0)


@gluon.jit
def store_rates(s_r, slot, b_g, b_gl, b_beta, scale, n, o_c):
    """The chunk's g as keys have it and, -inf past its n rows, as queries have it, scale 2^g, -beta 2^g and
    2^(g_C - g), the last three 0 past its rows, into this slot of the buffers s_r, of which each has its own: between
    two writes to one and the same the compiler puts a barrier."""
    m = o_c < n
    b_gi = gl.where(m, b_g, float("-inf"))
    b_gam = gl.exp2(b_gi)
    s_r[0].index(slot).store(b_g)
    s_r[1].index(slot).store(b_gi)
    s_r[2].index(slot).store(b_gam * scale)
    s_r[3].index(slot).store(b_gam * -b_beta.to(gl.float32))
    s_r[4].index(slot).store(gl.exp2(gl.where(m, b_gl - b_g, float("-inf"))))


@gluon.jit
def pair_decay_transposed(s_gj, s_gi, M: gl.constexpr):
    """E[i, j] = 2^(g_i - g_j) for j <= i, else 0, with j along the rows and i along the columns, in the layout M."""
    C: gl.constexpr = s_gj.shape[0]
    o_j = gl.arange(0, C, gl.SliceLayout(1, M))
    o_i = gl.arange(0, C, gl.SliceLayout(0, M))
    b_gj = s_gj.load(gl.SliceLayout(1, M))
    b_gi = s_gi.load(gl.SliceLayout(0, M))
    return gl.exp2(gl.where(o_i[None, :] >= o_j[:, None], b_gi[None, :] - b_gj[:, None], float("-inf")))


@gluon.jit
def bring(
    s_q, s_k, s_do, s_Ai, s_r, filled, ds_filled, q, k, d_o, Ai, beta, g, scale, row, row_k, length, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr,
):  # fmt: skip
    """Chunk after chunk into the slots, the last one first: q, k, d_o, Ai and, in s_r, the rates. Rows past a
    sequence's end repeat its last one. What passes through registers is loaded a chunk ahead."""
    o_c = gl.arange(0, C, gl.BlockedLayout([1], [32], [4], [0]))
    n = length - (NT - 1) * C
    o_r = gl.minimum(o_c, n - 1)
    o_k = row_offsets(C, K, H * K, n)
    o_v = row_offsets(C, BV, HV * V, n)
    o_Ai = row_offsets(C, C, HV * C, n)
    q += row_k * K
    k += row_k * K
    d_o += row * V
    Ai += row * C
    beta += row
    if g is not None:
        g += row
    slot = 0
    b_g, b_gl, b_beta = load_rates(g, beta, o_r, n, NT > 0, HV)
    for i in range(NT):
        # the slot's last chunk, three before, is done with once the cotangent two before has been announced
        mbarrier.wait(ds_filled.index(i % 2), ((i // 2) & 1) ^ 1, pred=i >= SLOTS)
        async_copy.async_copy_global_to_shared(s_k.index(slot), k + o_k)
        async_copy.async_copy_global_to_shared(s_q.index(slot), q + o_k)
        async_copy.async_copy_global_to_shared(s_do.index(slot), d_o + o_v)
        async_copy.async_copy_global_to_shared(s_Ai.index(slot), Ai + o_Ai)
        async_copy.mbarrier_arrive(filled.index(slot), increment_count=False)
        store_rates(s_r, slot, b_g, b_gl, b_beta, scale, n, o_c)
        publish(filled.index(slot))
        q -= C * H * K
        k -= C * H * K
        d_o -= C * HV * V
        Ai -= C * HV * C
        beta -= C * HV
        if g is not None:
            g -= C * HV
        slot, _ = next_slot(slot, 0)
        if n < C:
            n = C
            o_r = o_c
            o_k = row_offsets(C, K, H * K, C)
            o_v = row_offsets(C, BV, HV * V, C)
            o_Ai = row_offsets(C, C, HV * C, C)
        b_g, b_gl, b_beta = load_rates(g, beta, o_r, n, i + 1 < NT, HV)


@gluon.jit
def carry(
    s_q, s_k, s_do, s_Ai, s_p, s_ds, s_dx, s_r, filled, p_filled, ds_filled, dx_filled, read, d_final_state, at_end,
    turns, entered, is_entered, hands, passed, d_initial_state, at_start, d_s, NT,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, IO: gl.constexpr,
):  # fmt: skip
    """dS from chunk to chunk. Where it leaves a chunk it goes to s_ds, d_x to s_dx, both in turns. dS and what has V
    columns is held transposed: what comes out of one product is in the registers, as the next one's left operand. What
    comes through a chunk's own output is made while the chunk after it is at work."""
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, K, 16])
    M_vc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C, 16])
    by_k: gl.constexpr = gl.DotOperandLayout(0, M_vc, 2)
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    columns: gl.constexpr = gl.SliceLayout(0, M_vc)
    o_v = gl.arange(0, BV, gl.SliceLayout(1, M_ck))
    o_k = gl.arange(0, K, gl.SliceLayout(0, M_ck))
    b_ds = gl.zeros([BV, K], gl.float32, M_ck)
    if entered is not None:
        b_ds = gl.load((entered + o_k * V)[None, :] + o_v[:, None], mask=is_entered, other=0.0)
    if d_final_state is not None:
        b_ds += gl.load((d_final_state + o_k * V)[None, :] + o_v[:, None], mask=at_end, other=0.0)
    zeros = gl.zeros([BV, C], gl.float32, M_vc)
    slot = 0
    phase = 0
    b_own = zeros
    if NT > 0:
        mbarrier.wait(filled.index(slot), phase)
        mbarrier.wait(p_filled.index(0), 0)
        fence_async_shared()
        b_do = gl.convert_layout(s_do.index(slot).permute((1, 0)).load(M_vc), by_k)
        own = warpgroup_mma(b_do, s_p.index(0).permute((1, 0)), zeros, use_acc=False, is_async=True)
        b_own = warpgroup_mma_wait(0, [own])
    for i in range(NT):
        turn = i % 2
        c_q = s_q.index(slot)
        c_k = s_k.index(slot)
        c_Ai = s_Ai.index(slot)
        b_ds16 = b_ds.to(IO)
        b_a = gl.convert_layout(b_ds16, by_k)
        after = warpgroup_mma(b_a, c_k.permute((1, 0)), zeros, use_acc=False, is_async=True)
        mbarrier.wait(read.index(turn), ((i // 2) & 1) ^ 1)
        if d_s is not None:
            s_ds.index(turn).permute((1, 0)).store(b_ds16)
        barrier()
        mbarrier.arrive(ds_filled.index(turn), count=1)
        b_ds *= gl.exp2(s_r[0].index(slot).slice(C - 1, 1).load(gl.SliceLayout(1, M_ck)))[:, None]
        b_do = s_do.index(slot).permute((1, 0)).load(M_vc).to(gl.float32)
        b_a = gl.convert_layout((b_do * s_r[2].index(slot).load(columns)[None, :]).to(IO), by_c)
        # waits for nothing; without it ptxas waits for `after` before the next product, whose left operand is in
        # registers
        after = warpgroup_mma_wait(1, [after])
        state = warpgroup_mma(b_a, c_q, b_ds, is_async=True)
        _, b_left = gl.broadcast(b_own, s_r[4].index(slot).load(columns)[None, :])
        b_held = s_r[3].index(slot).load(columns)
        # one instruction a number once the product is there
        b_x = gl.fma(warpgroup_mma_wait(1, [after]), b_left, b_own)
        b_a = gl.convert_layout(b_x.to(IO), by_k)
        dx = warpgroup_mma(b_a, c_Ai, zeros, use_acc=False, is_async=True)
        # after the last chunk once more, for nobody
        ahead = gl.minimum(i + 1, NT - 1)
        if i + 1 < NT:
            slot, phase = next_slot(slot, phase)
        mbarrier.wait(filled.index(slot), phase)
        mbarrier.wait(p_filled.index(ahead % 2), (ahead // 2) & 1)
        fence_async_shared()
        b_a = gl.convert_layout(s_do.index(slot).permute((1, 0)).load(M_vc), by_k)
        dx = warpgroup_mma_wait(1, [dx])
        own = warpgroup_mma(b_a, s_p.index(ahead % 2).permute((1, 0)), zeros, use_acc=False, is_async=True)
        b_dx = warpgroup_mma_wait(1, [dx])
        b_a = gl.convert_layout((b_dx * b_held[None, :]).to(IO), by_c)
        own = warpgroup_mma_wait(1, [own])
        state = warpgroup_mma(b_a, c_k, state, is_async=True)
        s_dx.index(turn).permute((1, 0)).store(b_dx.to(IO))
        barrier()
        mbarrier.arrive(dx_filled.index(turn), count=1)
        b_own = warpgroup_mma_wait(1, [own])
        b_ds = warpgroup_mma_wait(0, [state])
    if turns is not None:
        gl.store((entered + o_k * V)[None, :] + o_v[:, None], b_ds, mask=hands)
    if passed is not None:
        gl.store((passed + o_k * V)[None, :] + o_v[:, None], b_ds)
    elif d_initial_state is not None:
        gl.store((d_initial_state + o_k * V)[None, :] + o_v[:, None], b_ds, mask=at_start)


@gluon.jit
def emit(
    s_q, s_k, s_p, s_ds, s_dx, s_r, filled, p_filled, ds_filled, dx_filled, read, d_x, d_s, scale, length, NT, not_own,
    HV, K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, IO: gl.constexpr,
):  # fmt: skip
    """The scores of a chunk, scale E * q k^T, to s_p in turns; then what leaves the chunk two before it, to memory,
    where that is not one of the first not_own."""
    M_cc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C, 16])
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BV, BV // 8], [4, 1], [1, 0])
    zeros = gl.zeros([C, C], gl.float32, M_cc)
    o_r = gl.arange(0, C, gl.SliceLayout(1, L))
    o_x = row_offsets(C, BV, HV * V, C)
    o_s = row_offsets(K, BV, V, K)
    slot = 0
    phase = 0
    n = length - (NT - 1) * C
    for i in range(NT + 2):
        turn = i % 2
        before = ((i // 2) & 1) ^ 1
        if i < NT:
            mbarrier.wait(filled.index(slot), phase)
            fence_async_shared()
            c_q = s_q.index(slot).permute((1, 0))
            p = warpgroup_mma(s_k.index(slot), c_q, zeros, use_acc=False, is_async=True)
            b_E = pair_decay_transposed(s_r[0].index(slot), s_r[1].index(slot), M_cc) * scale
            # the scores that have been in this turn are read once the cotangent two before has been announced
            mbarrier.wait(ds_filled.index(turn), before, pred=i > 1)
            s_p.index(turn).store((warpgroup_mma_wait(0, [p]) * b_E).to(IO))
            publish(p_filled.index(turn))
            slot, phase = next_slot(slot, phase)
        if i > 1:
            own = i - 2 >= not_own
            mbarrier.wait(ds_filled.index(turn), before)
            if d_s is not None:
                gl.store(d_s + o_s, s_ds.index(turn).load(L), mask=own)
                d_s -= HV * K * V
            mbarrier.wait(dx_filled.index(turn), before)
            if d_x is not None:
                b_dx = s_dx.index(turn).load(L)
            barrier()
            mbarrier.arrive(read.index(turn), count=1)
            if d_x is not None:
                gl.store(d_x + o_x, b_dx, mask=(o_r < n)[:, None] & own)
                d_x -= C * HV * V
            n = C


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV", "pieces", "ahead", "teams", "size", "scans"])
def chunk_delta_reverse_sm90_kernel(
    q, k, beta, Ai, g, d_o, d_final_state, starts, passed, entered, turns, d_x, d_s, d_initial_state, forgotten, scale,
    cu_seqlens, chunk_offsets, T, NT, H, HV, pieces, ahead, teams, size, scans,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr,
):  # fmt: skip
    """d_s = dS leaving each chunk; d_x = Ai^T (scale P^T d_o + (ga k) dS), P = E * q k^T;
    dS <- 2^g_C dS + scale (gam q)^T d_o - (beta gam k)^T d_x.

    One program owns BV value columns of one sequence's head, or of one of its pieces: with ``entered`` from the chunk
    before that in starts, or from the piece's last one and the state in entered; with ``passed`` the dS that leaves the
    piece is all that is wanted, where the piece before has no start, and none enters. With ``forgotten`` so many of a
    sequence's last chunks are left out; with ``turns`` it owns one of its parts, of which that with the last chunks
    comes first (_handover.py). The factors of rows past a sequence's end are 0.
    """
    L: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    L_r: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty
    NV: gl.constexpr = V // BV

    pid = gl.program_id(0)
    if turns is not None:
        pid, done, end, place = scanned_part(pid, ahead, teams, size, scans, NT, NV)
    i_v = pid % NV * BV
    i_h = pid // NV % HV
    i_n = pid // NV // HV
    if cu_seqlens is None:
        if ((entered is not None) and (turns is None)) or (passed is not None):
            i_n = i_n // pieces
        bos = i_n.to(gl.int64) * T
        length = T
        i_slot = i_n.to(gl.int64) * NT
    else:
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
        i_slot = gl.load(chunk_offsets + i_n).to(gl.int64)
    n_t = (length + C - 1) // C
    skipped = n_t * 0
    if forgotten is not None:
        skipped = gl.load(forgotten + i_n * HV + i_h)
        length = gl.minimum(length, (n_t - skipped) * C)
        n_t -= skipped
    at_end = skipped == 0
    at_start = at_end | (skipped > 0)
    is_entered = skipped < 0
    hands = False
    not_own = 0
    if turns is not None:
        at_end = done == 0
        is_entered = (done > 0) & (done < end)
        hands = (done < end) & (end < n_t)
        at_start = (done < end) & (end == n_t)
        begin = n_t - end
        n_t = end - done
        bos += begin * C
        i_slot += begin
        length = gl.minimum(length - begin * C, n_t * C)
        entered += place.to(gl.int64) * (K * V)
        if is_entered:
            take_over(turns, place)
    elif (entered is not None) or (passed is not None):
        i_p = pid // NV // HV % pieces
        start = piece_start(starts, i_n, i_p, i_h, pieces, HV, n_t, True)
        at_start = i_p == 0
        at_end = start == n_t
        is_entered = start < 0
        begin, end, not_own = piece_chunks(start, i_p, pieces, n_t, True)
        if passed is not None:
            unasked = at_start | (piece_start(starts, i_n, gl.maximum(i_p - 1, 0), i_h, pieces, HV, n_t, True) >= 0)
            end = gl.where(unasked, begin, end)
        n_t = end - begin
        bos += begin * C
        i_slot += begin
        length = gl.minimum(length - begin * C, n_t * C)
        place = ((i_n.to(gl.int64) * pieces + i_p) * HV + i_h) * (K * V) + i_v
        if entered is not None:
            entered += place
        if passed is not None:
            passed += place
    # rows of the last chunk, which comes first
    row = (bos + (n_t - 1) * C) * HV + i_h
    row_k = (bos + (n_t - 1) * C) * H + i_h // (HV // H)
    state = (i_n.to(gl.int64) * HV + i_h) * (K * V) + i_v
    if d_final_state is not None:
        d_final_state += state
    if d_initial_state is not None:
        d_initial_state += state
    if d_x is not None:
        d_x += row * V + i_v
    if d_s is not None:
        d_s += ((i_slot + n_t - 1) * HV + i_h) * (K * V) + i_v

    s_k = gl.allocate_shared_memory(IO, [SLOTS, C, K], L)
    s_q = gl.allocate_shared_memory(IO, [SLOTS, C, K], L)
    s_do = gl.allocate_shared_memory(IO, [SLOTS, C, BV], L)
    s_Ai = gl.allocate_shared_memory(IO, [SLOTS, C, C], L)
    s_p = gl.allocate_shared_memory(IO, [2, C, C], L)
    s_ds = gl.allocate_shared_memory(IO, [2, K, BV], L)
    s_dx = gl.allocate_shared_memory(IO, [2, C, BV], L)
    s_gj = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_gi = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_read = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_held = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_left = gl.allocate_shared_memory(gl.float32, [SLOTS, C], L_r)
    s_r = (s_gj, s_gi, s_read, s_held, s_left)
    # each thread that brings arrives when its copies have, and one for what was stored
    filled = barriers(SLOTS, 128 + 1)
    p_filled = barriers(2, 1)
    ds_filled = barriers(2, 1)
    dx_filled = barriers(2, 1)
    read = barriers(2, 1)

    gl.warp_specialize(
        [
            (carry, (s_q, s_k, s_do, s_Ai, s_p, s_ds, s_dx, s_r, filled, p_filled, ds_filled, dx_filled, read,
                     d_final_state, at_end, turns, entered, is_entered, hands, passed, d_initial_state, at_start, d_s,
                     n_t, K, V, C, BV, IO)),
            (emit, (s_q, s_k, s_p, s_ds, s_dx, s_r, filled, p_filled, ds_filled, dx_filled, read,
                    d_x, d_s, scale, length, n_t, not_own, HV, K, V, C, BV, IO)),
            (bring, (s_q, s_k, s_do, s_Ai, s_r, filled, ds_filled, q, k, d_o + i_v, Ai, beta, g, scale, row, row_k,
                     length, n_t, H, HV, K, V, C, BV)),
        ],
        [4, 4],
        REGISTERS,
    )  # fmt: skip
    if turns is not None:
        if hands:
            hand_over(turns, place)
