"""Products between the rows of a chunk under a decay per channel, and the rows decayed to the chunk's ends."""

import triton
import triton.language as tl

from ._channel_rows import half_factors, half_pairs, load_rows, scaled_rows, stacked, store_channels
from ._chunks import chunk_rows


@triton.jit
def store_decayed(b_q, b_k, b_b, b, qg, kg, kb, b_end, scale, o_c, o_k, stride, n, K: tl.constexpr):
    """qg = scale 2^b q, kb = 2^b k, kg = 2^(b_C - b) k, b_end = b_C: the channels o_k."""
    if qg is not None:
        store_channels(qg, scale * tl.exp2(b_b) * b_q, o_c, o_k, stride, n, K)
    if kb is not None:
        store_channels(kb, tl.exp2(b_b) * b_k, o_c, o_k, stride, n, K)
    if (kg is not None) or (b_end is not None):
        b_last = tl.load(b + (n - 1) * stride + o_k, mask=o_k < K, other=0.0)
    if kg is not None:
        store_channels(kg, tl.exp2(b_last[None, :] - b_b) * b_k, o_c, o_k, stride, n, K)
    if b_end is not None:
        tl.store(b_end + o_k, b_last, mask=o_k < K)


@triton.jit
def block_pairs(b_x, keys, zero, COUNT: tl.constexpr, BASE: tl.constexpr):
    """The sums over K of a row with the first COUNT keys, then zeros: BASE of them."""
    sums = ()
    for j in tl.static_range(BASE):
        if j < COUNT:
            sums = sums + (tl.sum(b_x * keys[j], axis=1),)
        else:
            sums = sums + (zero,)
    return sums


@triton.jit
def pairs_of_blocks(
    q, k, beta, b, A_qk, A_kk, scale, H, HV, n,
    K: tl.constexpr, C: tl.constexpr, BASE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The blocks of BASE rows on the diagonal, row by row: the keys so far take one step of decay with each row."""
    o_n = tl.arange(0, C // BASE) * BASE
    o_k = tl.arange(0, BK)
    zero = tl.zeros([C // BASE], dtype=tl.float32)
    b_last = load_rows(b, o_n, o_k, HV * K, n, K)
    keys, qk, kk = (), (), ()
    for i in tl.static_range(BASE):
        o_i = o_n + i
        b_b = load_rows(b, o_i, o_k, HV * K, n, K)
        b_k = load_rows(k, o_i, o_k, H * K, n, K).to(tl.float32)
        keys = scaled_rows(keys, tl.exp2(b_b - b_last), i)
        b_last = b_b
        if A_kk is not None:
            kk = kk + block_pairs(b_k, keys, zero, i, BASE)
        keys = keys + (b_k,)
        if A_qk is not None:
            b_q = load_rows(q, o_i, o_k, H * K, n, K).to(tl.float32)
            qk = qk + block_pairs(b_q, keys, zero, i + 1, BASE)
    o_p = tl.arange(0, BASE * BASE)
    o_i = o_n[:, None] + o_p[None, :] // BASE
    p = o_i * (HV * C) + o_n[:, None] + o_p[None, :] % BASE
    if A_qk is not None:
        tl.store(A_qk + p, (scale * stacked(qk, BASE * BASE)).to(A_qk.dtype.element_ty), mask=o_i < n)
    if A_kk is not None:
        b_beta = tl.load(beta + o_i * HV, mask=o_i < n, other=0.0).to(tl.float32)
        tl.store(A_kk + p, b_beta * stacked(kk, BASE * BASE), mask=o_i < n)


@triton.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def intra_kernel(
    q, k, beta, b, A_qk, A_kk, qg, kg, kb, b_end, scale, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BASE: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, KP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk and value head; C = BASE 2^LEVELS, KP: a tile that holds K whole.

    A_qk[i, j] = scale sum over K of q_i k_j 2^(b_i - b_j) for j <= i, A_kk[i, j] = beta_i sum of k_i k_j 2^(b_i - b_j)
    for j < i, else 0. For each size of blocks a product over the whole chunk, of which the blocks' lower left quarters
    count: that of x with itself, x the queries in the second halves and the keys in the first, and of the keys alike.
    Blocks of BASE rows pair by pair.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_hv = pid % HV
    i_slot = pid // HV
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = (bos + o_t) * HV + i_hv
    row_h = (bos + o_t) * H + i_hv // (HV // H)
    q += row_h * K
    k += row_h * K
    b += row * K
    beta = None if beta is None else beta + row
    A_qk = None if A_qk is None else A_qk + row * C
    A_kk = None if A_kk is None else A_kk + row * C
    qg = None if qg is None else qg + row * K
    kg = None if kg is None else kg + row * K
    kb = None if kb is None else kb + row * K
    b_end = None if b_end is None else b_end + (i_slot * HV + i_hv) * K
    o_c = tl.arange(0, C)
    b_qk = tl.zeros([C, C], dtype=tl.float32)
    b_kk = tl.zeros([C, C], dtype=tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_q = load_rows(q, o_c, o_k, H * K, n, K)
        b_k = load_rows(k, o_c, o_k, H * K, n, K)
        b_b = load_rows(b, o_c, o_k, HV * K, n, K)
        store_decayed(b_q, b_k, b_b, b, qg, kg, kb, b_end, scale, o_c, o_k, HV * K, n, K)
        if (A_qk is not None) or (A_kk is not None):
            for i_l in range(LEVELS):
                S = C >> i_l
                b_f = half_factors(b, b_b, o_c, o_k, S, HV * K, n, K)
                m_S = half_pairs(o_c[:, None], o_c[None, :], S)
                if A_qk is not None:
                    b_x = (tl.where(((o_c & (S // 2)) > 0)[:, None], b_q, b_k) * b_f).to(b_k.dtype)
                    b_qk += tl.where(m_S, tl.dot(b_x, tl.trans(b_x), input_precision=PRECISION), 0.0)
                if A_kk is not None:
                    b_x = (b_k * b_f).to(b_k.dtype)
                    b_kk += tl.where(m_S, tl.dot(b_x, tl.trans(b_x), input_precision=PRECISION), 0.0)
    if (A_qk is not None) or (A_kk is not None):
        # each store leaves the other's places alone: those of the blocks of BASE rows on the diagonal
        m_A = (o_c[:, None] // BASE != o_c[None, :] // BASE) & (o_c < n)[:, None]
        p_A = o_c[:, None] * (HV * C) + o_c[None, :]
        if A_qk is not None:
            b_qk = tl.where(o_c[:, None] > o_c[None, :], scale * b_qk, 0.0)
            tl.store(A_qk + p_A, b_qk.to(A_qk.dtype.element_ty), mask=m_A)
        if A_kk is not None:
            b_kk *= tl.load(beta + o_c * HV, mask=o_c < n, other=0.0).to(tl.float32)[:, None]
            tl.store(A_kk + p_A, tl.where(o_c[:, None] > o_c[None, :], b_kk, 0.0), mask=m_A)
        pairs_of_blocks(q, k, beta, b, A_qk, A_kk, scale, H, HV, n, K, C, BASE, KP)
