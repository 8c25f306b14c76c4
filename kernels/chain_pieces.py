"""The states that enter the pieces of a sequence, from what each piece does to a state."""

import triton
import triton.language as tl

from .chunk_delta_h import load_state, store_state
from .segment_map import identity_columns


@triton.jit(do_not_specialize=["count", "HV"])
def chain_pieces_kernel(
    maps, passed, first, entered, last, count, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """entered[p] = S; S <- M[p] S + passed[p]; last = S, from S = first. In reverse from the last piece on, with M^T.
    Without passed that is 0, and S starts from the identity, V being K.

    Products are tf32, as exact as those of the scan, which takes its states in 16 bits. One program owns BV columns of
    one sequence's head, held transposed in tiles [BV, BK].
    """
    NK: tl.constexpr = (K + BK - 1) // BK
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    if passed is not None:
        b_s = load_state(first, (i_n * HV + i_h) * (K * V), o_v, K, V, BK, BV)
    else:
        b_s = identity_columns(o_v, K, BK)
    for i in range(count):
        i_p = i_n * count + (count - 1 - i if REVERSE else i)
        p_p = i_p * HV + i_h
        if entered is not None:
            store_state(entered, p_p * (K * V), b_s, o_v, K, V, BK)
        b_x = load_state(passed, p_p * (K * V), o_v, K, V, BK, BV)
        b_next = ()
        for j in tl.static_range(NK):
            o_j = j * BK + tl.arange(0, BK)
            b_j = b_x[j]
            for i_k in tl.static_range(NK):
                o_k = i_k * BK + tl.arange(0, BK)
                if REVERSE:
                    o_map = o_k[:, None] * K + o_j[None, :]
                else:
                    o_map = o_k[:, None] + o_j[None, :] * K
                m_map = (o_k < K)[:, None] & (o_j < K)[None, :]
                b_map = tl.load(maps + p_p * (K * K) + o_map, mask=m_map, other=0.0)
                b_j = tl.dot(b_s[i_k], b_map, b_j, input_precision="tf32")
            b_next = b_next + (b_j,)
        b_s = b_next
    if last is not None:
        store_state(last, (i_n * HV + i_h) * (K * V), b_s, o_v, K, V, BK)
