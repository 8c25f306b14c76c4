"""Gradients of keys and values, for Hopper, programs that stay."""

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
    s_q, s_do, s_lse, s_delta, slot, q, d_o, words, base, i_bh, m, Sq, HQ, D: gl.constexpr, DV: gl.constexpr,
    W: gl.constexpr,
):  # fmt: skip
    BM: gl.constexpr = s_q.shape[1]
    L_w: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    m = gl.minimum(m, Sq - 1)
    row = base + m.to(gl.int64) * HQ
    copy_rows(s_q.index(slot), q + row * D, HQ * D, Sq - m, W)
    copy_rows(s_do.index(slot), d_o + row * DV, HQ * DV, Sq - m, W)
    p_w = words + i_bh.to(gl.int64) * 2 * Sq + m
    o_w = gl.minimum(gl.arange(0, BM, L_w), Sq - m - 1)
    async_copy.async_copy_global_to_shared(s_lse.index(slot), p_w + o_w)
    async_copy.async_copy_global_to_shared(s_delta.index(slot), p_w + Sq + o_w)
    async_copy.commit_group()


@gluon.jit
def place(item, low, high, Sq, Sk, H, HQ, items, BM: gl.constexpr, BN: gl.constexpr, LEAST: gl.constexpr):
    """(batch and key head, first key, first query, end of queries) of an item: tile_and_head's order. At least LEAST
    tiles: those past the queries count for nothing."""
    tiles = (Sk + BN - 1) // BN
    block = item // (tiles * 8) * 8
    wide = gl.minimum(items // tiles - block, 8)
    rest = item - block * tiles
    i_bh = block + rest % wide
    n = rest // wide * BN
    p_n = (i_bh // H).to(gl.int64) * Sk
    start = gl.load(low + p_n + n) // BM * BM
    stop = (gl.load(high + p_n + gl.minimum(n + BN, Sk) - 1) + BM - 1) // BM * BM
    base = (i_bh // H).to(gl.int64) * Sq * HQ + i_bh % H * (HQ // H)
    return base, i_bh, n, start, gl.maximum(stop, start + LEAST * BM)


@gluon.jit
def borders(i_bh, n, stop, low, high, Sk, H, BM: gl.constexpr, BN: gl.constexpr, rows: gl.constexpr):
    """(first, end of the queries that see them all; first, end of the queries of each) of the keys from n on."""
    p_n = (i_bh // H).to(gl.int64) * Sk
    l_low = gl.load(low + p_n + gl.minimum(n + BN, Sk) - 1)
    l_high = gl.load(high + p_n + n)
    o_n = gl.minimum(n + gl.arange(0, BN, rows), Sk - 1)
    b_low = gl.load(low + p_n + o_n)
    b_high = gl.load(high + p_n + o_n)
    whole = gl.minimum((l_low + BM - 1) // BM * BM, stop)
    return whole, gl.maximum(l_high // BM * BM, whole), b_low, b_high


@gluon.jit
def copy_item(s_k, s_v, k, v, i_bh, n, Sk, H, W: gl.constexpr):
    D: gl.constexpr = s_k.shape[1]
    DV: gl.constexpr = s_v.shape[1]
    i_b = i_bh // H
    row = (i_b.to(gl.int64) * Sk + n) * H + (i_bh - i_b * H)
    copy_rows(s_k, k + row * D, H * D, Sk - n, W)
    copy_rows(s_v, v + row * DV, H * DV, Sk - n, W)


@gluon.jit
def after(a_base, a_bh, a_last, a_m, a_low, a_high, x_base, x_bh, x_low, x_high, group, BM: gl.constexpr):
    """The tile after this one: of the same head, of the next head of the group, of the next item."""
    m = a_m + BM
    if m >= a_high:
        if a_bh >= a_last:
            a_base, a_bh, a_last, a_low, a_high = x_base, x_bh * group, x_bh * group + group - 1, x_low, x_high
        else:
            a_base += 1
            a_bh += 1
        m = a_low
    return a_base, a_bh, a_last, m, a_low, a_high


@gluon.jit
def weigh_keys(
    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, m, a_base, a_bh, a_last, a_m, a_low, a_high, x_base,
    x_bh, x_low, x_high, group, factor, Sq, HQ, M_s: gl.constexpr, M_d: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr, MASKED: gl.constexpr,
    CARRY: gl.constexpr, W: gl.constexpr,
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
    a_base, a_bh, a_last, a_m, a_low, a_high = after(
        a_base, a_bh, a_last, a_m, a_low, a_high, x_base, x_bh, x_low, x_high, group, BM
    )  # fmt: skip
    copy_queries(s_q, s_do, s_lse, s_delta, (t + AHEAD) % STAGES, q, d_o, words, a_base, a_bh, a_m, Sq, HQ, D, DV, W)
    if CARRY:
        b_dv = warpgroup_mma_wait(1, [dv])
        b_dk = dk
    else:
        b_dv, b_dk = warpgroup_mma_wait(0, [dv, dk])
    return b_dk, b_dv, t + 1, a_base, a_bh, a_last, a_m, a_low, a_high


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


@gluon.jit(do_not_specialize=["scale", "Sq", "Sk", "H", "HQ", "items"])
def flash_bwd_dkdv_sm90_kernel(
    q, k, v, low, high, d_o, words, d_k, d_v, scale, Sq, Sk, H, HQ, items, D: gl.constexpr, DV: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr, W: gl.constexpr, CARRY: gl.constexpr,
):  # fmt: skip
    M_s: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, BM, 16])
    M_k: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, D, 16])
    rows: gl.constexpr = gl.SliceLayout(1, M_s)
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty
    group = HQ // H
    programs = gl.num_programs(0)

    s_ks = gl.allocate_shared_memory(IO, [2, BN, D], S)
    s_vs = gl.allocate_shared_memory(IO, [2, BN, DV], S)
    s_q = gl.allocate_shared_memory(IO, [STAGES, BM, D], S)
    s_do = gl.allocate_shared_memory(IO, [STAGES, BM, DV], S)
    s_lse = gl.allocate_shared_memory(gl.float32, [STAGES, BM], R)
    s_delta = gl.allocate_shared_memory(gl.float32, [STAGES, BM], R)
    factor = scale * LOG2_E

    pid = gl.program_id(0)
    a_base, i_bh, n, start, stop = place(pid, low, high, Sq, Sk, H, HQ, items, BM, BN, AHEAD)
    copy_item(s_ks.index(0), s_vs.index(0), k, v, i_bh, n, Sk, H, W)
    a_bh, a_last, a_m, a_low, a_high = i_bh * group, i_bh * group + group - 1, start, start, stop
    for i in gl.static_range(AHEAD):
        copy_queries(s_q, s_do, s_lse, s_delta, i, q, d_o, words, a_base, a_bh, start + i * BM, Sq, HQ, D, DV, W)
    a_m = start + (AHEAD - 1) * BM
    t = 0
    turn = 0
    for item in range(pid, items, programs):
        s_k = s_ks.index(turn)
        s_v = s_vs.index(turn)
        turn = 1 - turn
        # past the last item that one again, for nobody
        x_base, x_bh, x_n, x_low, x_high = place(
            gl.minimum(item + programs, items - 1), low, high, Sq, Sk, H, HQ, items, BM, BN, AHEAD
        )
        copy_item(s_ks.index(turn), s_vs.index(turn), k, v, x_bh, x_n, Sk, H, W)
        whole, whole_stop, b_low, b_high = borders(i_bh, n, stop, low, high, Sk, H, BM, BN, rows)
        b_dk = gl.zeros([BN, D], gl.float32, M_k)
        b_dv = gl.zeros([BN, DV], gl.float32, M_k)
        if CARRY:
            b_dk = warpgroup_mma_init(b_dk)
        for _ in range(group):
            for m in range(start, whole, BM):
                b_dk, b_dv, t, a_base, a_bh, a_last, a_m, a_low, a_high = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, m, a_base, a_bh, a_last, a_m,
                    a_low, a_high, x_base, x_bh, x_low, x_high, group, factor, Sq, HQ, M_s, M_k, STAGES, AHEAD, True, CARRY, W,
                )  # fmt: skip
            for m in range(whole, whole_stop, BM):
                b_dk, b_dv, t, a_base, a_bh, a_last, a_m, a_low, a_high = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, m, a_base, a_bh, a_last, a_m,
                    a_low, a_high, x_base, x_bh, x_low, x_high, group, factor, Sq, HQ, M_s, M_k, STAGES, AHEAD, False, CARRY, W,
                )  # fmt: skip
            for m in range(whole_stop, stop, BM):
                b_dk, b_dv, t, a_base, a_bh, a_last, a_m, a_low, a_high = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, m, a_base, a_bh, a_last, a_m,
                    a_low, a_high, x_base, x_bh, x_low, x_high, group, factor, Sq, HQ, M_s, M_k, STAGES, AHEAD, True, CARRY, W,
                )  # fmt: skip
        if CARRY:
            b_dk = warpgroup_mma_wait(0, [b_dk])
        i_b = i_bh // H
        row = (i_b.to(gl.int64) * Sk + n) * H + (i_bh - i_b * H)
        n_here = Sk - n
        b_seen = gl.convert_layout(b_low < b_high, gl.SliceLayout(1, M_k))[:, None]
        i_bh, n, start, stop = x_bh, x_n, x_low, x_high
        if d_k is not None:
            store_rows(d_k + row * D, s_k, gl.where(b_seen, b_dk * scale, 0.0).to(IO), H * D, n_here, W)
        if d_v is not None:
            store_rows(d_v + row * DV, s_v, gl.where(b_seen, b_dv, 0.0).to(IO), H * DV, n_here, W)
    async_copy.wait_group(0)
