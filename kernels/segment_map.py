"""The map of a piece of a sequence under the delta rule: the scan over chunk states, started from the identity."""

import triton
import triton.language as tl

from ._chunks import sequence_rows
from ._decay import chunk_decay, to_chunk_end
from .chunk_delta_h import channel_decay, store_state


@triton.jit
def identity_columns(o_v, K: tl.constexpr, BK: tl.constexpr):
    """Columns o_v of the identity [K, K], zeros past it, as a state is held: transposed, in tiles [BV, BK]."""
    b_s = ()
    for j in tl.static_range((K + BK - 1) // BK):
        m_j = (o_v < K)[:, None] & (o_v[:, None] == (j * BK + tl.arange(0, BK))[None, :])
        b_s = b_s + (m_j.to(tl.float32),)
    return b_s


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def segment_map_kernel(
    k, w, g, b_end, map, cu_seqlens, chunk_offsets, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S = 1; for each chunk S <- 2^g_C S - (ga k)^T w S; map = S. With b_end row d decays by 2^b_end_d, k as it is.

    One program owns BV columns of one sequence's head, held as the scan holds its state: transposed, in tiles [BV, BK].
    """
    NK: tl.constexpr = (K + BK - 1) // BK
    NV: tl.constexpr = (K + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    bos, length, slot = sequence_rows(i_n, cu_seqlens, chunk_offsets, T, NT)
    o_c = tl.arange(0, C)
    b_s = identity_columns(o_v, K, BK)

    for i_t in range(tl.cdiv(length, C)):
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        p_k = k + ((bos + o_t) * H + i_h // (HV // H)) * K
        p_w = w + ((bos + o_t) * HV + i_h) * K
        b_v = tl.zeros([BV, C], dtype=tl.float32)
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            m_kc = (o_k < K)[:, None] & (o_c < n)[None, :]
            b_wt = tl.load(p_w + o_k[:, None] + o_c[None, :] * (HV * K), mask=m_kc, other=0.0)
            b_v = tl.dot(b_s[j].to(b_wt.dtype), b_wt, b_v, input_precision=PRECISION)
        b_decay = 1.0
        if g is not None:
            b_g, b_gl = chunk_decay(g, None, i_h, bos, o_t, length, HV, C)
            b_v *= to_chunk_end(b_g, b_gl, n, C)[None, :]
            b_decay = tl.exp2(b_gl)
        b_next = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            m_ck = (o_c < n)[:, None] & (o_k < K)[None, :]
            b_k = tl.load(p_k + o_c[:, None] * (H * K) + o_k[None, :], mask=m_ck, other=0.0)
            if b_end is not None:
                b_decay = channel_decay(b_end, (slot + i_t) * HV + i_h, o_k, K)[None, :]
            b_next = b_next + (tl.dot((-b_v).to(b_k.dtype), b_k, b_s[j] * b_decay, input_precision=PRECISION),)
        b_s = b_next

    store_state(map, (i_n * HV + i_h) * (K * K), b_s, o_v, K, K, BK)
