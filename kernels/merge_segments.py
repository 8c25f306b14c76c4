"""States, or their cotangents, of several ranks, passed through the maps of the ranks between and added."""

import triton
import triton.language as tl

from .chunk_delta_h import load_state, store_state


@triton.jit
def through_map(maps, p_m, b_s, K: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, REVERSE: tl.constexpr):
    """(M S)^T, or (M^T S)^T in reverse, of a state held transposed, in tiles [BV, BK]."""
    NK: tl.constexpr = (K + BK - 1) // BK
    b_next = ()
    for j in tl.static_range(NK):
        o_j = j * BK + tl.arange(0, BK)
        b_j = tl.zeros([BV, BK], dtype=tl.float32)
        for i in tl.static_range(NK):
            o_i = i * BK + tl.arange(0, BK)
            m_ij = (o_i < K)[:, None] & (o_j < K)[None, :]
            if REVERSE:
                o_ij = o_i[:, None] * K + o_j[None, :]
            else:
                o_ij = o_i[:, None] + o_j[None, :] * K
            b_m = tl.load(maps + p_m + o_ij, mask=m_ij, other=0.0)
            b_j = tl.dot(b_s[i], b_m, b_j, input_precision="ieee")
        b_next = b_next + (b_j,)
    return b_next


@triton.jit(do_not_specialize=["first", "count", "LANES", "lane", "HV"])
def merge_segments_kernel(
    maps, decays, states, own, y, first, count, LANES, lane, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """y = own; sequence lane + l adds S of lane l: S <- M_r S + states_r over count ranks r, from ``first`` upwards, or
    downwards and with M_r^T in reverse. One program owns BV columns of one sequence's head."""
    NK: tl.constexpr = (K + BK - 1) // BK
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    i_l = i_n - lane
    b_s = load_state(None, 0, o_v, K, V, BK, BV)
    if (i_l >= 0) & (i_l < LANES):
        for i in range(count):
            i_r = (first - i if REVERSE else first + i).to(tl.int64)
            p_r = (i_r * LANES + i_l) * HV + i_h
            b_x = load_state(states, p_r * (K * V), o_v, K, V, BK, BV)
            if maps is not None:
                b_s = through_map(maps, p_r * (K * K), b_s, K, BK, BV, REVERSE)
            b_next = ()
            for j in tl.static_range(NK):
                b_j = b_s[j]
                if decays is not None:
                    o_k = j * BK + tl.arange(0, BK)
                    b_j *= tl.load(decays + p_r * K + o_k, mask=o_k < K, other=0.0)[None, :]
                b_next = b_next + (b_j + b_x[j],)
            b_s = b_next
    b_own = load_state(own, (i_n * HV + i_h) * (K * V), o_v, K, V, BK, BV)
    b_y = ()
    for j in tl.static_range(NK):
        b_y = b_y + (b_own[j] + b_s[j],)
    store_state(y, (i_n * HV + i_h) * (K * V), b_y, o_v, K, V, BK)
