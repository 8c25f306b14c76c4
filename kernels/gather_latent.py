"""Rows of a cache, gathered for each query."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["Sq", "Sk", "TOP"])
def gather_latent_kernel(
    c, k_rope, places, count, c_rows, rope_rows, Sq, Sk, TOP, DC: tl.constexpr, DR: tl.constexpr, BC: tl.constexpr,
    BR: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """c_rows [B, Sq, TOP, DC] and rope_rows [B, Sq, TOP, DR] at BN places of one query; 0 past the last one."""
    pid = tl.program_id(0).to(tl.int64)
    NN = (TOP + BN - 1) // BN
    i_q, o_n = pid // NN, (pid % NN).to(tl.int32) * BN + tl.arange(0, BN)
    m_n = o_n < TOP
    m_there = o_n < tl.load(count + i_q)
    o_row = i_q // Sq * Sk + tl.load(places + i_q * TOP + o_n, mask=m_there & m_n, other=0)
    p_n = i_q * TOP + o_n
    if c_rows is not None:
        o_c = tl.arange(0, BC)
        m_c = (o_c < DC)[None, :]
        b_c = tl.load(c + o_row[:, None] * DC + o_c[None, :], mask=m_there[:, None] & m_c, other=0.0)
        tl.store(c_rows + p_n[:, None] * DC + o_c[None, :], b_c, mask=m_n[:, None] & m_c)
    if rope_rows is not None:
        o_r = tl.arange(0, BR)
        m_r = (o_r < DR)[None, :]
        b_r = tl.load(k_rope + o_row[:, None] * DR + o_r[None, :], mask=m_there[:, None] & m_r, other=0.0)
        tl.store(rope_rows + p_n[:, None] * DR + o_r[None, :], b_r, mask=m_n[:, None] & m_r)
