"""Numbers in eight bits as the pipeline's dtype has them."""

import triton
import triton.language as tl

from ._eight_bits import dequantized


@triton.jit(do_not_specialize=["rows"])
def dequant_kernel(x, scale, y, rows, D: tl.constexpr, BD: tl.constexpr, BR: tl.constexpr):
    """y = x times its row's scale, for BR rows of D numbers."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    o_d = tl.arange(0, BD)
    m_r = o_r < rows
    m = m_r[:, None] & (o_d < D)[None, :]
    p = o_r[:, None] * D + o_d[None, :]
    b_scale = tl.load(scale + o_r, mask=m_r, other=0.0)[:, None]
    tl.store(y + p, dequantized(tl.load(x + p, mask=m, other=0), b_scale, y.dtype.element_ty), mask=m)
