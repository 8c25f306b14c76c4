"""The scan under a decay per channel that emits its output, for Hopper: what a chunk reads is on its way while the one
before is at work, and products that do not need one another run side by side. In Gluon, which leaves both to it."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from .chunk_delta_o_sm90 import clear_above_diagonal, copy_rows


@gluon.jit
def load_rates(b_end, beta, slot, row, n, HV, K: gl.constexpr, C: gl.constexpr, L: gl.constexpr):
    """A chunk's sums of log decay and, under the delta rule, beta of its rows, past its n rows that of the last one."""
    b_e = gl.load(b_end + slot * K + gl.arange(0, K, L))
    b_beta = b_e
    if beta is not None:
        b_beta = gl.load(beta + row + gl.minimum(gl.arange(0, C, L), n - 1) * HV)
    return b_e, b_beta


@gluon.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_delta_o_k_sm90_kernel(
    qg, A, kg, kb, v, beta, Ai, b_end, initial_state, o, final_state, cu_seqlens, chunk_offsets, T, NT, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, BV: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """v_new = Ai beta (v - kb S), v itself without Ai; o = qg S + A v_new; S <- diag(2^b_end) S + kg^T v_new.

    One program of W warps owns BV value columns of one sequence's head. State and values are held transposed: what
    comes out of one product is in the registers, as the next one's left operand. What the first products read has one
    place in shared memory, free again half a step before it is wanted, and so has A; the rest has two. Rows past a
    sequence's end repeat its last one; what they give is never stored, and enters the state as 0.
    """
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, K, 16])
    M_vc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [W, 1], [16, C, 16])
    by_k: gl.constexpr = gl.DotOperandLayout(0, M_vc, 2)
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    columns: gl.constexpr = gl.SliceLayout(0, M_vc)
    channels: gl.constexpr = gl.SliceLayout(0, M_ck)
    L_r: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    L_o: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BV, BV // 8], [W, 1], [1, 0])
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = kg.dtype.element_ty
    NV: gl.constexpr = V // BV

    pid = gl.program_id(0)
    i_v = pid % NV * BV
    i_h = pid // NV % HV
    i_n = pid // NV // HV
    if cu_seqlens is None:
        bos = i_n.to(gl.int64) * T
        length = T
        slot = i_n.to(gl.int64) * NT
    else:
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
        slot = gl.load(chunk_offsets + i_n).to(gl.int64)
    row = bos * HV + i_h
    slot = slot * HV + i_h

    s_q = gl.allocate_shared_memory(IO, [C, K], S)
    s_k = gl.allocate_shared_memory(IO, [2, C, K], S)
    s_v = gl.allocate_shared_memory(IO, [2, C, BV], S)
    s_A = gl.allocate_shared_memory(IO, [C, C], S)
    s_decay = gl.allocate_shared_memory(gl.float32, [2, K], R)
    if Ai is not None:
        s_kb = gl.allocate_shared_memory(IO, [C, K], S)
        s_Ai = gl.allocate_shared_memory(IO, [2, C, C], S)
        s_beta = gl.allocate_shared_memory(gl.float32, [2, C], R)

    o_sv = i_v + gl.arange(0, BV, gl.SliceLayout(1, M_ck))
    o_sk = gl.arange(0, K, channels)
    p_s = (i_n.to(gl.int64) * HV + i_h) * (K * V) + o_sk[None, :] * V + o_sv[:, None]
    b_s = gl.zeros([BV, K], gl.float32, M_ck)
    if initial_state is not None:
        b_s = gl.load(initial_state + p_s)
    v += i_v
    last = (length + C - 1) // C - 1
    if last >= 0:
        n = gl.minimum(length, C)
        copy_rows(s_k.index(0), kg + row * K, HV * K, n, W)
        copy_rows(s_v.index(0), v + row * V, HV * V, n, W)
        copy_rows(s_q, qg + row * K, HV * K, n, W)
        if Ai is not None:
            copy_rows(s_Ai.index(0), Ai + row * C, HV * C, n, W)
            copy_rows(s_kb, kb + row * K, HV * K, n, W)
        async_copy.commit_group()
        copy_rows(s_A, A + row * C, HV * C, n, W)
        async_copy.commit_group()
        b_e, b_beta = load_rates(b_end, beta, slot, row, n, HV, K, C, L_r)
        s_decay.index(0).store(gl.exp2(b_e))
        if Ai is not None:
            s_beta.index(0).store(b_beta.to(gl.float32))

    for i_t in range(last + 1):
        i = i_t % 2
        n = gl.minimum(length - i_t * C, C)
        # after the last chunk that one again, for nobody
        more = gl.minimum(i_t + 1, last) - i_t
        n_next = gl.minimum(length - (i_t + more) * C, C)
        row_next = row + more * (C * HV)
        slot_next = slot + more * HV
        async_copy.wait_group(1)
        fence_async_shared()
        copy_rows(s_k.index(1 - i), kg + row_next * K, HV * K, n_next, W)
        copy_rows(s_v.index(1 - i), v + row_next * V, HV * V, n_next, W)
        if Ai is not None:
            copy_rows(s_Ai.index(1 - i), Ai + row_next * C, HV * C, n_next, W)
        async_copy.commit_group()
        b_e, b_beta = load_rates(b_end, beta, slot_next, row_next, n_next, HV, K, C, L_r)

        c_v = s_v.index(i)
        b_s16 = gl.convert_layout(b_s.to(IO), by_k)
        zeros = gl.zeros([BV, C], gl.float32, M_vc)
        if Ai is not None:
            held = warpgroup_mma(b_s16, s_kb.permute((1, 0)), zeros, use_acc=False, is_async=True)
        read = warpgroup_mma(b_s16, s_q.permute((1, 0)), zeros, use_acc=False, is_async=True)
        b_v = c_v.permute((1, 0)).load(M_vc).to(gl.float32)
        m_c = (gl.arange(0, C, columns) < n)[None, :]
        if Ai is not None:
            clear_above_diagonal(s_Ai.index(i), n, W)
            b_beta_c = s_beta.index(i).load(columns)[None, :]
            b_held = warpgroup_mma_wait(1, [held])
            b_x16 = gl.convert_layout((b_beta_c * (b_v - b_held)).to(IO), by_k)
            fence_async_shared()
            new = warpgroup_mma(b_x16, s_Ai.index(i).permute((1, 0)), zeros, use_acc=False, is_async=True)
        # of both rounds the copies of A that are still on their way
        async_copy.wait_group(1)
        b_s *= gl.expand_dims(s_decay.index(i).load(channels), 0)
        clear_above_diagonal(s_A, n, W)
        if Ai is not None:
            b_o = warpgroup_mma_wait(1, [read])
        else:
            b_o = warpgroup_mma_wait(0, [read])
        s_decay.index(1 - i).store(gl.exp2(b_e))
        if Ai is not None:
            s_beta.index(1 - i).store(b_beta.to(gl.float32))
            b_v = warpgroup_mma_wait(0, [new])
        fence_async_shared()
        b_u16 = gl.where(m_c, b_v, 0.0).to(IO)
        out = warpgroup_mma(gl.convert_layout(b_u16, by_k), s_A.permute((1, 0)), b_o, is_async=True)
        state = warpgroup_mma(gl.convert_layout(b_u16, by_c), s_k.index(i), b_s, is_async=True)
        # all warps have come here, so that nobody reads these any more
        copy_rows(s_q, qg + row_next * K, HV * K, n_next, W)
        if Ai is not None:
            copy_rows(s_kb, kb + row_next * K, HV * K, n_next, W)
        async_copy.commit_group()
        b_o = warpgroup_mma_wait(1, [out])
        # the values have been read: their place takes the output on its way to rows
        c_v.permute((1, 0)).store(b_o.to(IO))
        copy_rows(s_A, A + row_next * C, HV * C, n_next, W)
        async_copy.commit_group()
        o_r = gl.arange(0, C, gl.SliceLayout(1, L_o))
        o_v = i_v + gl.arange(0, BV, gl.SliceLayout(0, L_o))
        p_o = o + row * V + (o_r[:, None] * (HV * V) + o_v[None, :])
        gl.store(p_o, c_v.load(L_o), mask=(o_r < n)[:, None])
        b_s = warpgroup_mma_wait(0, [state])
        row, slot = row_next, slot_next

    async_copy.wait_group(0)
    if final_state is not None:
        gl.store(final_state + p_s, b_s)
