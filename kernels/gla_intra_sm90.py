"""Scores between the rows of a chunk under a decay per channel, all on tensor cores, for Hopper in 16 bits.

A warp holds a block of 8 rows as 8 tensors, the r-th of which has row r of each block: so which rows of a small block
read, which are read, and what they decay by is known when compiled, and no number changes lanes. In Gluon, where the
products read what is stored in the order of its rows.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

BASE = gl.constexpr(8)
"""Rows of a block."""


@gluon.jit
def load_row(x, o_r, o_k, stride, n):
    """Rows o_r of a chunk's x; past its n rows the last of them."""
    return gl.load(x + gl.minimum(o_r, n - 1)[:, None] * stride + o_k[None, :])


@gluon.jit
def load_blocks(x, o_g, o_k, stride, n):
    """BASE tensors [blocks, K], o_g the blocks' first rows."""
    rows = ()
    for r in gl.static_range(BASE):
        rows = rows + (load_row(x, o_g + r, o_k, stride, n),)
    return rows


@gluon.jit
def store_blocks(x, rows, b_f, o_g, o_k, stride, n):
    """The same rows, times b_f of their block."""
    for r in gl.static_range(BASE):
        o_r = o_g + r
        p = x + o_r[:, None] * stride + o_k[None, :]
        gl.store(p, (rows[r] * b_f).to(x.dtype.element_ty), mask=(o_r < n)[:, None])


@gluon.jit
def stacked(rows):
    """[BASE blocks, K] of BASE tensors [blocks, K]."""
    G: gl.constexpr = rows[0].shape[0]
    K: gl.constexpr = rows[0].shape[1]
    for i_l in gl.static_range(3):
        joined = ()
        for j in gl.static_range(BASE >> (i_l + 1)):
            joined = joined + (gl.join(rows[j], rows[j + (BASE >> (i_l + 1))]),)
        rows = joined
    return gl.reshape(gl.permute(gl.reshape(rows[0], [G, K, BASE]), (0, 2, 1)), [G * BASE, K])


@gluon.jit
def decayed(b_x, b_b, b_from, sign: gl.constexpr):
    """Rows of x times 2^(sign (b - b_from)), in float32."""
    rows = ()
    for r in gl.static_range(BASE):
        d = b_b[r] - b_from if sign > 0 else b_from - b_b[r]
        rows = rows + (b_x[r].to(gl.float32) * gl.exp2(d),)
    return rows


@gluon.jit
def inside_blocks(b_q, b_k, b_b, H: gl.constexpr):
    """Queries in the second halves of blocks of 2 H rows, keys in the first, decayed to where the halves meet."""
    rows = ()
    for r in gl.static_range(BASE):
        if r % (2 * H) == H:
            rows = rows + (b_q[r],)
        elif r & H:
            rows = rows + ((b_q[r].to(gl.float32) * gl.exp2(b_b[r] - b_b[r & -H])).to(b_q[r].dtype),)
        else:
            rows = rows + ((b_k[r].to(gl.float32) * gl.exp2(b_b[(r & -H) + H] - b_b[r])).to(b_k[r].dtype),)
    return rows


@gluon.jit
def across_blocks(q_d, k_d, m_q, b_f, dtype: gl.constexpr):
    """The same where halves are whole blocks: of those in a second half (m_q) the queries, else the keys, times b_f."""
    rows = ()
    for r in gl.static_range(BASE):
        rows = rows + ((gl.where(m_q, q_d[r], k_d[r]) * b_f).to(dtype),)
    return rows


@gluon.jit
def product(s_x, s_y, M: gl.constexpr):
    C: gl.constexpr = s_x.shape[0]
    zero = gl.zeros([C, C], gl.float32, M)
    return warpgroup_mma_wait(0, [warpgroup_mma(s_x, s_y.permute((1, 0)), zero, use_acc=False, is_async=True)])


@gluon.jit
def with_itself(s_x, rows, b_A, H: gl.constexpr, M: gl.constexpr):
    """b_A in blocks of H rows, elsewhere the product of the rows with themselves, by way of the shared tile s_x."""
    C: gl.constexpr = s_x.shape[0]
    s_x.store(stacked(rows))
    fence_async_shared()
    o_i = gl.arange(0, C, gl.SliceLayout(1, M)) // H
    o_j = gl.arange(0, C, gl.SliceLayout(0, M)) // H
    return gl.where(o_i[:, None] == o_j[None, :], b_A, product(s_x, s_x, M))


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def gla_intra_sm90_kernel(
    q, k, b, A_qk, qg, kg, b_end, scale, cu_seqlens, chunk_table, T, NT, H, HV,
    K: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """A_qk[i, j] = scale sum over K of q_i k_j 2^(b_i - b_j) for j <= i, else 0, of one chunk and value head.

    First each row with itself, then for each size of blocks what their second halves read of the first, small sizes
    first: the product over the whole chunk stands where rows are further apart than the sizes before it reach.
    """
    W: gl.constexpr = C // BASE
    L: gl.constexpr = gl.BlockedLayout([1, K // 32], [1, 32], [W, 1], [1, 0])
    M: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, W // 4], [16, C * 4 // W, 16])
    L_A: gl.constexpr = gl.BlockedLayout([1, 8], [256 // C, C // 8], [W, 1], [1, 0])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    IO: gl.constexpr = k.dtype.element_ty
    pid = gl.program_id(0).to(gl.int64)
    i_hv = pid % HV
    i_slot = pid // HV
    if cu_seqlens is None:
        i_n = (i_slot // NT).to(gl.int32)
        o_t = (i_slot % NT).to(gl.int32) * C
        bos = i_n.to(gl.int64) * T
        length = T
    else:
        i_n = gl.load(chunk_table + i_slot * 2)
        if i_n < 0:
            return
        o_t = gl.load(chunk_table + i_slot * 2 + 1) * C
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
    n = gl.minimum(length - o_t, C)
    row = (bos + o_t) * HV + i_hv
    row_h = (bos + o_t) * H + i_hv // (HV // H)
    b += row * K

    o_g = gl.arange(0, W, gl.SliceLayout(1, L)) * BASE
    o_k = gl.arange(0, K, gl.SliceLayout(0, L))
    b_q = load_blocks(q + row_h * K, o_g, o_k, H * K, n)
    b_k = load_blocks(k + row_h * K, o_g, o_k, H * K, n)
    b_b = load_blocks(b, o_g, o_k, HV * K, n)
    b_next = load_row(b, o_g + BASE, o_k, HV * K, n)
    b_last = load_row(b, o_g + C, o_k, HV * K, n)
    # two tiles by turns: what one product reads is overwritten only after all warps have come to the next
    s_0 = gl.allocate_shared_memory(IO, [C, K], S)
    s_1 = gl.allocate_shared_memory(IO, [C, K], S)
    s_q = gl.allocate_shared_memory(IO, [C, K], S)
    s_x = (s_0, s_1)

    s_q.store(stacked(b_q))
    s_0.store(stacked(b_k))
    fence_async_shared()
    b_A = product(s_q, s_0, M)
    for i_l in gl.static_range(3):
        b_A = with_itself(s_x[(i_l + 1) % 2], inside_blocks(b_q, b_k, b_b, 1 << i_l), b_A, 1 << i_l, M)

    q_d = decayed(b_q, b_b, b_b[0], 1)
    k_d = decayed(b_k, b_b, b_next, -1)
    if qg is not None:
        store_blocks(qg + row * K, q_d, scale * gl.exp2(b_b[0]), o_g, o_k, HV * K, n)
    if kg is not None:
        store_blocks(kg + row * K, k_d, gl.exp2(b_last - b_next), o_g, o_k, HV * K, n)
    if b_end is not None:
        p_end = b_end + (i_slot * HV + i_hv) * K + (o_g * 0)[:, None] + o_k[None, :]
        gl.store(p_end, b_last, mask=(o_g == 0)[:, None])
    for i_l in gl.static_range(W.bit_length() - 1):
        m_q = ((o_g & (BASE << i_l)) > 0)[:, None]
        b_m = load_row(b, (o_g & -((2 * BASE) << i_l)) + (BASE << i_l), o_k, HV * K, n)
        b_f = gl.exp2(gl.where(m_q, b_b[0] - b_m, b_m - b_next))
        b_A = with_itself(s_x[i_l % 2], across_blocks(q_d, k_d, m_q, b_f, IO), b_A, BASE << i_l, M)

    if A_qk is not None:
        o_i = gl.arange(0, C, gl.SliceLayout(1, M))
        o_j = gl.arange(0, C, gl.SliceLayout(0, M))
        b_A = gl.where(o_i[:, None] >= o_j[None, :], scale * b_A, 0.0).to(IO)
        o_i = gl.arange(0, C, gl.SliceLayout(1, L_A))
        o_j = gl.arange(0, C, gl.SliceLayout(0, L_A))
        p_A = A_qk + row * C + o_i[:, None] * (HV * C) + o_j[None, :]
        gl.store(p_A, gl.convert_layout(b_A, L_A), mask=(o_i < n)[:, None])
