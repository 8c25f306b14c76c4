"""Gradient of queries, for Hopper."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from .flash_bwd_dkdv_sm90 import copy_rows, store_rows

LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def copy_keys(s_k, s_v, slot, k, v, n, Sk, H, W: gl.constexpr):
    """The tile of keys from n on; past the last tile the last row again."""
    D: gl.constexpr = s_k.shape[2]
    DV: gl.constexpr = s_v.shape[2]
    n = gl.minimum(n, Sk - 1)
    row = gl.to_tensor(n).to(gl.int64) * H
    copy_rows(s_k.index(slot), k + row * D, H * D, Sk - n, W)
    copy_rows(s_v.index(slot), v + row * DV, H * DV, Sk - n, W)
    async_copy.commit_group()


@gluon.jit
def scores(s_q, s_do, s_k, s_v, M_s: gl.constexpr):
    BM: gl.constexpr = s_q.shape[0]
    BN: gl.constexpr = s_k.shape[0]
    zeros = gl.zeros([BM, BN], gl.float32, M_s)
    s = warpgroup_mma(s_q, s_k.permute((1, 0)), zeros, use_acc=False, is_async=True)
    dp = warpgroup_mma(s_do, s_v.permute((1, 0)), zeros, use_acc=False, is_async=True)
    return s, dp


@gluon.jit
def weights(b_s, b_lse, b_first, b_end, n, factor, MASKED: gl.constexpr, M_s: gl.constexpr):
    BN: gl.constexpr = b_s.shape[1]
    b_p = gl.exp2(b_s * factor - b_lse[:, None])
    if MASKED:
        o_i = gl.arange(0, BN, gl.SliceLayout(0, M_s))
        b_past = (o_i[None, :] - (b_first - n)[:, None]).to(gl.uint32)
        b_p = gl.where(b_past < gl.maximum(b_end - b_first, 0).to(gl.uint32)[:, None], b_p, 0.0)
    return b_p


@gluon.jit
def weigh_queries(
    b_dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s: gl.constexpr,
    M_d: gl.constexpr, STAGES: gl.constexpr, MASKED: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    BN: gl.constexpr = s_k.shape[1]
    IO: gl.constexpr = s_k.dtype
    slot = t % STAGES
    async_copy.wait_group(STAGES - 2)
    fence_async_shared()
    s, dp = scores(s_q, s_do, s_k.index(slot), s_v.index(slot), M_s)
    b_s = warpgroup_mma_wait(1, [s])
    b_p = weights(b_s, b_lse, b_first, b_end, n, factor, MASKED, M_s)
    b_dp, b_p = warpgroup_mma_wait(0, [dp, b_p])  # tied: else ptxas moves exp2 behind the wait
    b_ds = gl.convert_layout((b_p * (b_dp - b_delta[:, None])).to(IO), gl.DotOperandLayout(0, M_d, 2))
    b_dq = warpgroup_mma(b_ds, s_k.index(slot), b_dq, is_async=True)
    copy_keys(s_k, s_v, (t + STAGES - 1) % STAGES, k, v, n + BN * (STAGES - 1), Sk, H, W)
    return warpgroup_mma_wait(0, [b_dq]), t + 1


@gluon.jit
def weigh_halves(
    b_dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s: gl.constexpr,
    M_d: gl.constexpr, STAGES: gl.constexpr, MASKED: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """A tile of keys in halves: the products of one run while the other's weights are made."""
    BN: gl.constexpr = s_k.shape[1]
    HALF: gl.constexpr = BN // 2
    IO: gl.constexpr = s_k.dtype
    by: gl.constexpr = gl.DotOperandLayout(0, M_d, 2)
    slot = t % STAGES
    c_k = s_k.index(slot)
    c_v = s_v.index(slot)
    async_copy.wait_group(STAGES - 2)
    fence_async_shared()
    k_0 = c_k.slice(0, HALF)
    k_1 = c_k.slice(HALF, HALF)
    s_0, dp_0 = scores(s_q, s_do, k_0, c_v.slice(0, HALF), M_s)
    s_1, dp_1 = scores(s_q, s_do, k_1, c_v.slice(HALF, HALF), M_s)
    b_s0 = warpgroup_mma_wait(3, [s_0])
    b_p0 = weights(b_s0, b_lse, b_first, b_end, n, factor, MASKED, M_s)
    b_dp0, b_p0 = warpgroup_mma_wait(2, [dp_0, b_p0])
    b_ds0 = gl.convert_layout((b_p0 * (b_dp0 - b_delta[:, None])).to(IO), by)
    dq = warpgroup_mma(b_ds0, k_0, b_dq, is_async=True)
    b_s1 = warpgroup_mma_wait(2, [s_1])
    b_p1 = weights(b_s1, b_lse, b_first, b_end, n + HALF, factor, MASKED, M_s)
    b_dp1, b_p1 = warpgroup_mma_wait(1, [dp_1, b_p1])
    b_ds1 = gl.convert_layout((b_p1 * (b_dp1 - b_delta[:, None])).to(IO), by)
    dq = warpgroup_mma(b_ds1, k_1, dq, is_async=True)
    copy_keys(s_k, s_v, (t + STAGES - 1) % STAGES, k, v, n + BN * (STAGES - 1), Sk, H, W)
    return warpgroup_mma_wait(0, [dq]), t + 1


@gluon.jit
def weigh_pieces(
    dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s: gl.constexpr,
    M_d: gl.constexpr, STAGES: gl.constexpr, MASKED: gl.constexpr, W: gl.constexpr, CARRY: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """do v^T is asked for, or its second half is, when the scores are there: ptxas puts exp2 between its parts, and
    behind the wait for it otherwise."""
    BM: gl.constexpr = s_q.shape[0]
    BN: gl.constexpr = s_k.shape[1]
    DV: gl.constexpr = s_v.shape[2]
    IO: gl.constexpr = s_k.dtype
    slot = t % STAGES
    async_copy.wait_group(STAGES - 2)
    fence_async_shared()
    zeros = gl.zeros([BM, BN], gl.float32, M_s)
    c_v = s_v.index(slot)
    s = warpgroup_mma(s_q, s_k.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
    if SPLIT:
        v_0 = c_v.slice(0, DV // 2, dim=1).permute((1, 0))
        v_1 = c_v.slice(DV // 2, DV // 2, dim=1).permute((1, 0))
        dp = warpgroup_mma(s_do.slice(0, DV // 2, dim=1), v_0, zeros, use_acc=False, is_async=True)
        if CARRY:
            b_s, b_dq = warpgroup_mma_wait(1, [s, dq])
        else:
            b_s = warpgroup_mma_wait(1, [s])
        dp = warpgroup_mma(s_do.slice(DV // 2, DV // 2, dim=1), v_1, dp, is_async=True)
    else:
        if CARRY:
            b_s, b_dq = warpgroup_mma_wait(0, [s, dq])
        else:
            b_s = warpgroup_mma_wait(0, [s])
        dp = warpgroup_mma(s_do, c_v.permute((1, 0)), zeros, use_acc=False, is_async=True)
    if not CARRY:
        b_dq = dq
    b_p = weights(b_s, b_lse, b_first, b_end, n, factor, MASKED, M_s)
    b_dp = warpgroup_mma_wait(0, [dp])
    b_ds = gl.convert_layout((b_p * (b_dp - b_delta[:, None])).to(IO), gl.DotOperandLayout(0, M_d, 2))
    dq = warpgroup_mma(b_ds, s_k.index(slot), b_dq, is_async=True)
    gl.thread_barrier()
    copy_keys(s_k, s_v, (t + STAGES - 1) % STAGES, k, v, n + BN * (STAGES - 1), Sk, H, W)
    if not CARRY:
        dq = warpgroup_mma_wait(0, [dq])
    return dq, t + 1


@gluon.jit
def weigh_carried(
    dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s: gl.constexpr,
    M_d: gl.constexpr, STAGES: gl.constexpr, MASKED: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """The product is left on its way, and the tile that is copied takes the place of the one before the last."""
    BN: gl.constexpr = s_k.shape[1]
    IO: gl.constexpr = s_k.dtype
    slot = t % STAGES
    async_copy.wait_group(STAGES - 2)
    fence_async_shared()
    s, dp = scores(s_q, s_do, s_k.index(slot), s_v.index(slot), M_s)
    b_s, b_dq = warpgroup_mma_wait(1, [s, dq])
    b_p = weights(b_s, b_lse, b_first, b_end, n, factor, MASKED, M_s)
    b_dp, b_p = warpgroup_mma_wait(0, [dp, b_p])  # tied: else ptxas moves exp2 behind the wait
    b_ds = gl.convert_layout((b_p * (b_dp - b_delta[:, None])).to(IO), gl.DotOperandLayout(0, M_d, 2))
    dq = warpgroup_mma(b_ds, s_k.index(slot), b_dq, is_async=True)
    gl.thread_barrier()
    copy_keys(s_k, s_v, (t + STAGES - 1) % STAGES, k, v, n + BN * (STAGES - 1), Sk, H, W)
    return dq, t + 1


@gluon.jit(do_not_specialize=["scale", "Sq", "Sk", "H", "HQ"])
def flash_bwd_dq_sm90_kernel(
    q, k, v, first, end, d_o, lse, delta, d_q, scale, Sq, Sk, H, HQ, D: gl.constexpr, DV: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr, FORM: gl.constexpr,
    HELD: gl.constexpr,
):  # fmt: skip
    M_s: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, BN // 2 if FORM == 1 else BN, 16])
    M_q: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, D, 16])
    rows: gl.constexpr = gl.SliceLayout(1, M_s)
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    IO: gl.constexpr = k.dtype.element_ty

    pid = gl.program_id(0).to(gl.int64)
    tiles = (Sq + BM - 1) // BM
    block = pid // (tiles * 8) * 8
    wide = gl.minimum(gl.num_programs(0) // tiles - block, 8)
    rest = pid - block * tiles
    i_bh = block + rest % wide
    m = (tiles - 1 - rest // wide).to(gl.int32) * BM
    i_h = i_bh % HQ
    i_b = i_bh // HQ
    p_m = i_b * Sq + m
    row = p_m * HQ + i_h
    last = gl.minimum(m + BM, Sq) - 1 - m
    m_first = gl.load(first + p_m)
    l_first = gl.load(first + p_m + last)
    m_end = gl.load(end + p_m)
    l_end = gl.load(end + p_m + last)
    s_q = gl.allocate_shared_memory(IO, [BM, D], S)
    s_do = gl.allocate_shared_memory(IO, [BM, DV], S)
    s_k = gl.allocate_shared_memory(IO, [STAGES, BN, D], S)
    s_v = gl.allocate_shared_memory(IO, [STAGES, BN, DV], S)
    copy_rows(s_q, q + row * D, HQ * D, Sq - m, W)
    copy_rows(s_do, d_o + row * DV, HQ * DV, Sq - m, W)
    o_m = gl.minimum(gl.arange(0, BM, rows), last)
    b_first = gl.load(first + p_m + o_m)
    b_end = gl.load(end + p_m + o_m)
    b_lse = gl.load(lse + row + o_m * HQ) * LOG2_E
    b_delta = gl.load(delta + row + o_m * HQ)
    start = m_first // BN * BN
    stop = (l_end + BN - 1) // BN * BN
    whole = gl.minimum((l_first + BN - 1) // BN * BN, stop)
    whole_stop = gl.maximum(m_end // BN * BN, whole)
    factor = scale * LOG2_E
    p_k = i_b * Sk * H + i_h // (HQ // H)
    k += p_k * D
    v += p_k * DV
    b_dq = gl.zeros([BM, D], gl.float32, M_q)
    t = 0
    x_q = s_q
    x_do = s_do
    if HELD:
        async_copy.commit_group()
        async_copy.wait_group(0)
        x_q = s_q.load(gl.DotOperandLayout(0, M_s, 2))
        if HELD == 2:
            x_do = s_do.load(gl.DotOperandLayout(0, M_s, 2))
    if start < stop:
        for i in gl.static_range(STAGES - 1):
            copy_keys(s_k, s_v, i, k, v, start + i * BN, Sk, H, W)
        if FORM == 0:
            for n in range(start, whole, BN):
                b_dq, t = weigh_queries(
                    b_dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W,
                )  # fmt: skip
            for n in range(whole, whole_stop, BN):
                b_dq, t = weigh_queries(
                    b_dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, False, W,
                )  # fmt: skip
            for n in range(whole_stop, stop, BN):
                b_dq, t = weigh_queries(
                    b_dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W,
                )  # fmt: skip
        elif FORM == 1:
            for n in range(start, whole, BN):
                b_dq, t = weigh_halves(
                    b_dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W,
                )  # fmt: skip
            for n in range(whole, whole_stop, BN):
                b_dq, t = weigh_halves(
                    b_dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, False, W,
                )  # fmt: skip
            for n in range(whole_stop, stop, BN):
                b_dq, t = weigh_halves(
                    b_dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W,
                )  # fmt: skip
        elif FORM == 2:
            dq = warpgroup_mma_init(b_dq)
            for n in range(start, whole, BN):
                dq, t = weigh_carried(
                    dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W,
                )  # fmt: skip
            for n in range(whole, whole_stop, BN):
                dq, t = weigh_carried(
                    dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, False, W,
                )  # fmt: skip
            for n in range(whole_stop, stop, BN):
                dq, t = weigh_carried(
                    dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W,
                )  # fmt: skip
            b_dq = warpgroup_mma_wait(0, [dq])
        else:
            CARRY: gl.constexpr = FORM == 4 or FORM == 6
            SPLIT: gl.constexpr = FORM >= 5
            if CARRY:
                dq = warpgroup_mma_init(b_dq)
            else:
                dq = b_dq
            for n in range(start, whole, BN):
                dq, t = weigh_pieces(
                    dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W, CARRY, SPLIT,
                )  # fmt: skip
            for n in range(whole, whole_stop, BN):
                dq, t = weigh_pieces(
                    dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, False, W, CARRY, SPLIT,
                )  # fmt: skip
            for n in range(whole_stop, stop, BN):
                dq, t = weigh_pieces(
                    dq, x_q, x_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, factor, Sk, H, M_s, M_q,
                    STAGES, True, W, CARRY, SPLIT,
                )  # fmt: skip
            if CARRY:
                b_dq = warpgroup_mma_wait(0, [dq])
            else:
                b_dq = dq
    async_copy.commit_group()
    async_copy.wait_group(0)
    store_rows(d_q + row * D, s_q, (b_dq * scale).to(IO), HQ * D, Sq - m, W)
