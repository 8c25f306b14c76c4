"""A diagonal state-space model, token by token: every channel has a row of states of its own."""

import triton
import triton.language as tl

from ._chunks import sequence_span
from ._exp import exp_exact
from ._state import load_tile, store_tile


@triton.jit(do_not_specialize=["T", "DI"])
def state_space_step_kernel(
    x, dt, A_log, b, c, initial_state, o, final_state, cu_seqlens, T, DI,
    NS: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """h <- exp(dt A) h + (dt x) b, o = sum over the states of h c, with A = -exp(A_log).

    One program owns BD channels of one sequence.
    """
    ND = tl.cdiv(DI, BD)
    pid = tl.program_id(0).to(tl.int64)
    i_n = pid // ND
    o_d = (pid % ND) * BD + tl.arange(0, BD)
    o_s = tl.arange(0, BN)
    m_d, m_s = o_d < DI, o_s < NS
    bos, length = sequence_span(i_n, cu_seqlens, T)
    p_h = i_n * DI * NS
    # above 88 exp is inf, and inf * 0 where a step has no length
    b_a = -exp_exact(tl.minimum(load_tile(A_log, 0, o_d, o_s, DI, NS), 88.0))
    b_h = load_tile(initial_state, p_h, o_d, o_s, DI, NS)

    for t in range(length):
        p_d = (bos + t) * DI + o_d
        p_s = (bos + t) * NS + o_s
        b_dt = tl.load(dt + p_d, mask=m_d, other=0.0).to(tl.float32)
        b_x = tl.load(x + p_d, mask=m_d, other=0.0).to(tl.float32)
        b_b = tl.load(b + p_s, mask=m_s, other=0.0).to(tl.float32)
        b_h = exp_exact(b_dt[:, None] * b_a) * b_h + (b_dt * b_x)[:, None] * b_b[None, :]
        if o is not None:
            b_c = tl.load(c + p_s, mask=m_s, other=0.0).to(tl.float32)
            b_o = tl.sum(b_h * b_c[None, :], axis=1)
            tl.store(o + p_d, b_o.to(o.dtype.element_ty), mask=m_d)

    if final_state is not None:
        store_tile(final_state, p_h, b_h, o_d, o_s, DI, NS)
