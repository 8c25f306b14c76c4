"""The decay of a whole piece of a sequence: the log decays of its chunks, added up."""

import triton
import triton.language as tl

from ._chunks import sequence_rows


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def segment_decay_kernel(
    g, g_gamma, b_end, decay, cu_seqlens, chunk_offsets, T, NT, HV,
    K: tl.constexpr, C: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """decay = 2^(sum over chunks of g_C, and of g_gamma over the rows, or of b_end): BD channels of a sequence's head.

    BN chunks at a time: a piece has thousands, and one load after another would wait for each.
    """
    ND: tl.constexpr = (K + BD - 1) // BD
    pid = tl.program_id(0).to(tl.int64)
    o_d = (pid % ND).to(tl.int32) * BD + tl.arange(0, BD)
    i_h = (pid // ND) % HV
    i_n = pid // ND // HV
    bos, length, slot = sequence_rows(i_n, cu_seqlens, chunk_offsets, T, NT)
    b_log = tl.zeros([BD], dtype=tl.float32)
    n_t = tl.cdiv(length, C)
    for i in range(0, n_t, BN):
        o_n = i + tl.arange(0, BN)
        if g is not None:
            row = bos + tl.minimum((o_n + 1) * C, length) - 1
            b_log += tl.sum(tl.load(g + row * HV + i_h, mask=o_n < n_t, other=0.0), axis=0)
        if b_end is not None:
            p_b = b_end + ((slot + o_n) * HV + i_h)[:, None] * K + o_d[None, :]
            b_log += tl.sum(tl.load(p_b, mask=(o_n < n_t)[:, None] & (o_d < K)[None, :], other=0.0), axis=0)
    if g_gamma is not None:
        b_log += tl.load(g_gamma + i_h) * 1.4426950408889634 * length
    tl.store(decay + (i_n * HV + i_h) * K + o_d, tl.exp2(b_log), mask=o_d < K)
