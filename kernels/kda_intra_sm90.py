"""Scores and Gram matrix between the rows of a chunk under a decay per channel, on tensor cores, for Hopper in 16 bits.

A warp holds a block of 8 rows, a lane of it one row's channels 16 s + 4 (lane % 4) + 0..3 for s = 0, 1, ... Over any 16
channels that is at once the left operand of mma.m16n8k16, rows of queries above those of keys, and the right one: the
pairs inside a block take what is in the registers. In Gluon, where a lane keeps what it was given.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# which of the lane's channels are the first 8 of 16 is the same on both sides, so no matter
REGISTERS = "{$0,$1,$2,$3}, {$4,$6,$5,$7}, {$8,$9}, {$10,$11,$12,$13};"
OF_BF16 = gl.constexpr(f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {REGISTERS}")
OF_FP16 = gl.constexpr(f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {REGISTERS}")
CONSTRAINTS = gl.constexpr("=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f")


@gluon.jit
def load_steps(x, o_r, o_k, stride, n, STEPS: gl.constexpr):
    """STEPS tensors [C, 16] of rows o_r of a chunk's x; past its n rows the last of them."""
    p = x + (gl.minimum(o_r, n - 1)[:, None] * stride + o_k[None, :])
    found = ()
    for s in gl.static_range(STEPS):
        found = found + (gl.load(p + 16 * s),)
    return found


@gluon.jit
def store_steps(x, rows, o_r, o_k, stride, n, STEPS: gl.constexpr):
    p = x + (o_r[:, None] * stride + o_k[None, :])
    for s in gl.static_range(STEPS):
        gl.store(p + 16 * s, rows[s], mask=(o_r < n)[:, None])


@gluon.jit
def between(b_x, b_y, STEPS: gl.constexpr):
    """2^-|b_x - b_y|: of two rows the later one's sum is the lower, so it is no matter which comes first."""
    found = ()
    for s in gl.static_range(STEPS):
        found = found + (gl.exp2(-gl.abs(b_x[s] - b_y[s])),)
    return found


@gluon.jit
def powers(b_x, scale, STEPS: gl.constexpr):
    """scale 2^b_x."""
    found = ()
    for s in gl.static_range(STEPS):
        found = found + (scale * gl.exp2(b_x[s]),)
    return found


@gluon.jit
def scaled(b_x, b_f, STEPS: gl.constexpr):
    """b_x b_f in the dtype of b_x."""
    found = ()
    for s in gl.static_range(STEPS):
        found = found + ((b_x[s].to(gl.float32) * b_f[s]).to(b_x[s].dtype),)
    return found


@gluon.jit
def halves(b_A):
    """[C, 16], in a lane two numbers of a row of queries and two of a row of keys -> two of [C, 4, 2]."""
    return gl.split(gl.permute(gl.reshape(b_A, [b_A.shape[0], 4, 2, 2]), (0, 1, 3, 2)))


@gluon.jit
def product(b_q, b_k, b_y, STEPS: gl.constexpr):
    """(b_q b_y^T, b_k b_y^T) [C, 4, 2] of each block of 8 rows: two columns a lane."""
    asm: gl.constexpr = OF_BF16 if b_y[0].dtype == gl.bfloat16 else OF_FP16
    b_A = gl.zeros_like(b_q[0], dtype=gl.float32)
    for s in gl.static_range(STEPS):
        b_A = gl.inline_asm_elementwise(
            asm, CONSTRAINTS, [b_q[s], b_k[s], b_y[s], b_A], gl.float32, is_pure=True, pack=4
        )
    return halves(b_A)


@gluon.jit
def shared(rows, S: gl.constexpr, STEPS: gl.constexpr):
    """Shared copies of rows: [pairs of halves, 2 S blocks, 8, 16]."""
    C: gl.constexpr = rows[0].shape[0]
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [3, 2, 1, 0])
    found = ()
    for s in gl.static_range(STEPS):
        b_x = gl.reshape(rows[s], [C // (16 * S), 2 * S, 8, 16])
        found = found + (gl.allocate_shared_memory(b_x.dtype, [C // (16 * S), 2 * S, 8, 16], R, b_x),)
    return found


@gluon.jit
def block(s_x, j, L: gl.constexpr, STEPS: gl.constexpr):
    """Block j of its pair of halves, in the place of each block there."""
    PAIRS: gl.constexpr = s_x[0].shape[0]
    BLOCKS: gl.constexpr = s_x[0].shape[1]
    P: gl.constexpr = gl.BlockedLayout([1, 1, 1, 4], [1, 1, 8, 4], [PAIRS, BLOCKS, 1, 1], [3, 2, 1, 0])
    found = ()
    for s in gl.static_range(STEPS):
        b_x = s_x[s].slice(j, 1, dim=1).load(P).broadcast_to(PAIRS, BLOCKS, 8, 16)
        found = found + (gl.convert_layout(gl.reshape(b_x, [PAIRS * BLOCKS * 8, 16]), L, assert_trivial=True),)
    return found


@gluon.jit
def store_block(A, b_A, m_A, b_f, o_8, o_r, HV, n, C: gl.constexpr):
    """The columns from o_8 on of rows o_r of A: b_A [C, 4, 2] times b_f of the row where m_A, else 0."""
    P: gl.constexpr = b_A.type.layout
    rows: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, P))
    o_r = gl.convert_layout(o_r, rows)
    o_8 = gl.convert_layout(o_8, rows)
    o_t = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(2, P)))
    o_e = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, P)))
    p = (o_r * (HV * C) + o_8)[:, None, None] + (2 * o_t)[None, :, None] + o_e[None, None, :]
    b_A = gl.where(m_A, gl.convert_layout(b_f, rows)[:, None, None] * b_A, 0.0)
    gl.store(A + p, b_A.to(A.dtype.element_ty), mask=(o_r < n)[:, None, None])


@gluon.jit
def store_blocks(A, blocks, m_A, b_f, o_r, HV, n, C: gl.constexpr):
    """All columns of A: blocks those of the pairs of halves, small ones first, then the block with itself, where m_A.

    A block of a first half has zeros to store, in the columns of the second half.
    """
    LEVELS: gl.constexpr = (C // 8).bit_length() - 1
    rows: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, blocks[0].type.layout))
    store_block(A, blocks[C // 8 - 1], m_A, b_f, o_r & -8, o_r, HV, n, C)
    for i_l in gl.static_range(LEVELS):
        m_r = (o_r & (8 << i_l)) > 0
        o_8 = (o_r & -(16 << i_l)) + gl.where(m_r, 0, 8 << i_l)
        m_A = gl.convert_layout(m_r, rows)[:, None, None]
        for j in gl.static_range(1 << i_l):
            store_block(A, blocks[(1 << i_l) - 1 + j], m_A, b_f, o_8 + 8 * j, o_r, HV, n, C)


@gluon.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def kda_intra_sm90_kernel(
    q, k, beta, b, A_qk, A_kk, qg, kb, kg, b_end, scale, cu_seqlens, chunk_table, T, NT, H, HV,
    K: gl.constexpr, C: gl.constexpr, BK: gl.constexpr,
):  # fmt: skip
    """A_qk[i, j] = scale sum over K of q_i k_j 2^(b_i - b_j) for j <= i, A_kk[i, j] = beta_i sum of k_i k_j
    2^(b_i - b_j) for j < i, else 0, of one chunk and value head, BK channels at a time.

    A size of blocks after the other, their rows are decayed to or from the first row of the second half. Inside blocks
    of 8 the product of a block with itself stands where rows are further apart than the sizes before it reach. Larger
    ones: every block of the second half takes those of the first from shared memory. All warps do so alike, and what
    they find for blocks of a first half is not kept: it stands above the diagonal, and is 0.
    """
    W: gl.constexpr = C // 8
    L: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [W, 1], [1, 0])
    STEPS: gl.constexpr = BK // 16
    LEVELS: gl.constexpr = W.bit_length() - 1
    pid = gl.program_id(0).to(gl.int64)
    i_hv = pid % HV
    i_slot = pid // HV
    if cu_seqlens is None:
        i_n = (i_slot // NT).to(gl.int32)
        o_t = (i_slot % NT).to(gl.int32) * C
        bos = i_n.to(gl.int64) * T
        length = T
    else:
        i_n = gl.load(chunk_table + i_slot * 2)
        if i_n < 0:
            return
        o_t = gl.load(chunk_table + i_slot * 2 + 1) * C
        bos = gl.load(cu_seqlens + i_n).to(gl.int64)
        length = (gl.load(cu_seqlens + i_n + 1).to(gl.int64) - bos).to(gl.int32)
    n = gl.minimum(length - o_t, C)
    row = (bos + o_t) * HV + i_hv
    row_h = (bos + o_t) * H + i_hv // (HV // H)
    p_end = (i_slot * HV + i_hv) * K

    o_r = gl.arange(0, C, gl.SliceLayout(1, L))
    o_k = gl.arange(0, 16, gl.SliceLayout(0, L))
    zero, _ = halves(gl.zeros([C, 16], gl.float32, L))
    P: gl.constexpr = zero.type.layout
    o_i = gl.convert_layout(o_r, gl.SliceLayout(1, gl.SliceLayout(2, P)))[:, None, None] % 8
    o_j = 2 * gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(2, P)))[None, :, None]
    o_j += gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, P)))[None, None, :]
    o_x = o_i ^ o_j
    b_qk, b_kk = (), ()
    for _ in gl.static_range(W):
        b_qk = b_qk + (zero,)
        b_kk = b_kk + (zero,)
    for i_k in range(0, K, BK):
        b_q = load_steps(q + row_h * K + i_k, o_r, o_k, H * K, n, STEPS)
        b_k = load_steps(k + row_h * K + i_k, o_r, o_k, H * K, n, STEPS)
        p_b = b + row * K + i_k
        b_b = load_steps(p_b, o_r, o_k, HV * K, n, STEPS)
        c_qk, c_kk = product(b_q, b_k, b_k, STEPS)
        more_qk, more_kk = (), ()
        for i_l in gl.static_range(3 + LEVELS):
            b_m = load_steps(p_b, (o_r & -(2 << i_l)) + (1 << i_l), o_k, HV * K, n, STEPS)
            b_f = between(b_b, b_m, STEPS)
            x_k = scaled(b_k, b_f, STEPS)
            x_q = scaled(b_q, b_f, STEPS)
            if i_l < 3:
                d_qk, d_kk = product(x_q, x_k, x_k, STEPS)
                c_qk = gl.where(o_x < (1 << i_l), c_qk, d_qk)
                c_kk = gl.where(o_x < (1 << i_l), c_kk, d_kk)
            else:
                s_x = shared(x_k, 1 << (i_l - 3), STEPS)
                for j in gl.static_range(1 << (i_l - 3)):
                    d_qk, d_kk = product(x_q, x_k, block(s_x, j, L, STEPS), STEPS)
                    more_qk = more_qk + (b_qk[(1 << (i_l - 3)) - 1 + j] + d_qk,)
                    more_kk = more_kk + (b_kk[(1 << (i_l - 3)) - 1 + j] + d_kk,)
        b_qk = more_qk + (b_qk[W - 1] + c_qk,)
        b_kk = more_kk + (b_kk[W - 1] + c_kk,)
        if qg is not None:
            p = qg + row * K + i_k
            store_steps(p, scaled(b_q, powers(b_b, scale, STEPS), STEPS), o_r, o_k, HV * K, n, STEPS)
        if kb is not None:
            store_steps(kb + row * K + i_k, scaled(b_k, powers(b_b, 1.0, STEPS), STEPS), o_r, o_k, HV * K, n, STEPS)
        b_last = load_steps(p_b, o_r * 0 + C, o_k, HV * K, n, STEPS)
        if kg is not None:
            store_steps(kg + row * K + i_k, scaled(b_k, between(b_b, b_last, STEPS), STEPS), o_r, o_k, HV * K, n, STEPS)
        if b_end is not None:
            store_steps(b_end + p_end + i_k, b_last, o_r, o_k, 0, 1, STEPS)

    if A_qk is not None:
        store_blocks(A_qk + row * C, b_qk, o_i >= o_j, o_r * 0.0 + scale, o_r, HV, n, C)
    if A_kk is not None:
        b_beta = gl.load(beta + row + gl.minimum(o_r, n - 1) * HV).to(gl.float32)
        store_blocks(A_kk + row * C, b_kk, o_i > o_j, b_beta, o_r, HV, n, C)
