"""Two neighbouring blocks of tokens as one entry."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["NB"])
def compress_blocks_kernel(
    a, b, z_a, z_b, bias_a, bias_b, y, NB, M: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """y [B, NB, D] of one block, BD columns of it."""
    ND: tl.constexpr = (D + BD - 1) // BD
    pid = tl.program_id(0).to(tl.int64)
    i_n, o_d = pid // ND, (pid % ND).to(tl.int32) * BD + tl.arange(0, BD)
    o_m = tl.arange(0, BM)
    m = (o_m < M)[:, None] & (o_d < D)[None, :]
    m_b = m & (i_n % NB > 0)  # before the first block there is none
    o = o_m[:, None] * D + o_d[None, :]
    p_a, p_b = i_n * M * D + o, (i_n - 1) * M * D + o
    b_za = tl.load(z_a + p_a, mask=m, other=float("-inf")).to(tl.float32) + tl.load(bias_a + o, mask=m, other=0.0)
    b_zb = tl.load(z_b + p_b, mask=m_b, other=float("-inf")).to(tl.float32) + tl.load(bias_b + o, mask=m, other=0.0)
    b_m = tl.maximum(tl.max(b_za, axis=0), tl.max(b_zb, axis=0))
    b_m = tl.where(o_d < D, b_m, 0.0)[None, :]
    b_ea, b_eb = tl.exp(b_za - b_m), tl.exp(b_zb - b_m)
    b_y = tl.sum(b_ea * tl.load(a + p_a, mask=m, other=0.0).to(tl.float32), axis=0)
    b_y += tl.sum(b_eb * tl.load(b + p_b, mask=m_b, other=0.0).to(tl.float32), axis=0)
    b_y = b_y / tl.where(o_d < D, tl.sum(b_ea, axis=0) + tl.sum(b_eb, axis=0), 1.0)
    tl.store(y + i_n * D + o_d, b_y.to(y.dtype.element_ty), mask=o_d < D)
