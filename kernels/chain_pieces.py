"""The states that enter the pieces of a sequence, from what each piece does to a state."""

import triton
import triton.language as tl

from .chunk_delta_h import load_state, store_state
from .segment_map import identity_columns


@triton.jit
def taken(b_x, PRECISION: tl.constexpr):
    """b_x as a product is to take it. One of tf32 cuts digits off by itself: rounded before, states do not shrink by
    2^-11 from map to map, all alike."""
    if PRECISION == "tf32":
        b_near = ((b_x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        # a nan of all ones would become a zero
        b_x = tl.where(b_x == b_x, b_near, b_x)
    return b_x


@triton.jit
def through_map(
    b_s, b_x, maps, p_map, there, K: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, REVERSE: tl.constexpr
):  # fmt: skip
    """b_x + M b_s, held transposed in tiles [BV, BK]; M, or where REVERSE its transpose, lies at p_map. b_x alone
    where there is no map."""
    NK: tl.constexpr = (K + BK - 1) // BK
    b_from, b_next = (), ()
    for i_k in tl.static_range(NK):
        b_from = b_from + (taken(b_s[i_k], PRECISION),)
    for j in tl.static_range(NK):
        o_j = j * BK + tl.arange(0, BK)
        b_j = b_x[j]
        for i_k in tl.static_range(NK):
            o_k = i_k * BK + tl.arange(0, BK)
            if REVERSE:
                o_map = o_k[:, None] * K + o_j[None, :]
            else:
                o_map = o_k[:, None] + o_j[None, :] * K
            m_map = (o_k < K)[:, None] & (o_j < K)[None, :] & there
            b_map = taken(tl.load(maps + p_map + o_map, mask=m_map, other=0.0), PRECISION)
            b_j = tl.dot(b_from[i_k], b_map, b_j, input_precision=PRECISION)
        b_next = b_next + (b_j,)
    return b_next


@triton.jit(do_not_specialize=["count", "HV"])
def chain_pieces_kernel(
    maps, passed, first, entered, last, count, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):  # fmt: skip
    """entered[p] = S; S <- M[p] S + passed[p]; last = S, from S = first. In reverse from the last piece on, with M^T.
    Without passed that is 0, and S starts from the identity, V being K.

    Products are as PRECISION has them; tf32 is as exact as a scan that takes its states in 16 bits. One program owns BV
    columns of one sequence's head, held transposed in tiles [BV, BK].
    """
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
        b_s = through_map(b_s, b_x, maps, p_p * (K * K), True, K, BK, PRECISION, REVERSE)
    if last is not None:
        store_state(last, (i_n * HV + i_h) * (K * V), b_s, o_v, K, V, BK)


@triton.jit(do_not_specialize=["count", "HV"])
def chain_entered_kernel(
    starts, maps, passed, entered, count, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):  # fmt: skip
    """entered[p + 1] = M[p] entered[p] + passed[p], or passed[p] alone where piece p has a start, in the pieces p + 1
    that have none: where starts is negative; without starts in all but the first. In reverse entered[p - 1], with M^T.
    """
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    p_n = pid // NV // HV * count * HV + i_h
    if starts is not None:
        o_p = tl.arange(0, BP)
        b_starts = tl.load(starts + p_n + o_p * HV, mask=o_p < count, other=0)
        if tl.min(b_starts, axis=0) >= 0:
            return
    b_s = load_state(None, 0, o_v, K, V, BK, BV)
    for i in range(count - 1):
        p_p = p_n + (count - 1 - i if REVERSE else i) * HV
        p_next = p_p - HV if REVERSE else p_p + HV
        mapped = i > 0
        lacking = i >= 0
        if starts is not None:
            mapped = tl.load(starts + p_p) < 0
            lacking = tl.load(starts + p_next) < 0
        # no columns where the next piece does not ask: what was passed is not there then
        o_asked = tl.where(lacking, o_v, V)
        b_x = load_state(passed, p_p * (K * V), o_asked, K, V, BK, BV)
        b_from = ()
        for j in tl.static_range((K + BK - 1) // BK):
            b_from = b_from + (tl.where(mapped, b_s[j], 0.0),)
        b_s = through_map(b_from, b_x, maps, p_p * (K * K), mapped & lacking, K, BK, PRECISION, REVERSE)
        store_state(entered, p_next * (K * V), b_s, o_asked, K, V, BK)
