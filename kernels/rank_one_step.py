"""A square state that each token changes by one outer product with its value, token by token."""

import triton
import triton.language as tl

from ._chunks import sequence_span
from ._state import load_tile, store_tile


@triton.jit(do_not_specialize=["T", "H"])
def rank_one_step_kernel(
    q, k, v, alpha, beta, initial_state, o, final_state, cu_seqlens, T, H,
    D: tl.constexpr, BD: tl.constexpr, BJ: tl.constexpr,
):  # fmt: skip
    """S <- S + (alpha v) k - (beta v) (k S), o = q S.

    One program owns BJ columns of one sequence's head: no column of S reads another.
    """
    NJ: tl.constexpr = (D + BJ - 1) // BJ
    pid = tl.program_id(0).to(tl.int64)
    o_j = (pid % NJ).to(tl.int32) * BJ + tl.arange(0, BJ)
    o_d = tl.arange(0, BD)
    m_j, m_d = o_j < D, o_d < D
    i_h = (pid // NJ) % H
    i_n = pid // NJ // H
    bos, length = sequence_span(i_n, cu_seqlens, T)
    p_s = (i_n * H + i_h) * (D * D)
    b_s = load_tile(initial_state, p_s, o_d, o_j, D, D)

    for t in range(length):
        p = ((bos + t) * H + i_h) * D
        b_k = tl.load(k + p + o_d, mask=m_d, other=0.0).to(tl.float32)
        b_v = tl.load(v + p + o_d, mask=m_d, other=0.0).to(tl.float32)
        b_alpha = tl.load(alpha + p + o_d, mask=m_d, other=0.0).to(tl.float32)
        b_beta = tl.load(beta + p + o_d, mask=m_d, other=0.0).to(tl.float32)
        b_kj = tl.load(k + p + o_j, mask=m_j, other=0.0).to(tl.float32)
        b_held = tl.sum(b_k[:, None] * b_s, axis=0)
        b_s += (b_alpha * b_v)[:, None] * b_kj[None, :] - (b_beta * b_v)[:, None] * b_held[None, :]
        if o is not None:
            b_q = tl.load(q + p + o_d, mask=m_d, other=0.0).to(tl.float32)
            b_o = tl.sum(b_q[:, None] * b_s, axis=0)
            tl.store(o + p + o_j, b_o.to(o.dtype.element_ty), mask=m_j)

    if final_state is not None:
        store_tile(final_state, p_s, b_s, o_d, o_j, D, D)
