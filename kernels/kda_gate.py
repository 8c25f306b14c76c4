"""Log decay per channel from a pre-activation, bounded below or not, and its gradient with sums over all rows."""

import triton
import triton.language as tl

from ._exp import exp_exact
from .decay_gate import log_decay, rise_of_log_softplus


@triton.jit
def bounded_sigmoid(x, A_log):
    """(z, sigmoid(z), sigmoid(-z), exp(A_log)), z = exp(A_log) x held in -100..100, A_log up to 88; a nan stays one."""
    b_slope = exp_exact(tl.where(A_log > 88.0, 88.0, A_log))
    b_z = b_slope * x
    b_z = tl.where(b_z > 100.0, 100.0, tl.where(b_z < -100.0, -100.0, b_z))
    e = exp_exact(-tl.abs(b_z))
    b_up, b_down = tl.div_rn(1.0, 1.0 + e), tl.div_rn(e, 1.0 + e)
    return b_z, tl.where(b_z >= 0, b_up, b_down), tl.where(b_z >= 0, b_down, b_up), b_slope


@triton.jit(do_not_specialize=["bound", "rows", "HV"])
def kda_gate_kernel(
    a, A_log, dt_bias, g, bound, rows, HV, K: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """g = -exp(A_log) softplus(a + dt_bias), or bound sigmoid(exp(A_log) (a + dt_bias)): BT rows, BN channels."""
    columns = HV * K
    n_b = tl.cdiv(columns, BN)
    pid = tl.program_id(0)
    i_t = (pid // n_b).to(tl.int64) * BT
    i_c = pid % n_b * BN
    start = i_t * columns + i_c
    o_t = tl.arange(0, BT)
    o_n = tl.arange(0, BN)
    m = (o_t < rows - i_t)[:, None]
    m_n = o_n < columns - i_c
    if K % BN == 0:
        b_A = tl.load(A_log + i_c // K)
        b_bias = tl.load(dt_bias + i_c + o_n)[None, :]
    else:
        b_A = tl.load(A_log + (i_c + o_n) // K, mask=m_n, other=0.0)[None, :]
        b_bias = tl.load(dt_bias + i_c + o_n, mask=m_n, other=0.0)[None, :]
        m = m & m_n[None, :]
    p = o_t[:, None] * columns + o_n[None, :]
    b_x = tl.load(a + start + p, mask=m, other=0.0).to(tl.float32) + b_bias
    if bound is None:
        b_g, _ = log_decay(b_x, b_A)
    else:
        _, b_s, _, _ = bounded_sigmoid(b_x, b_A)
        b_g = bound * b_s
    tl.store(g + start + p, b_g, mask=m)


@triton.jit(do_not_specialize=["bound", "N", "rows", "HV"])
def kda_gate_vjp_kernel(
    d_g, a, A_log, dt_bias, d_a, sum_A_log, sum_dt_bias, bound, cu_seqlens, N, rows, HV,
    P: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """d_a, and one program's share of the sums: every P-th block of BT rows, for BN channels.

    sum_A_log, sum_dt_bias [P, HV, K]. Rows past the last sequence are left out of the sums, whatever they hold.
    """
    columns = HV * K
    n_b = tl.cdiv(columns, BN)
    pid = tl.program_id(0).to(tl.int64)
    i_p = pid // n_b
    o_n = (pid % n_b) * BN + tl.arange(0, BN)
    m_n = o_n < columns
    b_A = tl.load(A_log + o_n // K, mask=m_n, other=0.0)[None, :]
    b_bias = tl.load(dt_bias + o_n, mask=m_n, other=0.0)[None, :]
    if cu_seqlens is None:
        end = rows.to(tl.int64)
    else:
        end = tl.load(cu_seqlens + N).to(tl.int64)
    b_dA = tl.zeros([BT, BN], tl.float32)
    b_dbias = tl.zeros([BT, BN], tl.float32)
    for i_t in range(i_p * BT, end, P * BT):
        o_t = i_t + tl.arange(0, BT)
        m = (o_t < end)[:, None] & m_n[None, :]
        p = o_t[:, None] * columns + o_n[None, :]
        b_x = tl.load(a + p, mask=m, other=0.0).to(tl.float32) + b_bias
        b_dg = tl.load(d_g + p, mask=m, other=0.0).to(tl.float32)
        if bound is None:
            b_g, m_stop = log_decay(b_x, b_A)
            b_d = tl.where(m_stop, 0.0, b_g * b_dg)
            b_dx = b_d * rise_of_log_softplus(b_x)
        else:
            b_z, b_s, b_other, b_slope = bounded_sigmoid(b_x, b_A)
            b_dz = tl.where(tl.abs(b_z) == 100.0, 0.0, bound * b_s * b_other * b_dg)
            b_dx = b_slope * b_dz
            b_d = tl.where(b_A > 88.0, 0.0, b_z * b_dz)
        if d_a is not None:
            tl.store(d_a + p, b_dx, mask=m)
        b_dA += b_d
        b_dbias += b_dx
    if sum_A_log is not None:
        tl.store(sum_A_log + i_p * columns + o_n, tl.sum(b_dA, axis=0), mask=m_n)
    if sum_dt_bias is not None:
        tl.store(sum_dt_bias + i_p * columns + o_n, tl.sum(b_dbias, axis=0), mask=m_n)


@triton.jit(do_not_specialize=["HV"])
def add_channel_sums_kernel(
    sum_A_log, sum_dt_bias, d_A_log, d_dt_bias, HV, P: tl.constexpr, K: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """d_A_log [HV] and d_dt_bias [HV, K] of one head: the P partial sums, added in one fixed order."""
    i_h = tl.program_id(0).to(tl.int64)
    o_p = tl.arange(0, P)[:, None] * (HV * K)
    b_dA = tl.zeros([BN], tl.float32)
    for i_k in range(0, K, BN):
        o_k = i_k + tl.arange(0, BN)
        m_k = o_k < K
        p = i_h * K + o_p + o_k[None, :]
        if d_A_log is not None:
            b_dA += tl.sum(tl.load(sum_A_log + p, mask=m_k[None, :], other=0.0), axis=0)
        if d_dt_bias is not None:
            b_bias = tl.sum(tl.load(sum_dt_bias + p, mask=m_k[None, :], other=0.0), axis=0)
            tl.store(d_dt_bias + i_h * K + o_k, b_bias, mask=m_k)
    if d_A_log is not None:
        tl.store(d_A_log + i_h, tl.sum(b_dA, axis=0))
