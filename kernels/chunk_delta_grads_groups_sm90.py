"""Gradients of the delta rule inside each chunk for Hopper, of all value heads that share keys in one program: three
groups of four warps side by side. One makes what belongs to queries, one what belongs to keys, one brings what both
read. In Gluon, which leaves this to the kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ._chunk_values_sm90 import load_values, store_values
from .chunk_delta_grads_sm90 import (
    PAST,
    chunk_rows,
    product,
    row_pieces,
    row_product,
    store_pieces,
)
from .chunk_delta_o_groups_sm90 import barrier, barriers, publish
from .chunk_delta_o_sm90 import copy_rows, load_rates

REGISTERS = gl.constexpr((216, 80))
"""A thread's, in the groups of keys and of copies; 208 are left for that of queries."""


@gluon.jit
def anew(x):
    """x, of which the compiler does not know where it came from. Addresses that do not change from turn to turn of a
    loop are made before it, and go to local memory; those that are made of this are made where they are used."""
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def leave(emptied):
    """What all warps of the group have read may be written over, as far as they are concerned."""
    barrier()
    mbarrier.arrive(emptied, count=1)


@gluon.jit
def copied(filled):
    """The copies under way make ``filled`` complete, each thread's one arrival."""
    async_copy.mbarrier_arrive(filled, increment_count=False)


@gluon.jit
def look(filled, phase):
    """What was copied there is for products to read."""
    mbarrier.wait(filled, phase)
    fence_async_shared()


@gluon.jit
def pair_differences(s_g, M: gl.constexpr):
    """g_i - g_j below the diagonal, above it that of j and i; never positive where g does not rise."""
    C: gl.constexpr = s_g.shape[0]
    o_i = gl.arange(0, C, gl.SliceLayout(1, M))
    o_j = gl.arange(0, C, gl.SliceLayout(0, M))
    b = s_g.load(gl.SliceLayout(1, M))[:, None] - s_g.load(gl.SliceLayout(0, M))[None, :]
    return gl.where(o_i[:, None] >= o_j[None, :], b, -b)


@gluon.jit
def bring(
    s_t, s_r, s_parts, filled, emptied, parts_filled, parts_emptied, q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_v,
    cu_seqlens, chunk_table, tasks, T, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Chunk after chunk, and of each one value head after the other, into the slots; in s_r g, 2^(g_C - g) and beta.
    Rows past a chunk's end repeat its last one; 2^(g_C - g) is 0 there. Of the head before, which the others are at,
    d_v and, for d_beta, <d_x, v>."""
    W: gl.constexpr = 4
    L: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    s_do, s_new, s_dx, s_k, s_q, s_h, s_ds = s_t
    rows_filled, keys_filled, states_filled, dx_filled = filled
    rows_emptied, keys_emptied, states_emptied, dx_emptied = emptied
    o_c = gl.arange(0, C, L)
    heads = 0
    chunks = 0
    row_before = gl.program_id(0).to(gl.int64) * 0
    n_before = 0
    for task in range(gl.program_id(0), tasks, gl.num_programs(0)):
        i_slot = task // H
        i_n, first, n = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
        if i_n >= 0:
            row_k = first * H + task % H
            for i_r in range(HV // H):
                i_h = task % H * (HV // H) + i_r
                row = first * HV + i_h
                p_s = (i_slot.to(gl.int64) * HV + i_h) * (K * V)
                slot = heads % 2
                before = (heads & 1) ^ 1
                b_g, b_gl, b_beta = load_rates(beta, g, row, n, HV, C, L)
                b_v = load_values(v + row_before * V, gl.maximum(n_before, 1), HV, V, C)
                mbarrier.wait(rows_emptied.index(slot), ((heads // 2) & 1) ^ 1)
                copy_rows(s_do.index(slot), d_o + row * V, HV * V, n, W)
                copy_rows(s_new.index(slot), v_new + row * V, HV * V, n, W)
                copied(rows_filled.index(slot))
                s_r[0].index(slot).store(gl.where(o_c < n, b_g, PAST))
                s_r[1].index(slot).store(gl.exp2(gl.where(o_c < n, b_gl - b_g, float("-inf"))))
                s_r[2].index(slot).store(b_beta.to(gl.float32))
                publish(rows_filled.index(slot))
                if i_r == 0:
                    mbarrier.wait(keys_emptied.index(chunks % 2), ((chunks // 2) & 1) ^ 1)
                    copy_rows(s_k.index(chunks % 2), k + row_k * K, H * K, n, W)
                    copy_rows(s_q.index(chunks % 2), q + row_k * K, H * K, n, W)
                    copied(keys_filled.index(chunks % 2))
                if heads > 0:
                    # of the head before this one: parts of the one before that have been read
                    mbarrier.wait(parts_emptied.index(0), heads & 1)
                    mbarrier.wait(dx_filled.index(0), before)
                    c_beta = s_r[2].index(slot ^ 1)
                    store_values(s_dx.index(0), c_beta, s_parts[0], b_v, d_v, row_before, n_before, HV, VALUES)
                    barrier()
                    mbarrier.arrive(parts_filled.index(0), count=1)
                mbarrier.wait(states_emptied.index(0), before)
                copy_rows(s_h.index(0), h + p_s, V, K, W)
                copy_rows(s_ds.index(0), d_s + p_s, V, K, W)
                copied(states_filled.index(0))
                mbarrier.wait(dx_emptied.index(0), before)
                copy_rows(s_dx.index(0), d_x + row * V, HV * V, n, W)
                copied(dx_filled.index(0))
                row_before = row
                n_before = n
                heads += 1
            chunks += 1
    if heads > 0:
        b_v = load_values(v + row_before * V, n_before, HV, V, C)
        mbarrier.wait(parts_emptied.index(0), heads & 1)
        mbarrier.wait(dx_filled.index(0), (heads & 1) ^ 1)
        c_beta = s_r[2].index((heads & 1) ^ 1)
        store_values(s_dx.index(0), c_beta, s_parts[0], b_v, d_v, row_before, n_before, HV, VALUES)
        barrier()
        mbarrier.arrive(parts_filled.index(0), count=1)


@gluon.jit
def of_queries(
    s_t, s_r, s_p, s_parts, filled, emptied, p_filled, p_emptied, parts_filled, parts_emptied, g, d_q, scale,
    cu_seqlens, chunk_table, tasks, T, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr, PAIRS: gl.constexpr,
):  # fmt: skip
    """d_q, and of each value head D^T, and what of d_g does not go through keys, for the other group."""
    M_cc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C, 16])
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, K, 16])
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    L_i: gl.constexpr = gl.SliceLayout(1, M_cc)
    L_j: gl.constexpr = gl.SliceLayout(0, M_cc)
    L_ck: gl.constexpr = row_pieces(C, K)
    PARTS: gl.constexpr = V // C
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    s_do, s_new, s_dx, s_k, s_q, s_h, s_ds = s_t
    IO: gl.constexpr = s_p.dtype
    rows_filled, keys_filled, states_filled, dx_filled = filled
    rows_emptied, keys_emptied, states_emptied, dx_emptied = emptied
    o_i = gl.arange(0, C, L_i)
    o_j = gl.arange(0, C, L_j)
    heads = 0
    chunks = 0
    for task in range(gl.program_id(0), tasks, gl.num_programs(0)):
        i_n, first, n = chunk_rows(task // H, cu_seqlens, chunk_table, T, NT, C)
        if i_n >= 0:
            c_k = s_k.index(chunks % 2)
            c_q = s_q.index(chunks % 2)
            b_dq = gl.zeros([C, K], gl.float32, M_ck)
            for i_r in range(HV // H):
                row = first * HV + task % H * (HV // H) + i_r
                slot = heads % 2
                phase = heads & 1
                zero = anew(heads) - heads
                c_h = s_h.index(zero)
                c_p = s_p.index(zero)
                c_ds = s_ds.index(zero)
                c_do = s_do.index(slot)
                c_new = s_new.index(slot)
                c_g = s_r[0].index(slot)
                b_end = 1.0
                if g is not None:
                    b_end = gl.exp2(gl.load(g + row + (n - 1) * HV))
                look(rows_filled.index(slot), (heads // 2) & 1)
                look(states_filled.index(0), phase)
                read = product(c_do, c_h, M_ck)
                b_rate = gl.exp2(c_g.load(L_i)) * scale
                look(keys_filled.index(chunks % 2), (chunks // 2) & 1)
                mbarrier.wait(parts_emptied.index(0), phase ^ 1)
                b_read = warpgroup_mma_wait(0, [read])
                if PAIRS:
                    s_parts[2].store(b_rate * row_product(c_q, b_read, M_ck, L_i))
                b_dq += b_read * gl.convert_layout(b_rate, gl.SliceLayout(1, M_ck))[:, None]
                if PAIRS:
                    # <h, d_s> is on the diagonal: both lie in the same order, whatever it is
                    carried = gl.zeros([C, C], gl.float32, M_cc)
                    for p in gl.static_range(PARTS):
                        c_x = c_h._reinterpret(IO, [PARTS, C, K], S).index(p)
                        c_y = c_ds._reinterpret(IO, [PARTS, C, K], S).index(p).permute((1, 0))
                        carried = warpgroup_mma(c_x, c_y, carried, use_acc=p > 0, is_async=True)
                    b_carried = warpgroup_mma_wait(0, [carried])
                    b_carried = gl.where(o_i[:, None] == o_j[None, :], b_carried, 0.0)
                    s_parts[1].store(b_end * gl.sum(b_carried, axis=1))
                leave(states_emptied.index(0))
                Dt = product(c_new, c_do, M_cc)
                b_E = gl.exp2(pair_differences(c_g, M_cc)) * scale
                if PAIRS:
                    kq = product(c_k, c_q, M_cc)
                    b_Dt, b_kq = warpgroup_mma_wait(0, [Dt, kq])
                else:
                    b_Dt = warpgroup_mma_wait(0, [Dt])
                b_Dt *= gl.where(o_i[:, None] <= o_j[None, :], b_E, 0.0)
                mbarrier.wait(p_emptied.index(0), phase ^ 1)
                c_p.store(b_Dt.to(IO))
                publish(p_filled.index(0))
                D = product(c_do, c_new, M_cc)
                if PAIRS:
                    b_columns = gl.sum(b_Dt * b_kq, axis=1)
                    qk = product(c_q, c_k, M_cc)
                    b_D, b_qk = warpgroup_mma_wait(0, [D, qk])
                else:
                    b_D = warpgroup_mma_wait(0, [D])
                b_D *= gl.where(o_i[:, None] >= o_j[None, :], b_E, 0.0)
                dq = warpgroup_mma(gl.convert_layout(b_D.to(IO), by_c), c_k, b_dq, is_async=True)
                if PAIRS:
                    # what both have on the diagonal is the same
                    s_parts[3].store(gl.sum(b_D * b_qk, axis=1) - b_columns)
                barrier()
                mbarrier.arrive(parts_filled.index(0), count=1)
                mbarrier.arrive(rows_emptied.index(slot), count=1)
                b_dq = warpgroup_mma_wait(0, [dq])
                heads += 1
            leave(keys_emptied.index(chunks % 2))
            if d_q is not None:
                b_tile = gl.convert_layout(b_dq.to(IO), L_ck)
                store_pieces(d_q + (first * H + task % H) * K, H * K, b_tile, n, L_ck)
            chunks += 1


@gluon.jit
def of_keys(
    s_t, s_r, s_p, s_parts, filled, emptied, p_filled, p_emptied, parts_filled, parts_emptied, d_k, d_beta, d_g,
    cu_seqlens, chunk_table, tasks, T, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """d_k, d_beta and d_g."""
    LN2: gl.constexpr = 0.6931471805599453
    M_cc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C, 16])
    M_ck: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, K, 16])
    by_c: gl.constexpr = gl.DotOperandLayout(0, M_ck, 2)
    L_i: gl.constexpr = gl.SliceLayout(1, M_cc)
    L_j: gl.constexpr = gl.SliceLayout(0, M_cc)
    L_k: gl.constexpr = gl.SliceLayout(1, M_ck)
    L_ck: gl.constexpr = row_pieces(C, K)
    s_do, s_new, s_dx, s_k, s_q, s_h, s_ds = s_t
    IO: gl.constexpr = s_p.dtype
    rows_filled, keys_filled, states_filled, dx_filled = filled
    rows_emptied, keys_emptied, states_emptied, dx_emptied = emptied
    o_i = gl.arange(0, C, L_i)
    o_j = gl.arange(0, C, L_j)
    heads = 0
    chunks = 0
    for task in range(gl.program_id(0), tasks, gl.num_programs(0)):
        i_n, first, n = chunk_rows(task // H, cu_seqlens, chunk_table, T, NT, C)
        if i_n >= 0:
            c_k = s_k.index(chunks % 2)
            c_q = s_q.index(chunks % 2)
            b_dk = gl.zeros([C, K], gl.float32, M_ck)
            for i_r in range(HV // H):
                row = first * HV + task % H * (HV // H) + i_r
                slot = heads % 2
                phase = heads & 1
                zero = anew(heads) - heads
                c_dx = s_dx.index(zero)
                c_h = s_h.index(zero)
                c_ds = s_ds.index(zero)
                c_p = s_p.index(zero)
                c_new = s_new.index(slot)
                c_g = s_r[0].index(slot)
                c_beta = s_r[2].index(slot)
                look(rows_filled.index(slot), (heads // 2) & 1)
                look(states_filled.index(0), phase)
                wrote = product(c_new, c_ds, M_ck)
                b_left = s_r[1].index(slot).load(L_i)
                b_beta = c_beta.load(L_i)
                b_gam = gl.exp2(c_g.load(L_i))
                look(keys_filled.index(chunks % 2), (chunks // 2) & 1)
                look(dx_filled.index(0), phase)
                b_wrote = warpgroup_mma_wait(0, [wrote])
                b_t = gl.where(o_i < n - 1, b_left * row_product(c_k, b_wrote, M_ck, L_i), 0.0)
                b_dk += b_wrote * gl.convert_layout(b_left, L_k)[:, None]
                held = product(c_dx, c_h, M_ck)
                b_held = warpgroup_mma_wait(0, [held])
                leave(states_emptied.index(0))
                low = product(c_dx, c_new, M_cc)
                b_rows = b_gam * row_product(c_k, b_held, M_ck, L_i)
                b_dk -= b_held * gl.convert_layout(b_beta * b_gam, L_k)[:, None]
                high = product(c_new, c_dx, M_cc)
                m = o_i[:, None] >= o_j[None, :]
                b_E = gl.exp2(pair_differences(c_g, M_cc))
                b_E = gl.where(o_i[:, None] == o_j[None, :], 0.0, -b_E)
                b_low, b_high = warpgroup_mma_wait(0, [low, high])
                kk = product(c_k, c_k, M_cc)
                leave(dx_emptied.index(0))
                b_N = gl.where(m, b_low, b_high) * b_E
                b_rate = gl.where(m, b_beta[:, None], c_beta.load(L_j)[None, :])
                b_kk = warpgroup_mma_wait(0, [kk]) * b_N
                b_N *= b_rate
                dk = warpgroup_mma(gl.convert_layout(b_N.to(IO), by_c), c_k, b_dk, is_async=True)
                b_rows = gl.sum(gl.where(m, b_kk, 0.0), axis=1) - b_rows
                b_columns = gl.sum(gl.where(m, 0.0, b_kk * b_rate), axis=1)
                look(p_filled.index(0), phase)
                dk = warpgroup_mma(c_p, c_q, dk, is_async=True)
                mbarrier.wait(parts_filled.index(0), phase)
                if d_beta is not None:
                    gl.store(d_beta + row + o_i * HV, b_rows + s_parts[0].load(L_i), mask=o_i < n)
                if d_g is not None:
                    b_end = gl.sum(b_t + s_parts[1].load(L_i), axis=0)
                    b_dg = s_parts[2].load(L_i) + s_parts[3].load(L_i) + b_rows * b_beta - b_columns
                    b_dg += gl.where(o_i == n - 1, b_end, -b_t)
                    gl.store(d_g + row + o_i * HV, LN2 * b_dg, mask=o_i < n)
                b_dk = warpgroup_mma_wait(0, [dk])
                barrier()
                mbarrier.arrive(rows_emptied.index(slot), count=1)
                mbarrier.arrive(p_emptied.index(0), count=1)
                mbarrier.arrive(parts_emptied.index(0), count=1)
                heads += 1
            leave(keys_emptied.index(chunks % 2))
            if d_k is not None:
                b_tile = gl.convert_layout(b_dk.to(IO), L_ck)
                store_pieces(d_k + (first * H + task % H) * K, H * K, b_tile, n, L_ck)
            chunks += 1


@gluon.jit(do_not_specialize=["scale", "tasks", "T", "NT", "H", "HV"])
def chunk_delta_grads_groups_sm90_kernel(
    q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_q, d_k, d_v, d_beta, d_g, scale, cu_seqlens, chunk_table,
    tasks, T, NT, H, HV,
    K: gl.constexpr, V: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """As chunk_delta_grads_kernel has it, but for d_q and d_k [rows, H, K], which are sums over each group of value
    heads. A task is a chunk and key head; programs go from task to task."""
    S: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    IO: gl.constexpr = k.dtype.element_ty
    s_do = gl.allocate_shared_memory(IO, [2, C, V], S)
    s_new = gl.allocate_shared_memory(IO, [2, C, V], S)
    s_k = gl.allocate_shared_memory(IO, [2, C, K], S)
    s_q = gl.allocate_shared_memory(IO, [2, C, K], S)
    s_dx = gl.allocate_shared_memory(IO, [1, C, V], S)
    s_h = gl.allocate_shared_memory(IO, [1, K, V], S)
    s_ds = gl.allocate_shared_memory(IO, [1, K, V], S)
    s_p = gl.allocate_shared_memory(IO, [1, C, C], S)
    s_g = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_left = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_beta = gl.allocate_shared_memory(gl.float32, [2, C], R)
    s_rows = gl.allocate_shared_memory(gl.float32, [C], R)
    s_carried = gl.allocate_shared_memory(gl.float32, [C], R)
    s_read = gl.allocate_shared_memory(gl.float32, [C], R)
    s_pairs = gl.allocate_shared_memory(gl.float32, [C], R)
    s_t = (s_do, s_new, s_dx, s_k, s_q, s_h, s_ds)
    s_r = (s_g, s_left, s_beta)
    s_parts = (s_rows, s_carried, s_read, s_pairs)
    # each thread that brings arrives when its copies have, and one for what was stored
    filled = (barriers(2, 128 + 1), barriers(2, 128), barriers(1, 128), barriers(1, 128))
    emptied = (barriers(2, 2), barriers(2, 2), barriers(1, 2), barriers(1, 1))
    p_filled = barriers(1, 1)
    p_emptied = barriers(1, 1)
    parts_filled = barriers(1, 2)
    parts_emptied = barriers(1, 1)
    PAIRS: gl.constexpr = d_g is not None
    VALUES: gl.constexpr = d_beta is not None

    gl.warp_specialize(
        [
            (of_queries, (s_t, s_r, s_p, s_parts, filled, emptied, p_filled, p_emptied, parts_filled, parts_emptied, g,
                          d_q, scale, cu_seqlens, chunk_table, tasks, T, NT, H, HV, K, V, C, PAIRS)),
            (of_keys, (s_t, s_r, s_p, s_parts, filled, emptied, p_filled, p_emptied, parts_filled, parts_emptied, d_k,
                       d_beta, d_g, cu_seqlens, chunk_table, tasks, T, NT, H, HV, K, V, C)),
            (bring, (s_t, s_r, s_parts, filled, emptied, parts_filled, parts_emptied, q, k, v, beta, g, d_o, h, v_new,
                     d_s, d_x, d_v, cu_seqlens, chunk_table, tasks, T, NT, H, HV, K, V, C, VALUES)),
        ],
        [4, 4],
        REGISTERS,
    )  # fmt: skip
