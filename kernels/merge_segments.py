"""States, or their cotangents, of several ranks, passed through the maps of the ranks between and added."""

import triton
import triton.language as tl

from .chunk_delta_h import load_state, store_state


@triton.jit(do_not_specialize=["first", "count", "LANES", "lane", "HV"])
def merge_segments_kernel(
    decays, states, own, y, first, count, LANES, lane, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """y = own; sequence lane + l adds S of lane l: S <- decays_r S + states_r over count ranks r, from ``first``
    upwards, or downwards in reverse. One program owns BV columns of one sequence's head."""
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


@triton.jit(do_not_specialize=["first_map", "first_in", "first_out", "HV"])
def pass_map_kernel(
    maps, states, x, y, first_map, first_in, first_out, HV, K: tl.constexpr, V: tl.constexpr, BM: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, REVERSE: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    """y = M x + states, with M^T in reverse; added to y where ADDED. Maps and states, x, and y are numbered by the
    lane, from first_map, first_in and first_out on. One program owns BM rows and BV columns of one lane's head."""
    NM: tl.constexpr = (K + BM - 1) // BM
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    o_m = (pid // NV % NM).to(tl.int32) * BM + tl.arange(0, BM)
    i_h = pid // (NV * NM) % HV
    i_l = pid // (NV * NM) // HV
    p_map = (first_map + i_l) * HV + i_h
    m_m = (o_m < K)[:, None]
    m_y = m_m & (o_v < V)[None, :]
    o_y = o_m[:, None] * V + o_v[None, :]
    b_y = tl.load(states + p_map * (K * V) + o_y, mask=m_y, other=0.0)
    for i in range(0, K, BK):
        o_k = i + tl.arange(0, BK)
        if REVERSE:
            o_map = o_m[:, None] + o_k[None, :] * K
        else:
            o_map = o_m[:, None] * K + o_k[None, :]
        b_map = tl.load(maps + p_map * (K * K) + o_map, mask=m_m & (o_k < K)[None, :], other=0.0)
        p_x = x + ((first_in + i_l) * HV + i_h) * (K * V)
        m_x = (o_k < K)[:, None] & (o_v < V)[None, :]
        b_x = tl.load(p_x + o_k[:, None] * V + o_v[None, :], mask=m_x, other=0.0)
        b_y = tl.dot(b_map, b_x, b_y, input_precision="ieee")
    p_y = y + ((first_out + i_l) * HV + i_h) * (K * V) + o_y
    if ADDED:
        b_y += tl.load(p_y, mask=m_y, other=0.0)
    tl.store(p_y, b_y, mask=m_y)
