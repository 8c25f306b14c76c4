"""Linear attention on positive features, token by token, each output divided by its length."""

import triton
import triton.language as tl

from ._chunks import sequence_span
from ._exp import exp_exact
from ._state import load_tile, store_tile


@triton.jit
def load_features(x, p, m):
    """elu(x) + 1, which is x + 1 above 0 and exp(x) below; 0 where the mask is off."""
    b_x = tl.load(x + p, mask=m, other=float("-inf")).to(tl.float32)
    return tl.where(b_x > 0, b_x + 1.0, exp_exact(tl.minimum(b_x, 0.0)))


@triton.jit
def store_divided(o, p, b_y, m, eps):
    """o = y / (norm(y + eps) + eps) over the numbers that the mask leaves."""
    b_z = tl.where(m, b_y + eps, 0.0)
    b_o = tl.div_rn(b_y, tl.sqrt_rn(tl.sum(b_z * b_z, axis=0)) + eps)
    tl.store(o + p, b_o.to(o.dtype.element_ty), mask=m)


@triton.jit(do_not_specialize=["eps", "T", "H", "HV"])
def feature_step_kernel(
    q, k, v, initial_state, o, final_state, y, cu_seqlens, eps, T, H, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, BY: tl.constexpr,
):  # fmt: skip
    """S <- S + phi(k) v, y = phi(q) S, o = y / (norm(y + eps) + eps), phi(x) = elu(x) + 1.

    One program owns a sequence's head, since the norm is over all of V. It takes the state in tiles of BV columns,
    each through all tokens; with more than one, y waits in memory for the last. BY: a tile that holds V whole.
    """
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_n = pid // HV
    bos, length = sequence_span(i_n, cu_seqlens, T)
    p_s = pid * (K * V)
    o_k = tl.arange(0, BK)

    for i_v in tl.static_range(NV):
        o_v = i_v * BV + tl.arange(0, BV)
        m_v = o_v < V
        b_s = load_tile(initial_state, p_s, o_k, o_v, K, V)
        for t in range(length):
            p_k = ((bos + t) * H + i_h // (HV // H)) * K + o_k
            p_v = ((bos + t) * HV + i_h) * V + o_v
            b_v = tl.load(v + p_v, mask=m_v, other=0.0).to(tl.float32)
            b_s += load_features(k, p_k, o_k < K)[:, None] * b_v[None, :]
            if o is not None:
                b_y = tl.sum(load_features(q, p_k, o_k < K)[:, None] * b_s, axis=0)
                if NV == 1:
                    store_divided(o, p_v, b_y, m_v, eps)
                else:
                    tl.store(y + p_v, b_y, mask=m_v)
        if final_state is not None:
            store_tile(final_state, p_s, b_s, o_k, o_v, K, V)

    if NV > 1 and o is not None:
        # what one thread stored, another loads
        tl.debug_barrier()
        o_y = tl.arange(0, BY)
        for t in range(length):
            p_y = ((bos + t) * HV + i_h) * V + o_y
            store_divided(o, p_y, tl.load(y + p_y, mask=o_y < V, other=0.0), o_y < V, eps)
