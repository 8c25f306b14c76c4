"""Gradient of queries, for Hopper, programs that stay."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from .flash_bwd_dkdv_sm90 import copy_rows, store_rows
from .flash_bwd_dq_sm90 import scores, weights

LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def copy_keys(s_k, s_v, slot, k, v, base, n, Sk, H, W: gl.constexpr):
    """The tile of keys from n on, of this query head; past the last one the last row again."""
    D: gl.constexpr = s_k.shape[2]
    DV: gl.constexpr = s_v.shape[2]
    n = gl.minimum(n, Sk - 1)
    row = base + n.to(gl.int64) * H
    copy_rows(s_k.index(slot), k + row * D, H * D, Sk - n, W)
    copy_rows(s_v.index(slot), v + row * DV, H * DV, Sk - n, W)
    async_copy.commit_group()


@gluon.jit
def place(item, first, end, Sq, Sk, H, HQ, items, BM: gl.constexpr, BN: gl.constexpr, LEAST: gl.constexpr):
    """(batch and head, first query, first key, end of keys) of an item: tile_and_head's order, last queries first. At
    least LEAST tiles: those past the keys count for nothing."""
    tiles = (Sq + BM - 1) // BM
    block = item // (tiles * 8) * 8
    wide = gl.minimum(items // tiles - block, 8)
    rest = item - block * tiles
    i_bh = block + rest % wide
    m = (tiles - 1 - rest // wide) * BM
    p_m = (i_bh // HQ).to(gl.int64) * Sq
    start = gl.load(first + p_m + m) // BN * BN
    stop = (gl.load(end + p_m + gl.minimum(m + BM, Sq) - 1) + BN - 1) // BN * BN
    base = (i_bh // HQ).to(gl.int64) * Sk * H + i_bh % HQ // (HQ // H)
    return base, i_bh, m, start, gl.maximum(stop, start + LEAST * BN)


@gluon.jit
def borders(
    i_bh, m, stop, first, end, lse, delta, Sq, HQ, BM: gl.constexpr, BN: gl.constexpr, rows: gl.constexpr
):
    """Of the queries from m on: the first and the end of the keys that they all see, and of each the first and the end
    of its keys, lse in powers of two and delta."""
    i_b = i_bh // HQ
    p_m = i_b.to(gl.int64) * Sq + m
    last = gl.minimum(BM, Sq - m) - 1
    l_first = gl.load(first + p_m + last)
    m_end = gl.load(end + p_m)
    o_m = gl.minimum(gl.arange(0, BM, rows), last)
    b_first = gl.load(first + p_m + o_m)
    b_end = gl.load(end + p_m + o_m)
    row = p_m * HQ + (i_bh - i_b * HQ)
    b_lse = gl.load(lse + row + o_m * HQ) * LOG2_E
    b_delta = gl.load(delta + row + o_m * HQ)
    whole = gl.minimum((l_first + BN - 1) // BN * BN, stop)
    return whole, gl.maximum(m_end // BN * BN, whole), b_first, b_end, b_lse, b_delta


@gluon.jit
def copy_item(s_q, s_do, q, d_o, i_bh, m, Sq, HQ, W: gl.constexpr):
    D: gl.constexpr = s_q.shape[1]
    DV: gl.constexpr = s_do.shape[1]
    i_b = i_bh // HQ
    row = (i_b.to(gl.int64) * Sq + m) * HQ + (i_bh - i_b * HQ)
    copy_rows(s_q, q + row * D, HQ * D, Sq - m, W)
    copy_rows(s_do, d_o + row * DV, HQ * DV, Sq - m, W)


@gluon.jit
def weigh_queries(
    b_dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, a_base, a_n, a_high, x_base, x_low, x_high,
    factor, Sk, H, M_s: gl.constexpr, M_d: gl.constexpr, STAGES: gl.constexpr, MASKED: gl.constexpr,
    W: gl.constexpr,
):  # fmt: skip
    BN: gl.constexpr = s_k.shape[1]
    IO: gl.constexpr = s_k.dtype
    slot = t % STAGES
    async_copy.wait_group(STAGES - 2)
    fence_async_shared()
    BM: gl.constexpr = s_q.shape[0]
    DV: gl.constexpr = s_v.shape[2]
    zeros = gl.zeros([BM, BN], gl.float32, M_s)
    c_v = s_v.index(slot)
    v_0 = c_v.slice(0, DV // 2, dim=1).permute((1, 0))
    v_1 = c_v.slice(DV // 2, DV // 2, dim=1).permute((1, 0))
    s = warpgroup_mma(s_q, s_k.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
    dp = warpgroup_mma(s_do.slice(0, DV // 2, dim=1), v_0, zeros, use_acc=False, is_async=True)
    b_s = warpgroup_mma_wait(1, [s])
    dp = warpgroup_mma(s_do.slice(DV // 2, DV // 2, dim=1), v_1, dp, is_async=True)
    b_p = weights(b_s, b_lse, b_first, b_end, n, factor, MASKED, M_s)
    b_dp = warpgroup_mma_wait(0, [dp])
    b_ds = gl.convert_layout((b_p * (b_dp - b_delta[:, None])).to(IO), gl.DotOperandLayout(0, M_d, 2))
    b_dq = warpgroup_mma(b_ds, s_k.index(slot), b_dq, is_async=True)
    a_n += BN
    if a_n >= a_high:
        a_base, a_n, a_high = x_base, x_low, x_high
    gl.thread_barrier()
    copy_keys(s_k, s_v, (t + STAGES - 1) % STAGES, k, v, a_base, a_n, Sk, H, W)
    return warpgroup_mma_wait(0, [b_dq]), t + 1, a_base, a_n, a_high


@gluon.jit(do_not_specialize=["scale", "Sq", "Sk", "H", "HQ", "items"])
def flash_bwd_dq_sm90_kernel(
    q, k, v, first, end, d_o, lse, delta, d_q, scale, Sq, Sk, H, HQ, items, D: gl.constexpr, DV: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    M_s: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, BN, 16])
    M_q: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, D, 16])
    rows: gl.constexpr = gl.SliceLayout(1, M_s)
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    IO: gl.constexpr = k.dtype.element_ty
    programs = gl.num_programs(0)
    factor = scale * LOG2_E

    s_qs = gl.allocate_shared_memory(IO, [2, BM, D], S)
    s_dos = gl.allocate_shared_memory(IO, [2, BM, DV], S)
    s_k = gl.allocate_shared_memory(IO, [STAGES, BN, D], S)
    s_v = gl.allocate_shared_memory(IO, [STAGES, BN, DV], S)
    pid = gl.program_id(0)
    a_base, i_bh, m, start, stop = place(pid, first, end, Sq, Sk, H, HQ, items, BM, BN, STAGES - 1)
    copy_item(s_qs.index(0), s_dos.index(0), q, d_o, i_bh, m, Sq, HQ, W)
    for i in gl.static_range(STAGES - 1):
        copy_keys(s_k, s_v, i, k, v, a_base, start + i * BN, Sk, H, W)
    a_n, a_high = start + (STAGES - 2) * BN, stop
    t = 0
    turn = 0
    for item in range(pid, items, programs):
        s_q = s_qs.index(turn)
        s_do = s_dos.index(turn)
        turn = 1 - turn
        # past the last item that one again, for nobody
        x_base, x_bh, x_m, x_low, x_high = place(
            gl.minimum(item + programs, items - 1), first, end, Sq, Sk, H, HQ, items, BM, BN, STAGES - 1
        )
        copy_item(s_qs.index(turn), s_dos.index(turn), q, d_o, x_bh, x_m, Sq, HQ, W)
        whole, whole_stop, b_first, b_end, b_lse, b_delta = borders(
            i_bh, m, stop, first, end, lse, delta, Sq, HQ, BM, BN, rows
        )
        b_dq = gl.zeros([BM, D], gl.float32, M_q)
        for n in range(start, whole, BN):
            b_dq, t, a_base, a_n, a_high = weigh_queries(
                b_dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, a_base, a_n, a_high, x_base, x_low, x_high,
                factor, Sk, H, M_s, M_q, STAGES, True, W,
            )  # fmt: skip
        for n in range(whole, whole_stop, BN):
            b_dq, t, a_base, a_n, a_high = weigh_queries(
                b_dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, a_base, a_n, a_high, x_base, x_low, x_high,
                factor, Sk, H, M_s, M_q, STAGES, False, W,
            )  # fmt: skip
        for n in range(whole_stop, stop, BN):
            b_dq, t, a_base, a_n, a_high = weigh_queries(
                b_dq, s_q, s_do, s_k, s_v, t, b_lse, b_delta, b_first, b_end, k, v, n, a_base, a_n, a_high, x_base, x_low, x_high,
                factor, Sk, H, M_s, M_q, STAGES, True, W,
            )  # fmt: skip
        i_b = i_bh // HQ
        row = (i_b.to(gl.int64) * Sq + m) * HQ + (i_bh - i_b * HQ)
        n_here = Sq - m
        i_bh, m, start, stop = x_bh, x_m, x_low, x_high
        store_rows(d_q + row * D, s_q, (b_dq * scale).to(IO), HQ * D, n_here, W)
    async_copy.wait_group(0)
