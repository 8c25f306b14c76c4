"""Log decay from a pre-activation, and its gradient with sums over all rows."""

import triton
import triton.language as tl

from ._exp import exp_exact
from ._softplus import log1p_ratio, softplus


@triton.jit
def log_decay(x, A_log):
    """(g, whether it is stopped at -exp(88)), g = -exp(A_log) softplus(x); a nan stays one.

    With e = exp(-|x|), g = -exp(A_log) max(x, 0) - exp(A_log - |x|) log1p(e) / e: no inf meets a 0, and g is relatively
    right however small. Below A_log = -87, exp(A_log) counts as 0.
    """
    LN_2: tl.constexpr = 0.6931471805599453
    LOG2_E: tl.constexpr = 1.4426950408889634
    STOP: tl.constexpr = 1.6516362549940018e38
    b_slope = exp_exact(tl.minimum(A_log, 88.5, propagate_nan=tl.PropagateNan.ALL))
    e = tl.exp2(tl.abs(x) * -LOG2_E)
    # exp(A_log - |x|) = 2^y (1 + lost), held where it is finite and more than enough to stop g; a nan is in e
    exponent = tl.minimum(tl.maximum(A_log - tl.abs(x), -200.0), 88.5)
    y = exponent * LOG2_E
    lost = tl.fma(y, -LN_2, exponent)
    ratio = log1p_ratio(e)
    b_size = tl.fma(b_slope, tl.maximum(x, 0.0), tl.exp2(y) * tl.fma(lost, ratio, ratio))
    return -tl.minimum(b_size, STOP, propagate_nan=tl.PropagateNan.ALL), b_size > STOP


@triton.jit
def rise_of_log_softplus(x):
    """The gradient of log softplus(x): sigmoid(x) / softplus(x), which is 1 below -15."""
    e = exp_exact(-tl.abs(x))
    b_sigmoid = tl.div_rn(tl.where(x >= 0, 1.0, e), 1.0 + e)
    return tl.where(x < -15.0, 1.0, tl.div_rn(b_sigmoid, tl.maximum(softplus(x), 1e-30)))


@triton.jit(do_not_specialize=["rows", "HV"])
def decay_gate_kernel(a, A_log, dt_bias, g, rows, HV, BT: tl.constexpr, BH: tl.constexpr):
    """g = -exp(A_log) softplus(a + dt_bias) for BT rows of BH heads."""
    n_hb = tl.cdiv(HV, BH)
    pid = tl.program_id(0).to(tl.int64)
    o_t = (pid // n_hb) * BT + tl.arange(0, BT)
    o_h = (pid % n_hb) * BH + tl.arange(0, BH)
    m_h = o_h < HV
    m = (o_t < rows)[:, None] & m_h[None, :]
    p = o_t[:, None] * HV + o_h[None, :]
    b_A = tl.load(A_log + o_h, mask=m_h, other=0.0)[None, :]
    b_x = tl.load(a + p, mask=m, other=0.0).to(tl.float32) + tl.load(dt_bias + o_h, mask=m_h, other=0.0)[None, :]
    b_g, _ = log_decay(b_x, b_A)
    tl.store(g + p, b_g, mask=m)


@triton.jit(do_not_specialize=["N", "rows", "HV"])
def decay_gate_vjp_kernel(
    d_g, a, A_log, dt_bias, d_a, sum_A_log, sum_dt_bias, cu_seqlens, N, rows, HV,
    P: tl.constexpr, BT: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """d_a, and one program's share of the sums: every P-th block of BT rows, for BH heads.

    sum_A_log, sum_dt_bias [P, HV]. Rows past the last sequence are left out of the sums, whatever they hold.
    """
    n_hb = tl.cdiv(HV, BH)
    pid = tl.program_id(0).to(tl.int64)
    i_p = pid // n_hb
    o_h = (pid % n_hb) * BH + tl.arange(0, BH)
    m_h = o_h < HV
    b_A = tl.load(A_log + o_h, mask=m_h, other=0.0)[None, :]
    b_bias = tl.load(dt_bias + o_h, mask=m_h, other=0.0)[None, :]
    if cu_seqlens is None:
        end = rows.to(tl.int64)
    else:
        end = tl.load(cu_seqlens + N).to(tl.int64)
    b_dA = tl.zeros([BT, BH], tl.float32)
    b_dbias = tl.zeros([BT, BH], tl.float32)
    for i_t in range(i_p * BT, end, P * BT):
        o_t = i_t + tl.arange(0, BT)
        m = (o_t < end)[:, None] & m_h[None, :]
        p = o_t[:, None] * HV + o_h[None, :]
        b_x = tl.load(a + p, mask=m, other=0.0).to(tl.float32) + b_bias
        b_g, m_stop = log_decay(b_x, b_A)
        b_dg = tl.load(d_g + p, mask=m, other=0.0).to(tl.float32)
        b_d = tl.where(m_stop, 0.0, b_g * b_dg)
        b_dx = b_d * rise_of_log_softplus(b_x)
        if d_a is not None:
            tl.store(d_a + p, b_dx, mask=m)
        b_dA += b_d
        b_dbias += b_dx
    if sum_A_log is not None:
        tl.store(sum_A_log + i_p * HV + o_h, tl.sum(b_dA, axis=0), mask=m_h)
    if sum_dt_bias is not None:
        tl.store(sum_dt_bias + i_p * HV + o_h, tl.sum(b_dbias, axis=0), mask=m_h)


@triton.jit(do_not_specialize=["HV"])
def add_partial_sums_kernel(
    sum_A_log, sum_dt_bias, d_A_log, d_dt_bias, HV, P: tl.constexpr, BH: tl.constexpr
):  # fmt: skip
    """d_A_log, d_dt_bias [HV]: the P partial sums of BH heads, added in one fixed order."""
    o_h = tl.program_id(0).to(tl.int64) * BH + tl.arange(0, BH)
    m_h = o_h < HV
    p = tl.arange(0, P)[:, None] * HV + o_h[None, :]
    if d_A_log is not None:
        tl.store(d_A_log + o_h, tl.sum(tl.load(sum_A_log + p, mask=m_h[None, :], other=0.0), axis=0), mask=m_h)
    if d_dt_bias is not None:
        tl.store(d_dt_bias + o_h, tl.sum(tl.load(sum_dt_bias + p, mask=m_h[None, :], other=0.0), axis=0), mask=m_h)
