"""Products between the rows of a chunk under a decay per channel, and the rows decayed to the chunk's ends."""

import triton
import triton.language as tl

from ._channel_rows import block_factors, block_mask, load_channels, store_channels
from ._chunks import chunk_rows


@triton.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def intra_kernel(
    q, k, beta, b, A_qk, A_kk, qg, kg, kb, b_end, scale, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk and value head; C = 2^LEVELS.

    A_qk[i, j] = scale sum over K of q_i k_j 2^(b_i - b_j) for j <= i, A_kk[i, j] = beta_i sum of k_i k_j 2^(b_i - b_j)
    for j < i, else 0: a product over the whole chunk for each size of blocks, of which the blocks' lower left
    quarters count. qg = scale 2^b q, kb = 2^b k, kg = 2^(b_C - b) k, b_end = b_C.
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
    o_c = tl.arange(0, C)
    b_qk = tl.zeros([C, C], dtype=tl.float32)
    b_kk = tl.zeros([C, C], dtype=tl.float32)
    b_own = tl.zeros([C], dtype=tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_q = load_channels(q, o_c, o_k, H * K, n, K)
        b_k = load_channels(k, o_c, o_k, H * K, n, K)
        b_b = load_channels(b, o_c, o_k, HV * K, n, K)
        if qg is not None:
            store_channels(qg + row * K, scale * tl.exp2(b_b) * b_q, o_c, o_k, HV * K, n, K)
        if kb is not None:
            store_channels(kb + row * K, tl.exp2(b_b) * b_k, o_c, o_k, HV * K, n, K)
        if (kg is not None) or (b_end is not None):
            b_last = tl.load(b + (n - 1) * (HV * K) + o_k, mask=o_k < K, other=0.0)
        if kg is not None:
            b_ga = tl.exp2(tl.where((o_c < n)[:, None], b_last[None, :] - b_b, float("-inf")))
            store_channels(kg + row * K, b_ga * b_k, o_c, o_k, HV * K, n, K)
        if b_end is not None:
            tl.store(b_end + (i_slot * HV + i_hv) * K + o_k, b_last, mask=o_k < K)
        if A_qk is not None:
            b_own += tl.sum(b_q.to(tl.float32) * b_k.to(tl.float32), axis=1)
        if (A_qk is not None) or (A_kk is not None):
            for i_l in range(LEVELS):
                b_f = block_factors(b, b_b, o_c, o_k, 2 << i_l, HV * K, n, K)
                b_kf = (b_k * b_f).to(b_k.dtype)
                m_S = block_mask(o_c[:, None], o_c[None, :], 2 << i_l)
                if A_qk is not None:
                    b_R = tl.dot((b_q * b_f).to(b_k.dtype), tl.trans(b_kf), input_precision=PRECISION)
                    b_qk += tl.where(m_S, b_R, 0.0)
                if A_kk is not None:
                    b_R = tl.dot(b_kf, tl.trans(b_kf), input_precision=PRECISION)
                    b_kk += tl.where(m_S, b_R, 0.0)
    p_A = row * C + o_c[:, None] * (HV * C) + o_c[None, :]
    m_A = (o_c < n)[:, None]
    if A_qk is not None:
        b_qk = scale * tl.where(o_c[:, None] == o_c[None, :], b_own[:, None], b_qk)
        tl.store(A_qk + p_A, b_qk.to(A_qk.dtype.element_ty), mask=m_A)
    if A_kk is not None:
        b_kk *= tl.load(beta + row + o_c * HV, mask=o_c < n, other=0.0).to(tl.float32)[:, None]
        tl.store(A_kk + p_A, b_kk, mask=m_A)
