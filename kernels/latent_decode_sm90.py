"""Many heads of a query over many keys of one latent, which is key and value, for Hopper: each tile is read once, into
shared memory, and the next one is on its way while this one is at work. In Gluon, which leaves both to the kernel.

Eight warps hold the sums of 64 heads, four each half of the columns. Of the scores four make those of each half of the
tile's keys; the weights meet in shared memory, where both halves of the sums read them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def copy_rows(b, x, o_row, W: gl.constexpr, L: gl.constexpr):
    """Rows o_row of x, W wide, on their way to the shared tile b, 16 bytes at a time."""
    o_w = gl.arange(0, W, gl.SliceLayout(0, L))
    async_copy.async_copy_global_to_shared(b, x + (o_row[:, None] * W + o_w[None, :]))


@gluon.jit
def key_rows(table, p_t, row, n, end, PAGE, BITS, POWER: gl.constexpr, BN: gl.constexpr, L: gl.constexpr):
    """Where the BN keys from n on lie, as in flash_decode's key_rows; past the end the last one again."""
    o_n = gl.minimum(n + gl.arange(0, BN, gl.SliceLayout(1, L)), end - 1)
    if table is None:
        rows = row + o_n
    else:
        if POWER:
            place, within = o_n >> BITS, o_n & (PAGE - 1)
        else:
            place, within = o_n // PAGE, o_n % PAGE
        rows = row + gl.load(table + p_t + place).to(gl.int64) * PAGE + within
    return rows


@gluon.jit(do_not_specialize=["scale", "Sq", "Sk", "NP", "PAGE", "BITS", "SHARE", "ROWS", "HQ", "NB", "splits", "EACH"])
def latent_decode_sm90_kernel(
    q, q_rope, c, k_rope, table, first, end, o, lse, scale, Sq, Sk, NP, PAGE, BITS, SHARE, ROWS, HQ, NB, splits, EACH,
    D: gl.constexpr, DR: gl.constexpr, POWER: gl.constexpr,
):  # fmt: skip
    """o [splits, NB, Sq, HQ, D] and lse of EACH splits, one after another, for 64 heads of one query. SHARE, ROWS: as
    in flash_decode_kernel. Rows past the last head repeat it and are not stored; keys past the end weigh 0."""
    BM: gl.constexpr = 64
    BN: gl.constexpr = 64
    M_s: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, BN // 2, 16])
    M_o: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, D // 4, 16])
    L_c: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    rows_s: gl.constexpr = gl.SliceLayout(1, M_s)
    rows_o: gl.constexpr = gl.SliceLayout(1, M_o)
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    IO: gl.constexpr = c.dtype.element_ty

    pid = gl.program_id(0).to(gl.int64)
    NH = (HQ + BM - 1) // BM
    h = (pid % NH).to(gl.int32) * BM
    pid = pid // NH
    p_m = pid % (NB * Sq)
    s = (pid // (NB * Sq)).to(gl.int32) * EACH
    s_stop = gl.minimum(s + EACH, splits)
    i_b = p_m // Sq
    p_t = i_b * NP
    if table is None:
        row = i_b * Sk
    elif SHARE is None:
        row = i_b * 0
    else:
        row = i_b // SHARE * ROWS
    low = 0
    if first is not None:
        low = gl.load(first + p_m).to(gl.int32)
    stop = gl.minimum(gl.load(end + p_m).to(gl.int32), Sk)
    tiles = gl.maximum(stop - low + BN - 1, 0) // BN
    t = s * tiles // splits

    s_q = gl.allocate_shared_memory(IO, [BM, D], S)
    s_q_rope = gl.allocate_shared_memory(IO, [BM, DR], S)
    s_c = gl.allocate_shared_memory(IO, [2, BN, D], S)
    s_rope = gl.allocate_shared_memory(IO, [2, BN, DR], S)
    s_p = gl.allocate_shared_memory(IO, [BM, BN], S)

    factor = scale * LOG2_E
    o_row = gl.zeros([BN], gl.int64, gl.SliceLayout(1, L_c))
    if t < s_stop * tiles // splits:
        o_q = p_m * HQ + gl.minimum(h + gl.arange(0, BM, gl.SliceLayout(1, L_c)), HQ - 1)
        o_row = key_rows(table, p_t, row, low + t * BN, stop, PAGE, BITS, POWER, BN, L_c)
        copy_rows(s_c.index(0), c, o_row, D, L_c)
        copy_rows(s_rope.index(0), k_rope, o_row, DR, L_c)
        copy_rows(s_q, q, o_q, D, L_c)
        copy_rows(s_q_rope, q_rope, o_q, DR, L_c)
        o_row = key_rows(table, p_t, row, low + t * BN + BN, stop, PAGE, BITS, POWER, BN, L_c)
    async_copy.commit_group()

    for i_s in range(s, s_stop):
        b_o0 = gl.zeros([BM, D // 2], gl.float32, M_o)
        b_o1 = b_o0
        b_l = gl.zeros([BM, BN], gl.float32, M_s)
        b_m = gl.full([BM], float("-inf"), gl.float32, rows_s)
        t_stop = (i_s + 1) * tiles // splits
        for i_t in range(i_s * tiles // splits, t_stop):
            slot = (i_t - t) % 2
            c_c = s_c.index(slot)
            n = low + i_t * BN
            async_copy.wait_group(0)
            fence_async_shared()
            zeros = gl.zeros([BM, BN], gl.float32, M_s)
            scores = warpgroup_mma(s_q, c_c.permute((1, 0)), zeros, use_acc=False, is_async=True)
            scores = warpgroup_mma(s_q_rope, s_rope.index(slot).permute((1, 0)), scores, is_async=True)
            # the tile after this one, whichever split's it is; past the last one its last key, for nobody
            copy_rows(s_c.index(1 - slot), c, o_row, D, L_c)
            copy_rows(s_rope.index(1 - slot), k_rope, o_row, DR, L_c)
            async_copy.commit_group()
            o_row = key_rows(table, p_t, row, n + 2 * BN, stop, PAGE, BITS, POWER, BN, L_c)
            b_s = warpgroup_mma_wait(0, [scores]) * factor
            o_n = n + gl.arange(0, BN, gl.SliceLayout(0, M_s))
            b_s = gl.where((o_n < stop)[None, :], b_s, float("-inf"))
            b_new = gl.maximum(b_m, gl.max(b_s, axis=1))
            b_base = gl.where(b_new == float("-inf"), 0.0, b_new)
            b_shrink = gl.exp2(b_m - b_base)
            b_p = gl.exp2(b_s - b_base[:, None])
            s_p.store(b_p.to(IO))
            b_l = b_l * b_shrink[:, None] + b_p
            b_m = b_new
            b_scale = gl.convert_layout(b_shrink, rows_o)[:, None]
            b_o0 *= b_scale
            fence_async_shared()
            out0 = warpgroup_mma(s_p, c_c.slice(0, D // 2, dim=1), b_o0, is_async=True)
            b_o1 *= b_scale
            out1 = warpgroup_mma(s_p, c_c.slice(D // 2, D // 2, dim=1), b_o1, is_async=True)
            b_o0, b_o1 = warpgroup_mma_wait(0, [out0, out1])

        b_sum = gl.sum(b_l, axis=1)
        b_none = b_sum == 0.0
        b_sum = gl.where(b_none, 1.0, b_sum)
        p_o = i_s * (NB * Sq * HQ).to(gl.int64) + p_m * HQ + h
        if lse is not None:
            o_h = gl.arange(0, BM, rows_s)
            b_lse = gl.where(b_none, float("-inf"), (b_m + gl.log2(b_sum)) * LN_2)
            gl.store(lse + (p_o + o_h), b_lse, mask=h + o_h < HQ)
        b_scale = (1.0 / gl.convert_layout(b_sum, rows_o))[:, None]
        # the tile that has been read gives its place to the output on its way to rows
        s_o = s_c.index(1 - (t_stop - t) % 2)
        s_o.slice(0, D // 2, dim=1).store((b_o0 * b_scale).to(IO))
        s_o.slice(D // 2, D // 2, dim=1).store((b_o1 * b_scale).to(IO))
        o_h = gl.arange(0, BM, gl.SliceLayout(1, L_c))
        o_d = gl.arange(0, D, gl.SliceLayout(0, L_c))
        gl.store(o + ((p_o + o_h)[:, None] * D + o_d[None, :]), s_o.load(L_c), mask=(h + o_h < HQ)[:, None])
    async_copy.wait_group(0)
