"""What the rows of each chunk read and write, the dependences among them resolved."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit
def load_lower(M, stride, n, o_j, C: tl.constexpr):
    """Columns o_j of the lower triangle, diagonal included, of the chunk's matrix M; its rows lie ``stride`` apart."""
    o_i = tl.arange(0, C)
    m = (o_i < n)[:, None] & (o_i[:, None] >= o_j[None, :])
    return tl.load(M + o_i[:, None] * stride + o_j[None, :], mask=m, other=0.0)


@triton.jit
def load_rate(beta, g, o_c, n, HV):
    """beta 2^g at rows o_c of the chunk, 0 from row n on; beta alone without g."""
    b_rate = tl.load(beta + o_c * HV, mask=o_c < n, other=0.0).to(tl.float32)
    if g is not None:
        b_rate *= tl.exp2(tl.load(g + o_c * HV, mask=o_c < n, other=0.0))
    return b_rate


@triton.jit
def scaled_product(
    Ai, b_Ai, x, y, beta, g, H, HV, n,
    D: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y = Ai (beta 2^g x); every pointer is at the chunk's first row and at its head, of H in x and of HV elsewhere.

    Summed over BC rows of x at a time: ieee dots keep their operands in registers, and all C rows spill.
    b_Ai is Ai's lower triangle, for BC = C.
    """
    o_i = tl.arange(0, C)
    stride = tl.cast(HV, tl.int64)
    for i_d in range(0, D, BD):
        o_d = i_d + tl.arange(0, BD)[None, :]
        b_y = tl.zeros((C, BD), tl.float32)
        for i_c in tl.static_range(0, C, BC):
            o_j = i_c + tl.arange(0, BC)
            if BC == C:
                b_M = b_Ai
            else:
                b_M = load_lower(Ai, stride * C, n, o_j, C)
            p_x = o_j[:, None] * (tl.cast(H, tl.int64) * D) + o_d
            b_x = tl.load(x + p_x, mask=(o_j < n)[:, None] & (o_d < D), other=0.0).to(tl.float32)
            b_x *= load_rate(beta, g, o_j, n, HV)[:, None]
            b_y = tl.dot(b_M, b_x.to(b_M.dtype), b_y, input_precision=PRECISION)
        p_y = o_i[:, None] * (stride * D) + o_d
        tl.store(y + p_y, b_y.to(y.dtype.element_ty), mask=(o_i < n)[:, None] & (o_d < D))


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def recompute_w_u_kernel(
    k, v, beta, Ai, g, w, u, cu_seqlens, chunk_table, T, NT, H, HV, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """w = Ai (beta 2^g k), u = Ai (beta v) for one chunk and value head."""
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = length - o_t
    i_hv = pid % HV
    row_hv = (bos + o_t) * HV + i_hv
    row_h = (bos + o_t) * H + i_hv // (HV // H)
    beta += row_hv
    Ai += row_hv * C
    b_Ai = load_lower(Ai, tl.cast(HV, tl.int64) * C, n, tl.arange(0, C), C)
    if u is not None:
        scaled_product(Ai, b_Ai, v + row_hv * V, u + row_hv * V, beta, None, HV, HV, n, V, C, BC, BV, PRECISION)
    if w is not None:
        if g is not None:
            g += row_hv
        scaled_product(Ai, b_Ai, k + row_h * K, w + row_hv * K, beta, g, H, HV, n, K, C, BC, BK, PRECISION)
