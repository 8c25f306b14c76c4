"""Output of each chunk: what its rows read from the entering state and from the rows before them."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from ._decay import pair_decay, row_decay


@triton.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def chunk_o_kernel(
    q, k, v, h, g, g_gamma, o, scale, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o = scale (gam q h + (E * q k^T) v), for BV value columns of one chunk and value head."""
    pid = tl.program_id(0).to(tl.int64)
    NV: tl.constexpr = (V + BV - 1) // BV
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_slot = pid // NV // HV
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    o_c = tl.arange(0, C)
    m_c = o_c < n
    m_v = o_v < V
    p_qk = ((bos + o_t) * H + i_h // (HV // H)) * K
    p_v = ((bos + o_t) * HV + i_h) * V
    p_h = h + (i_slot * HV + i_h) * (K * V)

    b_o = tl.zeros([C, BV], dtype=tl.float32)
    b_a = tl.zeros([C, C], dtype=tl.float32)
    for i_k in range((K + BK - 1) // BK):
        o_k = i_k * BK + tl.arange(0, BK)
        m_k = o_k < K
        b_q = tl.load(
            q + p_qk + o_c[:, None] * (H * K) + o_k[None, :], mask=m_c[:, None] & m_k[None, :], other=0.0
        )  # fmt: skip
        b_kt = tl.load(
            k + p_qk + o_c[None, :] * (H * K) + o_k[:, None], mask=m_c[None, :] & m_k[:, None], other=0.0
        )  # fmt: skip
        b_h = tl.load(p_h + o_k[:, None] * V + o_v[None, :], mask=m_k[:, None] & m_v[None, :], other=0.0)
        b_o = tl.dot(b_q, b_h, b_o, input_precision=PRECISION)
        b_a = tl.dot(b_q, b_kt, b_a, input_precision=PRECISION)

    m_cv = m_c[:, None] & m_v[None, :]
    o_cv = o_c[:, None] * (HV * V) + o_v[None, :]
    b_v = tl.load(v + p_v + o_cv, mask=m_cv, other=0.0)
    if (g is not None) or (g_gamma is not None):
        b_g = row_decay(g, g_gamma, i_h, bos + o_t, o_c, n, HV)
        b_o *= tl.exp2(b_g)[:, None]
        b_a *= pair_decay(b_g, b_g, o_c, o_c, n)
    else:
        b_a = tl.where(o_c[:, None] >= o_c[None, :], b_a, 0.0)
    b_o = tl.dot(b_a.to(b_v.dtype), b_v, b_o, input_precision=PRECISION) * scale
    tl.store(o + p_v + o_cv, b_o.to(o.dtype.element_ty), mask=m_cv)
