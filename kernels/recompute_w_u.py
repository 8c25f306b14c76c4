"""What the rows of each chunk read and write, the dependences among them resolved."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit
def scaled_product(x, y, b_Ai, b_rate, p_x, p_y, m_c, D: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr):
    """y = Ai (rate x) over all D columns; p_x and p_y [C, 1] are where the chunk's rows begin in x and y."""
    for i_d in range(0, D, BD):
        o_d = i_d + tl.arange(0, BD)[None, :]
        m = m_c[:, None] & (o_d < D)
        b_x = tl.load(x + p_x + o_d, mask=m, other=0.0)
        b_x = (b_x.to(tl.float32) * b_rate[:, None]).to(b_Ai.dtype)
        b_y = tl.dot(b_Ai, b_x, input_precision=PRECISION)
        tl.store(y + p_y + o_d, b_y.to(y.dtype.element_ty), mask=m)


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def recompute_w_u_kernel(
    k, v, beta, Ai, g, w, u, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """w = Ai (beta 2^g k), u = Ai (beta v) for one chunk and value head."""
    pid = tl.program_id(0).to(tl.int64)
    i_hv = pid % HV
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    o_c = tl.arange(0, C)
    m_c = o_t + o_c < length
    o_row = bos + o_t + o_c
    p_row = o_row * HV + i_hv
    m_Ai = m_c[:, None] & (o_c[:, None] >= o_c[None, :])
    b_Ai = tl.load(Ai + p_row[:, None] * C + o_c[None, :], mask=m_Ai, other=0.0)
    b_rate = tl.load(beta + p_row, mask=m_c, other=0.0).to(tl.float32)
    if u is not None:
        scaled_product(v, u, b_Ai, b_rate, p_row[:, None] * V, p_row[:, None] * V, m_c, V, BV, PRECISION)
    if w is not None:
        if g is not None:
            b_rate *= tl.exp2(tl.load(g + p_row, mask=m_c, other=0.0))
        p_k = (o_row * H + i_hv // (HV // H))[:, None] * K
        scaled_product(k, w, b_Ai, b_rate, p_k, p_row[:, None] * K, m_c, K, BK, PRECISION)
