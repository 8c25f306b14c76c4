"""Gradient of a gate by pair sums, chunk by chunk, from the states and cotangents that the scans left."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from ._decay import chunk_decay, pair_decay, to_chunk_end
from .chunk_delta_grads import load_tile, load_values
from .chunk_o_vjp import load_keys


@triton.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def chunk_gate_grads_kernel(
    q, k, v, g, g_gamma, d_o, h, d_s, d_g, scale, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_g = ln2 (rowsum Z - colsum Z + scale gam <q, d_o h^T> - t) of one chunk and value head, t = ga <k, v d_s^T>;
    its last row takes the sum of the other rows' t, and 2^g_C <h, d_s>.

    Z = tril(scale E * d_o v^T * q k^T, -1).
    """
    LN2: tl.constexpr = 0.6931471805599453
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_slot = pid // HV
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = bos + o_t
    o_c = tl.arange(0, C)
    p_k = (row * H + i_h // (HV // H)) * K
    p_v = (row * HV + i_h) * V
    p_s = (i_slot * HV + i_h) * (K * V)
    b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
    b_P = tl.zeros([C, C], dtype=tl.float32)
    for i_v in range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        b_do = load_values(d_o, p_v, o_c, o_v, HV, n, V)
        b_v = load_values(v, p_v, o_c, o_v, HV, n, V)
        b_P = tl.dot(b_do, tl.trans(b_v), b_P, input_precision=PRECISION)
    b_R = tl.zeros([C, C], dtype=tl.float32)
    b_read = tl.zeros([C], dtype=tl.float32)
    b_t = tl.zeros([C], dtype=tl.float32)
    b_hds = tl.zeros([BK], dtype=tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_k = load_keys(k, p_k, o_c, o_k, H, n, K)
        b_q = load_keys(q, p_k, o_c, o_k, H, n, K)
        b_R = tl.dot(b_q, tl.trans(b_k), b_R, input_precision=PRECISION)
        b_dh = tl.zeros([C, BK], dtype=tl.float32)
        b_vs = tl.zeros([C, BK], dtype=tl.float32)
        for i_v in range(0, V, BV):
            o_v = i_v + tl.arange(0, BV)
            b_h = load_tile(h, p_s, o_k, o_v, K, V)
            b_ds = load_tile(d_s, p_s, o_k, o_v, K, V)
            b_do = load_values(d_o, p_v, o_c, o_v, HV, n, V)
            b_v = load_values(v, p_v, o_c, o_v, HV, n, V)
            b_dh = tl.dot(b_do, tl.trans(b_h), b_dh, input_precision=PRECISION)
            b_vs = tl.dot(b_v, tl.trans(b_ds), b_vs, input_precision=PRECISION)
            b_hds += tl.sum(b_h.to(tl.float32) * b_ds.to(tl.float32), axis=1)
        b_read += tl.sum(b_q.to(tl.float32) * b_dh, axis=1)
        b_t += tl.sum(b_k.to(tl.float32) * b_vs, axis=1)
    b_Z = b_P * b_R * pair_decay(b_g, b_g, o_c, o_c, n)
    b_Z = tl.where(o_c[:, None] > o_c[None, :], b_Z * scale, 0.0)
    b_dg = tl.sum(b_Z, axis=1) - tl.sum(b_Z, axis=0) + b_read * tl.exp2(b_g) * scale
    b_t = tl.where(o_c < n - 1, b_t * to_chunk_end(b_g, b_gl, n, C), 0.0)
    # At the last row the running sum is the whole one; reducing b_t once more breaks Triton 3.7 on sm_100.
    b_end = tl.cumsum(b_t, axis=0) + tl.exp2(b_gl) * tl.sum(b_hds, axis=0)
    b_dg += tl.where(o_c == n - 1, b_end, -b_t)
    tl.store(d_g + row * HV + i_h + o_c * HV, LN2 * b_dg, mask=o_c < n)
