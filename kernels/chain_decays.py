"""The state that a sequence leaves, from its pieces' decays and the states that they leave by themselves."""

import triton
import triton.language as tl

from .chunk_delta_h import load_state, store_state


@triton.jit(do_not_specialize=["count", "HV"])
def chain_decays_kernel(
    decays, passed, first, last, count, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """S <- decays[p] S + passed[p] over the pieces, in REVERSE from the last one on; last = S, from S = first. One
    program owns BV columns of one sequence's head, held transposed in tiles [BV, BK]."""
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    b_s = load_state(first, (i_n * HV + i_h) * (K * V), o_v, K, V, BK, BV)
    for i in range(count):
        p_p = (i_n * count + (count - 1 - i if REVERSE else i)) * HV + i_h
        b_x = load_state(passed, p_p * (K * V), o_v, K, V, BK, BV)
        b_next = ()
        for j in tl.static_range((K + BK - 1) // BK):
            o_k = j * BK + tl.arange(0, BK)
            b_decay = tl.load(decays + p_p * K + o_k, mask=o_k < K, other=0.0)
            b_next = b_next + (b_s[j] * b_decay[None, :] + b_x[j],)
        b_s = b_next
    store_state(last, (i_n * HV + i_h) * (K * V), b_s, o_v, K, V, BK)
