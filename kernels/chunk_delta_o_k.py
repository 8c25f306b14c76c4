"""The scan under a decay per channel that emits its output: what each chunk writes is read from the state on chip."""

import triton
import triton.language as tl

from ._chunks import sequence_rows
from ._columns import load_columns
from .chunk_delta_h import channel_decay, load_state, store_state


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_delta_o_k_kernel(
    qg, A, kg, w, u, b_end, initial_state, o, final_state, cu_seqlens, chunk_offsets, T, NT, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """v_new = u - w S (u itself without w); o = qg S + tril(A) v_new; S <- diag(2^b_end) S + kg^T v_new.

    One program owns BV value columns of one sequence's head. All is held transposed, the state in tiles [BV, BK], so
    that the left operand of every product comes from registers.
    """
    NK: tl.constexpr = (K + BK - 1) // BK
    NV: tl.constexpr = (V + BV - 1) // BV
    WHOLE: tl.constexpr = K % BK == 0
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    bos, length, slot = sequence_rows(i_n, cu_seqlens, chunk_offsets, T, NT)
    p_n = (i_n * HV + i_h) * (K * V)
    o_c = tl.arange(0, C)
    b_s = load_state(initial_state, p_n, o_v, K, V, BK, BV)

    for i_t in range(tl.cdiv(length, C)):
        n = tl.minimum(length - i_t * C, C)
        m_c = o_c < n
        # rows past the chunk's end repeat its last one, so that no load needs a mask of rows; what they give is never
        # stored, and their values enter the state as 0
        o_r = tl.minimum(o_c, n - 1)
        row = (bos + i_t * C) * HV + i_h
        b_v = load_columns(u + row * V, o_v[:, None] + o_r[None, :] * (HV * V), (o_v < V)[:, None], V % BV == 0)
        b_x = b_v.to(tl.float32)
        b_o = tl.zeros([BV, C], dtype=tl.float32)
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            o_kc = o_k[:, None] + o_r[None, :] * (HV * K)
            b_q = load_columns(qg + row * K, o_kc, (o_k < K)[:, None], WHOLE)
            b_h = b_s[j].to(b_q.dtype)
            b_o = tl.dot(b_h, b_q, b_o, input_precision=PRECISION)
            if w is not None:
                b_w = load_columns(w + row * K, o_kc, (o_k < K)[:, None], WHOLE)
                b_x -= tl.dot(b_h, b_w, input_precision=PRECISION)
        b_u = tl.where(m_c[None, :], b_x, 0.0).to(b_v.dtype)
        b_A = tl.load(A + row * C + o_c[:, None] + o_r[None, :] * (HV * C))
        b_A = tl.where(o_c[:, None] <= o_c[None, :], b_A, 0.0).to(b_A.dtype)
        b_o = tl.dot(b_u, b_A, b_o, input_precision=PRECISION)
        o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
        tl.store(o + row * V + o_vc, b_o.to(o.dtype.element_ty), mask=(o_v < V)[:, None] & m_c[None, :])
        b_next = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_k = load_columns(kg + row * K, o_r[:, None] * (HV * K) + o_k[None, :], (o_k < K)[None, :], WHOLE)
            b_decay = channel_decay(b_end, (slot + i_t) * HV + i_h, o_k, K)[None, :]
            b_next = b_next + (tl.dot(b_u, b_k, b_s[j] * b_decay, input_precision=PRECISION),)
        b_s = b_next

    if final_state is not None:
        store_state(final_state, p_n, b_s, o_v, K, V, BK)
