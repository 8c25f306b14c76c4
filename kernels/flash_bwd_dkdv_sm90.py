"""Gradients of keys and values of attention, for Hopper: the tiles of queries that come next are on their way, and do
v^T is made, while weights are. In Gluon, which leaves both to the kernel.

Formulas and the order of products: flash_bwd. Which queries see a key is two numbers of the key, in registers for the
whole program; tiles at a border differ by a mask alone.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def copy_rows(b, x, stride, n, W: gl.constexpr):
    """The n rows of x, ``stride`` apart, to the shared tile b, 16 bytes at a time; past them the last one again."""
    R: gl.constexpr = b.shape[0]
    D: gl.constexpr = b.shape[1]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [W, 1], [1, 0])
    o_r = gl.minimum(gl.arange(0, R, gl.SliceLayout(1, L)), n - 1)
    o_d = gl.arange(0, D, gl.SliceLayout(0, L))
    async_copy.async_copy_global_to_shared(b, x + (o_r[:, None] * stride + o_d[None, :]))


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


@gluon.jit
def copy_queries(s_q, s_do, s_lse, s_delta, slot, q, d_o, words, i_b, i_h, m, Sq, HQ, W: gl.constexpr):
    """The queries from m on of one head, and of each what query_rows_kernel made, on their way into this slot."""
    BM: gl.constexpr = s_q.shape[1]
    D: gl.constexpr = s_q.shape[2]
    row = ((i_b * Sq + m) * HQ + i_h) * D
    copy_rows(s_q.index(slot), q + row, HQ * D, Sq - m, W)
    copy_rows(s_do.index(slot), d_o + row, HQ * D, Sq - m, W)
    words += (i_b * HQ + i_h) * 2 * Sq + m
    o_m = gl.minimum(gl.arange(0, BM, gl.BlockedLayout([1], [32], [W], [0])), Sq - m - 1)
    async_copy.async_copy_global_to_shared(s_lse.index(slot), words + o_m)
    async_copy.async_copy_global_to_shared(s_delta.index(slot), words + Sq + o_m)
    async_copy.commit_group()


@gluon.jit
def tile_after(i_h, m, low, high, last_h, BM: gl.constexpr):
    """(head, first query) of the tile after this one; after the last one itself, for nobody."""
    more = m + BM < high
    stays = (i_h >= last_h) & (m + BM >= high)
    return gl.where(more | stays, i_h, i_h + 1), gl.where(more, m + BM, gl.where(stays, m, low))


@gluon.jit
def weigh_keys(
    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, m, next_h, next_m, low, high,
    last_h, factor, Sq, HQ, MASKED: gl.constexpr, M_s: gl.constexpr, M_d: gl.constexpr, STAGES: gl.constexpr,
    W: gl.constexpr,
):  # fmt: skip
    """The t-th tile of queries, from m on: (dk / scale, dv), and what is next. Tile (next_h, next_m) takes the place of
    the one before."""
    BM: gl.constexpr = s_q.shape[1]
    BN: gl.constexpr = s_k.shape[0]
    IO: gl.constexpr = s_k.dtype
    columns: gl.constexpr = gl.SliceLayout(0, M_s)
    by_m: gl.constexpr = gl.DotOperandLayout(0, M_d, 2)
    slot = t % STAGES
    c_q = s_q.index(slot)
    c_do = s_do.index(slot)
    async_copy.wait_group(STAGES - 2)
    fence_async_shared()
    zeros = gl.zeros([BN, BM], gl.float32, M_s)
    st = warpgroup_mma(s_k, c_q.permute((1, 0)), zeros, use_acc=False, is_async=True)
    dpt = warpgroup_mma(s_v, c_do.permute((1, 0)), zeros, use_acc=False, is_async=True)
    copy_queries(s_q, s_do, s_lse, s_delta, (t + STAGES - 1) % STAGES, q, d_o, words, i_b, next_h, next_m, Sq, HQ, W)
    next_h, next_m = tile_after(next_h, next_m, low, high, last_h, BM)
    b_lse = s_lse.index(slot).load(columns)
    b_st = warpgroup_mma_wait(1, [st])
    b_pt = gl.exp2(b_st * factor - b_lse[None, :])
    if MASKED:
        # low <= m + i < high in one comparison
        o_i = gl.arange(0, BM, columns)
        b_i = (o_i[None, :] - (b_low - m)[:, None]).to(gl.uint32)
        b_pt = gl.where(b_i < gl.maximum(b_high - b_low, 0).to(gl.uint32)[:, None], b_pt, 0.0)
    dv = warpgroup_mma(gl.convert_layout(b_pt.to(IO), by_m), c_do, b_dv, is_async=True)
    b_delta = s_delta.index(slot).load(columns)
    b_dpt = warpgroup_mma_wait(1, [dpt])
    b_dst = b_pt * (b_dpt - b_delta[None, :])
    dk = warpgroup_mma(gl.convert_layout(b_dst.to(IO), by_m), c_q, b_dk, is_async=True)
    b_dv, b_dk = warpgroup_mma_wait(0, [dv, dk])
    return b_dk, b_dv, t + 1, next_h, next_m


@gluon.jit(do_not_specialize=["scale", "Sq", "Sk", "H", "HQ"])
def flash_bwd_dkdv_sm90_kernel(
    q, k, v, low, high, d_o, words, d_k, d_v, scale, Sq, Sk, H, HQ, D: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, STAGES: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """dk and dv of BN keys of one key head, over the queries of its whole group, in a fixed order. low, high: of each
    key the first query that sees it and the end of those, which never fall. STAGES tiles of queries are in shared
    memory."""
    M_s: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, BM, 16])
    M_d: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, D, 16])
    rows: gl.constexpr = gl.SliceLayout(1, M_s)
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty

    # the order of programs: _attention's tile_and_head
    pid = gl.program_id(0).to(gl.int64)
    tiles = (Sk + BN - 1) // BN
    block = pid // (tiles * 8) * 8
    wide = gl.minimum(gl.num_programs(0) // tiles - block, 8)
    rest = pid - block * tiles
    n = (rest // wide).to(gl.int32) * BN
    i_bh = block + rest % wide
    i_hk, i_b = (i_bh % H).to(gl.int32), i_bh // H
    s_k = gl.allocate_shared_memory(IO, [BN, D], S)
    s_v = gl.allocate_shared_memory(IO, [BN, D], S)
    s_q = gl.allocate_shared_memory(IO, [STAGES, BM, D], S)
    s_do = gl.allocate_shared_memory(IO, [STAGES, BM, D], S)
    s_lse = gl.allocate_shared_memory(gl.float32, [STAGES, BM], R)
    s_delta = gl.allocate_shared_memory(gl.float32, [STAGES, BM], R)

    row = ((i_b * Sk + n) * H + i_hk) * D
    copy_rows(s_k, k + row, H * D, Sk - n, W)
    copy_rows(s_v, v + row, H * D, Sk - n, W)
    low += i_b * Sk
    high += i_b * Sk
    last = gl.minimum(n + BN, Sk) - 1
    o_n = gl.minimum(n + gl.arange(0, BN, rows), last)
    b_low, b_high = gl.load(low + o_n), gl.load(high + o_n)
    # in tiles of queries: all, and those that see all of the keys
    start = gl.load(low + n) // BM * BM
    stop = (gl.load(high + last) + BM - 1) // BM * BM
    whole = gl.minimum((gl.load(low + last) + BM - 1) // BM * BM, stop)
    whole_stop = gl.maximum(gl.load(high + n) // BM * BM, whole)
    i_h = i_hk * (HQ // H)
    last_h = i_h + HQ // H - 1
    factor = scale * LOG2_E
    b_dk = gl.zeros([BN, D], gl.float32, M_d)
    b_dv = gl.zeros([BN, D], gl.float32, M_d)
    if start < stop:
        next_h, next_m = i_h, start
        for slot in gl.static_range(STAGES - 1):
            copy_queries(s_q, s_do, s_lse, s_delta, slot, q, d_o, words, i_b, next_h, next_m, Sq, HQ, W)
            next_h, next_m = tile_after(next_h, next_m, start, stop, last_h, BM)
        t = 0
        for _ in range(HQ // H):
            for m in range(start, whole, BM):
                b_dk, b_dv, t, next_h, next_m = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, m, next_h,
                    next_m, start, stop, last_h, factor, Sq, HQ, True, M_s, M_d, STAGES, W,
                )  # fmt: skip
            for m in range(whole, whole_stop, BM):
                b_dk, b_dv, t, next_h, next_m = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, m, next_h,
                    next_m, start, stop, last_h, factor, Sq, HQ, False, M_s, M_d, STAGES, W,
                )  # fmt: skip
            for m in range(whole_stop, stop, BM):
                b_dk, b_dv, t, next_h, next_m = weigh_keys(
                    b_dk, b_dv, s_k, s_v, s_q, s_do, s_lse, s_delta, t, b_low, b_high, q, d_o, words, i_b, m, next_h,
                    next_m, start, stop, last_h, factor, Sq, HQ, True, M_s, M_d, STAGES, W,
                )  # fmt: skip
    async_copy.commit_group()
    async_copy.wait_group(0)
    # 0 times what is not finite is nan: a key that no query sees has none
    b_seen = gl.convert_layout(b_low < b_high, gl.SliceLayout(1, M_d))[:, None]
    if d_k is not None:
        store_rows(d_k + row, s_k, gl.where(b_seen, b_dk * scale, 0.0).to(IO), H * D, Sk - n, W)
    if d_v is not None:
        store_rows(d_v + row, s_v, gl.where(b_seen, b_dv, 0.0).to(IO), H * D, Sk - n, W)
