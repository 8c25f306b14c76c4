"""A matrix of each head from the right."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "HX", "HQ"])
def head_product_kernel(
    x, w, y, rows, HX, HQ, A: tl.constexpr, C: tl.constexpr, BM: tl.constexpr, BA: tl.constexpr, BC: tl.constexpr,
    TURNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y [rows, HQ, C] = x [rows, HX, A] times w [HQ, A, C], or w [HQ, C, A] if TURNED; HX is HQ, or 1 head for all."""
    NC: tl.constexpr = (C + BC - 1) // BC
    pid = tl.program_id(0).to(tl.int64)
    NM = (rows + BM - 1) // BM
    i_h = pid // NC // NM
    o_m = ((pid // NC) % NM) * BM + tl.arange(0, BM)
    o_c = (pid % NC).to(tl.int32) * BC + tl.arange(0, BC)
    m_m, m_c = o_m < rows, o_c < C
    p_x = (o_m * HX + i_h % HX) * A
    b_y = tl.zeros([BM, BC], dtype=tl.float32)
    for i_a in range(0, A, BA):
        o_a = i_a + tl.arange(0, BA)
        m_a = o_a < A
        b_x = tl.load(x + p_x[:, None] + o_a[None, :], mask=m_m[:, None] & m_a[None, :], other=0.0)
        if TURNED:
            o_w = o_c[None, :] * A + o_a[:, None]
        else:
            o_w = o_a[:, None] * C + o_c[None, :]
        b_w = tl.load(w + i_h * (A * C) + o_w, mask=m_a[:, None] & m_c[None, :], other=0.0)
        b_y = tl.dot(b_x, b_w, b_y, input_precision=PRECISION)
    p_y = (o_m * HQ + i_h) * C
    tl.store(y + p_y[:, None] + o_c[None, :], b_y.to(y.dtype.element_ty), mask=m_m[:, None] & m_c[None, :])
