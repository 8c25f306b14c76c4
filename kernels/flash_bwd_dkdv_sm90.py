"""Gradients of keys and values, for Hopper."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def copy_rows(b, x, stride, n, W: gl.constexpr):
    """Rows of x, ``stride`` apart, to the shared tile b, 16 bytes at a time; from the n-th on the last one again."""
    R: gl.constexpr = b.shape[0]
    D: gl.constexpr = b.shape[1]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [W, 1], [1, 0])
    o_r = gl.minimum(gl.arange(0, R, gl.SliceLayout(1, L)), n - 1)
    o_d = gl.arange(0, D, gl.SliceLayout(0, L))
    async_copy.async_copy_global_to_shared(b, x + (o_r[:, None] * stride + o_d[None, :]))


@gluon.jit
def copy_queries(
    s_q, s_do, s_lse, s_delta, slot, q, d_o, words, i_b, i_h, m, Sq, HQ, D: gl.constexpr, DV: gl.constexpr,
    W: gl.constexpr,
):  # fmt: skip
    BM: gl.constexpr = s_q.shape[1]
    L_w: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    row = (i_b * Sq + m) * HQ + i_h
    copy_rows(s_q.index(slot), q + row * D, HQ * D, Sq - m, W)
    copy_rows(s_do.index(slot), d_o + row * DV, HQ * DV, Sq - m, W)
    p_w = words + (i_b * HQ + i_h) * 2 * Sq + m
    o_w = gl.minimum(gl.arange(0, BM, L_w), Sq - m - 1)
    async_copy.async_copy_global_to_shared(s_lse.index(slot), p_w + o_w)
    async_copy.async_copy_global_to_shared(s_delta.index(slot), p_w + Sq + o_w)
    async_copy.commit_group()


@gluon.jit
def after(i_h, m, low, high, last_h, BM: gl.constexpr):
    """(head, tile) after this one; past the last one that one again."""
    more = m + BM < high
    stay = (i_h >= last_h) & (m + BM >= high)
    return gl.where(more | stay, i_h, i_h + 1), gl.where(more, m + BM, gl.where(stay, m, low))


@gluon.jit
def weigh_keys(
    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, i_h, m, h_2, m_2, low, high,
    last_h, factor, Sq, HQ, M_s: gl.constexpr, M_d: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr, MASKED: gl.constexpr,
    CARRY: gl.constexpr, LATE: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    BM: gl.constexpr = s_q.shape[1]
    BN: gl.constexpr = s_k.shape[0]
    D: gl.constexpr = s_k.shape[1]
    DV: gl.constexpr = s_v.shape[1]
    IO: gl.constexpr = s_k.dtype
    columns: gl.constexpr = gl.SliceLayout(0, M_s)
    slot = t % STAGES
    c_q = s_q.index(slot)
    c_do = s_do.index(slot)
    async_copy.wait_group(AHEAD - 1)
    fence_async_shared()
    zeros = gl.zeros([BN, BM], gl.float32, M_s)
    st = warpgroup_mma(s_k, c_q.permute((1, 0)), zeros, use_acc=False, is_async=True)
    dpt = warpgroup_mma(s_v, c_do.permute((1, 0)), zeros, use_acc=False, is_async=True)
    if not LATE:
        copy_queries(
            s_q, s_do, s_lse, s_delta, (t + AHEAD) % STAGES, q, d_o, words, i_b, h_2, m_2, Sq, HQ, D, DV, W
        )  # fmt: skip
        h_2, m_2 = after(h_2, m_2, low, high, last_h, BM)
    b_lse = s_lse.index(slot).load(columns)
    if CARRY:
        b_st, b_dk = warpgroup_mma_wait(1, [st, b_dk])
    else:
        b_st = warpgroup_mma_wait(1, [st])
    b_pt = gl.exp2(b_st * factor - b_lse[None, :])
    if MASKED:
        o_i = gl.arange(0, BM, columns)
        b_past = (o_i[None, :] - (b_low - m)[:, None]).to(gl.uint32)
        b_pt = gl.where(b_past < gl.maximum(b_high - b_low, 0).to(gl.uint32)[:, None], b_pt, 0.0)
    b_p16 = gl.convert_layout(b_pt.to(IO), gl.DotOperandLayout(0, M_d, 2))
    dv = warpgroup_mma(b_p16, c_do, b_dv, is_async=True)
    b_delta = s_delta.index(slot).load(columns)
    b_dpt = warpgroup_mma_wait(1, [dpt])
    b_ds = b_pt * (b_dpt - b_delta[None, :])
    b_ds16 = gl.convert_layout(b_ds.to(IO), gl.DotOperandLayout(0, M_d, 2))
    dk = warpgroup_mma(b_ds16, c_q, b_dk, is_async=True)
    if LATE:
        copy_queries(
            s_q, s_do, s_lse, s_delta, (t + AHEAD) % STAGES, q, d_o, words, i_b, h_2, m_2, Sq, HQ, D, DV, W
        )  # fmt: skip
        h_2, m_2 = after(h_2, m_2, low, high, last_h, BM)
    if CARRY:
        b_dv = warpgroup_mma_wait(1, [dv])
        b_dk = dk
    else:
        b_dv, b_dk = warpgroup_mma_wait(0, [dv, dk])
    return b_dk, b_dv, t + 1, h_2, m_2


@gluon.jit
def store_rows(x, s, b, stride, n, W: gl.constexpr):
    """The first n rows of b to x, ``stride`` apart, by way of the shared tile s."""
    R: gl.constexpr = s.shape[0]
    D: gl.constexpr = s.shape[1]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [W, 1], [1, 0])
    s.store(b)
    o_r = gl.arange(0, R, gl.SliceLayout(1, L))
    o_d = gl.arange(0, D, gl.SliceLayout(0, L))
    gl.store(x + (o_r[:, None] * stride + o_d[None, :]), s.load(L), mask=(o_r < n)[:, None])


@gluon.jit(do_not_specialize=["scale", "Sq", "Sk", "H", "HQ"])
def flash_bwd_dkdv_sm90_kernel(
    q, k, v, low, high, d_o, words, d_k, d_v, scale, Sq, Sk, H, HQ, D: gl.constexpr, DV: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr, W: gl.constexpr, CARRY: gl.constexpr,
    LATE: gl.constexpr,
):  # fmt: skip
    M_s: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, BM, 16])
    M_k: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, D, 16])
    rows: gl.constexpr = gl.SliceLayout(1, M_s)
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty

    pid = gl.program_id(0).to(gl.int64)
    tiles = (Sk + BN - 1) // BN
    block = pid // (tiles * 8) * 8
    wide = gl.minimum(gl.num_programs(0) // tiles - block, 8)
    rest = pid - block * tiles
    tile = rest // wide
    i_bh = block + rest % wide
    n = tile.to(gl.int32) * BN
    i_hk = (i_bh % H).to(gl.int32)
    i_b = i_bh // H
    s_k = gl.allocate_shared_memory(IO, [BN, D], S)
    s_v = gl.allocate_shared_memory(IO, [BN, DV], S)
    s_q = gl.allocate_shared_memory(IO, [STAGES, BM, D], S)
    s_do = gl.allocate_shared_memory(IO, [STAGES, BM, DV], S)
    s_lse = gl.allocate_shared_memory(gl.float32, [STAGES, BM], R)
    s_delta = gl.allocate_shared_memory(gl.float32, [STAGES, BM], R)

    row = (i_b * Sk + n) * H + i_hk
    copy_rows(s_k, k + row * D, H * D, Sk - n, W)
    copy_rows(s_v, v + row * DV, H * DV, Sk - n, W)
    last = gl.minimum(n + BN, Sk) - 1
    p_n = i_b * Sk
    n_low = gl.load(low + p_n + n)
    n_high = gl.load(high + p_n + last)
    l_low = gl.load(low + p_n + last)
    l_high = gl.load(high + p_n + n)
    o_n = gl.minimum(n + gl.arange(0, BN, rows), Sk - 1)
    b_low = gl.load(low + p_n + o_n)
    b_high = gl.load(high + p_n + o_n)
    start = n_low // BM * BM
    stop = (n_high + BM - 1) // BM * BM
    whole = gl.minimum((l_low + BM - 1) // BM * BM, stop)
    whole_stop = gl.maximum(l_high // BM * BM, whole)
    i_h = i_hk * (HQ // H)
    last_h = i_h + HQ // H - 1
    h_2, m_2 = i_h, start
    factor = scale * LOG2_E
    b_dk = gl.zeros([BN, D], gl.float32, M_k)
    b_dv = gl.zeros([BN, DV], gl.float32, M_k)
    if CARRY:
        b_dk = warpgroup_mma_init(b_dk)
    t = 0
    if start < stop:
        for i in gl.static_range(AHEAD):
            copy_queries(s_q, s_do, s_lse, s_delta, i, q, d_o, words, i_b, h_2, m_2, Sq, HQ, D, DV, W)
            h_2, m_2 = after(h_2, m_2, start, stop, last_h, BM)
        for h in range(i_h, last_h + 1):
            for m in range(start, whole, BM):
                b_dk, b_dv, t, h_2, m_2 = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, h, m, h_2,
                    m_2, start, stop, last_h, factor, Sq, HQ, M_s, M_k, STAGES, AHEAD, True, CARRY, LATE, W,
                )  # fmt: skip
            for m in range(whole, whole_stop, BM):
                b_dk, b_dv, t, h_2, m_2 = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, h, m, h_2,
                    m_2, start, stop, last_h, factor, Sq, HQ, M_s, M_k, STAGES, AHEAD, False, CARRY, LATE, W,
                )  # fmt: skip
            for m in range(whole_stop, stop, BM):
                b_dk, b_dv, t, h_2, m_2 = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, h, m, h_2,
                    m_2, start, stop, last_h, factor, Sq, HQ, M_s, M_k, STAGES, AHEAD, True, CARRY, LATE, W,
                )  # fmt: skip
    async_copy.commit_group()
    async_copy.wait_group(0)
    if CARRY:
        b_dk = warpgroup_mma_wait(0, [b_dk])
    b_seen = gl.convert_layout(b_low < b_high, gl.SliceLayout(1, M_k))[:, None]
    if d_k is not None:
        store_rows(d_k + row * D, s_k, gl.where(b_seen, b_dk * scale, 0.0).to(IO), H * D, Sk - n, W)
    if d_v is not None:
        store_rows(d_v + row * DV, s_v, gl.where(b_seen, b_dv, 0.0).to(IO), H * DV, Sk - n, W)
