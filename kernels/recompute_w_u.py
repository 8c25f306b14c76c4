"""What the rows of each chunk read and write, the dependences among them resolved."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit
def load_lower(M, p_row, n, o_j, C: tl.constexpr):
    """Columns o_j of the lower triangle, diagonal included, of a chunk's matrix; p_row [C] numbers its rows in M."""
    o_i = tl.arange(0, C)
    m = (o_i < n)[:, None] & (o_i[:, None] >= o_j[None, :])
    return tl.load(M + p_row[:, None] * C + o_j[None, :], mask=m, other=0.0)


@triton.jit
def load_rate(beta, g, p, m):
    """beta 2^g at the offsets p, 0 where not m; beta alone without g."""
    b_rate = tl.load(beta + p, mask=m, other=0.0).to(tl.float32)
    if g is not None:
        b_rate *= tl.exp2(tl.load(g + p, mask=m, other=0.0))
    return b_rate


@triton.jit
def scaled_product(
    Ai, b_Ai, x, y, beta, g, H, HV, i_h, i_hv, row, n,
    D: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y = Ai (beta 2^g x) for the n valid rows from ``row`` on: y at head i_hv of HV, x at head i_h of H.

    Summed over BC rows of x at a time: ieee dots keep their operands in registers, and all C rows spill.
    b_Ai is Ai's lower triangle, for BC = C.
    """
    o_i = tl.arange(0, C)
    p_i = (row + o_i) * HV + i_hv
    for i_d in range(0, D, BD):
        o_d = i_d + tl.arange(0, BD)[None, :]
        b_y = tl.zeros((C, BD), tl.float32)
        for i_c in tl.static_range(0, C, BC):
            o_j = i_c + tl.arange(0, BC)
            if BC == C:
                b_M = b_Ai
            else:
                b_M = load_lower(Ai, p_i, n, o_j, C)
            p_x = ((row + o_j) * H + i_h)[:, None] * D + o_d
            b_x = tl.load(x + p_x, mask=(o_j < n)[:, None] & (o_d < D), other=0.0).to(tl.float32)
            b_x *= load_rate(beta, g, (row + o_j) * HV + i_hv, o_j < n)[:, None]
            b_y = tl.dot(b_M, b_x.to(b_M.dtype), b_y, input_precision=PRECISION)
        tl.store(y + p_i[:, None] * D + o_d, b_y.to(y.dtype.element_ty), mask=(o_i < n)[:, None] & (o_d < D))


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def recompute_w_u_kernel(
    k, v, beta, Ai, g, w, u, cu_seqlens, chunk_table, T, NT, H, HV, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """w = Ai (beta 2^g k), u = Ai (beta v) for one chunk and value head."""
    pid = tl.program_id(0).to(tl.int64)
    i_hv = pid % HV
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    row = bos + o_t
    n = length - o_t
    o_c = tl.arange(0, C)
    b_Ai = load_lower(Ai, (row + o_c) * HV + i_hv, n, o_c, C)
    if u is not None:
        scaled_product(Ai, b_Ai, v, u, beta, None, HV, HV, i_hv, i_hv, row, n, V, C, BC, BV, PRECISION)
    if w is not None:
        i_h = i_hv // (HV // H)
        scaled_product(Ai, b_Ai, k, w, beta, g, H, HV, i_h, i_hv, row, n, K, C, BC, BK, PRECISION)
