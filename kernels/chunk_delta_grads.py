"""Gradients of the delta rule inside each chunk, from the states and cotangents that both scans left."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from ._decay import chunk_decay, pair_decay, pair_decay_transposed, to_chunk_end
from .chunk_o_vjp import load_keys


@triton.jit
def load_values(x, p_v, o_c, o_v, HV, n, V: tl.constexpr):
    """Rows o_c and columns o_v of a chunk's values; 0 past its n rows and past V."""
    m = (o_c < n)[:, None] & (o_v < V)[None, :]
    return tl.load(x + p_v + o_c[:, None] * (HV * V) + o_v[None, :], mask=m, other=0.0)


@triton.jit
def load_tile(x, p_s, o_k, o_v, K: tl.constexpr, V: tl.constexpr):
    """Rows o_k and columns o_v of a state."""
    m = (o_k < K)[:, None] & (o_v < V)[None, :]
    return tl.load(x + p_s + o_k[:, None] * V + o_v[None, :], mask=m, other=0.0)


@triton.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def chunk_delta_grads_kernel(
    q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_q, d_k, d_v, d_beta, d_g, scale, cu_seqlens, chunk_table,
    T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk and value head; d_q and d_k [rows, HV, K] take each value head's share.

    With D = scale E * (d_o v_new^T), N = -tril(E * (d_x v_new^T), -1) and M = beta_i N:
    dq = D k + scale gam d_o h^T, dk = D^T q + ga v_new dS^T - beta gam d_x h^T + (M + M^T) k, dv = beta d_x. What
    belongs to dk is held transposed, so that D is an operand on the right: transposed on the left, an accumulator is
    miscompiled on Hopper.
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
    m_c = o_c < n
    p_k = (row * H + i_h // (HV // H)) * K
    p_dk = (row * HV + i_h) * K
    p_v = (row * HV + i_h) * V
    p_s = (i_slot * HV + i_h) * (K * V)
    m_lower = o_c[:, None] > o_c[None, :]
    b_beta = tl.load(beta + row * HV + i_h + o_c * HV, mask=m_c, other=0.0).to(tl.float32)
    b_g, b_gl = chunk_decay(g, None, i_h, bos, o_t, length, HV, C)
    b_D = tl.zeros([C, C], dtype=tl.float32)
    b_Dt = tl.zeros([C, C], dtype=tl.float32)
    b_N = tl.zeros([C, C], dtype=tl.float32)
    b_xv = tl.zeros([C], dtype=tl.float32)
    for i_v in range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        b_do = load_values(d_o, p_v, o_c, o_v, HV, n, V)
        b_new = load_values(v_new, p_v, o_c, o_v, HV, n, V)
        b_dx = load_values(d_x, p_v, o_c, o_v, HV, n, V)
        b_D = tl.dot(b_do, tl.trans(b_new), b_D, input_precision=PRECISION)
        b_Dt = tl.dot(b_new, tl.trans(b_do), b_Dt, input_precision=PRECISION)
        b_N = tl.dot(b_dx, tl.trans(b_new), b_N, input_precision=PRECISION)
        if d_beta is not None:
            b_v = load_values(v, p_v, o_c, o_v, HV, n, V)
            b_xv += tl.sum(b_dx.to(tl.float32) * b_v.to(tl.float32), axis=1)
        if d_v is not None:
            b_dv = (b_dx * b_beta[:, None]).to(d_v.dtype.element_ty)
            m_cv = m_c[:, None] & (o_v < V)[None, :]
            tl.store(d_v + p_v + o_c[:, None] * (HV * V) + o_v[None, :], b_dv, mask=m_cv)
    b_Dt = (b_Dt * pair_decay_transposed(b_g, b_g, o_c, o_c, n) * scale).to(q.dtype.element_ty)
    b_E = pair_decay(b_g, b_g, o_c, o_c, n)
    b_D *= b_E * scale
    b_N = tl.where(m_lower, -b_N * b_E, 0.0)
    if d_g is not None:
        b_Z = tl.zeros([C, C], dtype=tl.float32)
        for i_k in range(0, K, BK):
            o_k = i_k + tl.arange(0, BK)
            b_k = load_keys(k, p_k, o_c, o_k, H, n, K)
            b_q = load_keys(q, p_k, o_c, o_k, H, n, K)
            b_Z = tl.dot(b_q, tl.trans(b_k), b_Z, input_precision=PRECISION)
        b_Z = tl.where(m_lower, b_Z * b_D, 0.0)
        b_dg = tl.sum(b_Z, axis=1) - tl.sum(b_Z, axis=0)
    b_D = b_D.to(q.dtype.element_ty)
    b_R = tl.zeros([C, C], dtype=tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_k = load_keys(k, p_k, o_c, o_k, H, n, K)
        b_R = tl.dot(b_k, tl.trans(b_k), b_R, input_precision=PRECISION)
    b_R *= b_N
    b_rows = tl.sum(b_R, axis=1)
    if d_g is not None:
        b_dg -= tl.sum(b_R * b_beta[:, None], axis=0)
    b_N *= b_beta[:, None]
    b_M = b_N + tl.trans(b_N)
    if q.dtype.element_ty != tl.float16:
        b_M = b_M.to(q.dtype.element_ty)
    b_gam = tl.exp2(b_g)
    b_ga = to_chunk_end(b_g, b_gl, n, C)
    b_t = tl.zeros([C], dtype=tl.float32)
    b_hds = tl.zeros([BK], dtype=tl.float32)

    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_dq = tl.zeros([C, BK], dtype=tl.float32)
        for i_v in range(0, V, BV):
            o_v = i_v + tl.arange(0, BV)
            b_do = load_values(d_o, p_v, o_c, o_v, HV, n, V)
            b_h = load_tile(h, p_s, o_k, o_v, K, V)
            b_dq = tl.dot(b_do, tl.trans(b_h), b_dq, input_precision=PRECISION)
        b_dq *= (b_gam * scale)[:, None]
        b_k = load_keys(k, p_k, o_c, o_k, H, n, K)
        b_q = load_keys(q, p_k, o_c, o_k, H, n, K)
        if d_g is not None:
            b_dg += tl.sum(b_q.to(tl.float32) * b_dq, axis=1)
        if d_q is not None:
            b_dq = tl.dot(b_D, b_k, b_dq, input_precision=PRECISION)
            m_ck = m_c[:, None] & (o_k < K)[None, :]
            tl.store(d_q + p_dk + o_c[:, None] * (HV * K) + o_k[None, :], b_dq.to(d_q.dtype.element_ty), mask=m_ck)
        b_dk = tl.zeros([C, BK], dtype=tl.float32)
        b_xs = tl.zeros([C, BK], dtype=tl.float32)
        for i_v in range(0, V, BV):
            o_v = i_v + tl.arange(0, BV)
            b_new = load_values(v_new, p_v, o_c, o_v, HV, n, V)
            b_dx = load_values(d_x, p_v, o_c, o_v, HV, n, V)
            b_h = load_tile(h, p_s, o_k, o_v, K, V)
            b_ds = load_tile(d_s, p_s, o_k, o_v, K, V)
            b_xs = tl.dot(b_dx, tl.trans(b_h), b_xs, input_precision=PRECISION)
            b_dk = tl.dot(b_new, tl.trans(b_ds), b_dk, input_precision=PRECISION)
            if d_g is not None:
                b_hds += tl.sum(b_h.to(tl.float32) * b_ds.to(tl.float32), axis=1)
        b_xs *= b_gam[:, None]
        b_rows -= tl.sum(b_k.to(tl.float32) * b_xs, axis=1)
        b_dk *= b_ga[:, None]
        if d_g is not None:
            b_t += tl.sum(b_k.to(tl.float32) * b_dk, axis=1)
        if d_k is not None:
            b_dk -= b_xs * b_beta[:, None]
            b_dk = tl.dot(b_Dt, b_q, b_dk, input_precision=PRECISION)
            if b_k.dtype == tl.float16:
                # cotangents may leave fp16's range; tf32 has its digits and float32's range
                b_dk = tl.dot(b_M, b_k.to(tl.float32), b_dk, input_precision="tf32")
            else:
                b_dk = tl.dot(b_M, b_k, b_dk, input_precision=PRECISION)
            m_ck = m_c[:, None] & (o_k < K)[None, :]
            tl.store(d_k + p_dk + o_c[:, None] * (HV * K) + o_k[None, :], b_dk.to(d_k.dtype.element_ty), mask=m_ck)

    if d_beta is not None:
        tl.store(d_beta + row * HV + i_h + o_c * HV, b_rows + b_xv, mask=m_c)
    if d_g is not None:
        b_t = tl.where(o_c < n - 1, b_t, 0.0)
        # At the last row the running sum is the whole one; reducing b_t once more breaks Triton 3.7 on sm_100.
        b_end = tl.cumsum(b_t, axis=0) + tl.exp2(b_gl) * tl.sum(b_hds, axis=0)
        b_dg += b_rows * b_beta + tl.where(o_c == n - 1, b_end, -b_t)
        tl.store(d_g + row * HV + i_h + o_c * HV, LN2 * b_dg, mask=m_c)
