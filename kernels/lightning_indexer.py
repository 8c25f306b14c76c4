"""How much each query wants each key, by the heads of an indexer."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["Sq", "Sk", "HI"])
def lightning_indexer_kernel(
    q, k, w, first, end, y, Sq, Sk, HI, KI: tl.constexpr, BK: tl.constexpr, BH: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y [B, Sq, Sk] of BM queries and BN keys, which are read once. The rows of a product are heads of one query."""
    pid = tl.program_id(0).to(tl.int64)
    NN, NM = (Sk + BN - 1) // BN, (Sq + BM - 1) // BM
    o_n = (pid % NN).to(tl.int32) * BN + tl.arange(0, BN)
    i_m = (pid // NN % NM).to(tl.int32) * BM
    i_b = pid // NN // NM
    o_k = tl.arange(0, BK)
    m_k, m_n = o_k < KI, o_n < Sk
    b_kt = tl.load(k + (i_b * Sk + o_n)[None, :] * KI + o_k[:, None], mask=m_k[:, None] & m_n[None, :], other=0.0)
    for m in range(i_m, tl.minimum(i_m + BM, Sq)):
        p_m = i_b * Sq + m
        start = 0 if first is None else tl.load(first + p_m)
        stop = tl.load(end + p_m)
        b_y = tl.zeros([BN], dtype=tl.float32)
        if (start < tl.max(o_n, axis=0) + 1) & (stop > tl.min(o_n, axis=0)):
            for h in range(0, HI, BH):
                o_h = h + tl.arange(0, BH)
                m_h = o_h < HI
                p_q = (p_m * HI + o_h)[:, None] * KI + o_k[None, :]
                b_q = tl.load(q + p_q, mask=m_h[:, None] & m_k[None, :], other=0.0)
                b_s = tl.maximum(tl.dot(b_q, b_kt, input_precision=PRECISION), 0.0)
                b_w = tl.load(w + p_m * HI + o_h, mask=m_h, other=0.0)
                b_y += tl.sum(b_s * b_w[:, None], axis=0)
        b_y = tl.where((o_n >= start) & (o_n < stop), b_y, float("-inf"))
        tl.store(y + p_m * Sk + o_n, b_y, mask=m_n)
