"""What delta_prescan makes, for Hopper in bf16: each warp goes from chunk to chunk by itself.

A chunk's Gram matrix, decayed, and its inverse are blocks of 16 rows and columns in one warp's registers, so that no
warp waits for another one; the next chunk's keys come while the inverse is made.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from ._prescan_sm90 import LOG2_E, copy_rows, place
from .solve_tril import HALVES

S = gl.constexpr(16)
"""Rows and columns of a block."""
M = gl.constexpr(gl.NVMMADistributedLayout([2, 0], [1, 1], [16, 8]))
LEFT = gl.constexpr(gl.DotOperandLayout(0, M, 2))
RIGHT = gl.constexpr(gl.DotOperandLayout(1, M, 2))


@gluon.jit
def halves(b_x):
    """b_x rounded to bf16, and what that leaves, rounded too."""
    return gl.inline_asm_elementwise(
        HALVES, "=r,=r,f,f", [b_x], dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=2
    )


@gluon.jit
def left(b_x):
    """Halves as the left operand of a product."""
    return gl.convert_layout(b_x[0], LEFT, assert_trivial=True), gl.convert_layout(b_x[1], LEFT, assert_trivial=True)


@gluon.jit
def transposed_tiles(b_x):
    """As the right operand, whose tiles of 8 rows and columns lie in a warp as those of b_x do that are transposed."""
    asm: gl.constexpr = "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;"
    b_x = gl.inline_asm_elementwise(asm, "=r,r", [b_x], b_x.dtype, is_pure=True, pack=2)
    b_x = gl.permute(gl.reshape(b_x, [S // 8, 8, S // 8, 8]), (0, 3, 2, 1))
    return gl.convert_layout(gl.reshape(b_x, [S, S]), RIGHT, assert_trivial=True)


@gluon.jit
def right(b_x):
    return transposed_tiles(b_x[0]), transposed_tiles(b_x[1])


@gluon.jit
def rows_of(L: gl.constexpr):
    return gl.arange(0, S, gl.SliceLayout(1, L))[:, None]


@gluon.jit
def columns_of(L: gl.constexpr):
    return gl.arange(0, S, gl.SliceLayout(0, L))[None, :]


@gluon.jit
def between(N: gl.constexpr, L: gl.constexpr):
    """Where a block has what lies between its own diagonal blocks of N."""
    o_i, o_j = rows_of(L), columns_of(L)
    return (o_i // (2 * N) == o_j // (2 * N)) & (o_i // N > o_j // N)


@gluon.jit
def each_halves(b_x):
    found = ()
    for i in gl.static_range(len(b_x)):
        found = found + (halves(b_x[i]),)
    return found


@gluon.jit
def each_left(b_x):
    found = ()
    for i in gl.static_range(len(b_x)):
        found = found + (left(b_x[i]),)
    return found


@gluon.jit
def each_right(b_x):
    found = ()
    for i in gl.static_range(len(b_x)):
        found = found + (right(b_x[i]),)
    return found


@gluon.jit
def each_product(b_x, b_y, b_z):
    """b_z + x y of each: product by product, as each waits for the one before."""
    for p in gl.static_range(3):
        found = ()
        for i in gl.static_range(len(b_x)):
            found = found + (mma_v2(b_x[i][1 if p == 0 else 0], b_y[i][1 if p == 1 else 0], b_z[i]),)
        b_z = found
    return b_z


@gluon.jit
def each_negative(b_x):
    found = ()
    for i in gl.static_range(len(b_x)):
        found = found + (-b_x[i],)
    return found


@gluon.jit
def inverses_of_blocks(b_A):
    """(I + A)^-1 of strictly lower triangular blocks, from diagonal blocks of two on: X - X L X, L what lies between
    those that are there. Step by step for all of them: what a product waits for is another one's."""
    N: gl.constexpr = len(b_A)
    zeros, b_X = (), ()
    for i in gl.static_range(N):
        zeros = zeros + (gl.zeros([S, S], gl.float32, M),)
        b_i = gl.where(rows_of(M) == columns_of(M), 1.0, gl.where(between(1, M), -b_A[i], 0.0))
        b_X = b_X + (b_i,)
    b_R = each_right(each_halves(b_A))
    for i_s in gl.static_range(3):
        m = between(2 << i_s, RIGHT)
        b_L = ()
        for i in gl.static_range(N):
            b_L = b_L + ((gl.where(m, b_R[i][0], 0.0), gl.where(m, b_R[i][1], 0.0)),)
        b_H = each_halves(b_X)
        b_XL = each_product(each_left(b_H), b_L, zeros)
        b_XLX = each_product(each_left(each_halves(b_XL)), each_right(b_H), zeros)
        b_next = ()
        for i in gl.static_range(N):
            b_next = b_next + (b_X[i] - b_XLX[i],)
        b_X = b_next
    return b_X


@gluon.jit
def decayed(b_A, s_g, s_beta, i: gl.constexpr, j: gl.constexpr):
    """Block (i, j) of the Gram matrix, its rows times beta, decayed from column to row; below the diagonal."""
    b_d = s_g.slice(i * S, S).load(gl.SliceLayout(1, M))[:, None]
    b_d = b_d - s_g.slice(j * S, S).load(gl.SliceLayout(0, M))[None, :]
    if i == j:
        b_d = gl.where(rows_of(M) > columns_of(M), b_d, float("-inf"))
    return b_A * gl.exp2(b_d) * s_beta.slice(i * S, S).load(gl.SliceLayout(1, M))[:, None]


@gluon.jit
def put_block(s_x, b_x, i: gl.constexpr, j: gl.constexpr):
    s_x.slice(i * S, S).slice(j * S, S, dim=1).store(b_x.to(s_x.dtype))


@gluon.jit
def store_rows(x, s_x, stride, n):
    """The n rows of a shared tile, 16 bytes at a time."""
    C: gl.constexpr = s_x.shape[0]
    L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // C, C // 8], [1, 1], [1, 0])
    o_i = gl.arange(0, C, gl.SliceLayout(1, L))[:, None]
    gl.store(x + (o_i * stride + gl.arange(0, C, gl.SliceLayout(0, L))[None, :]), s_x.load(L), mask=o_i < n)


@gluon.jit
def load_rates(beta, x, row, n, HV, L: gl.constexpr, C: gl.constexpr):
    """beta and x of a chunk's rows; 0 past them."""
    o_c = gl.arange(0, C, L)
    b_beta = gl.load(beta + (row + o_c * HV), mask=o_c < n, other=0.0).to(gl.float32)
    b_x = gl.load(x + (row + o_c * HV), mask=o_c < n, other=0.0).to(gl.float32)
    return b_beta, b_x


@gluon.jit
def added(b_x, b_y):
    return b_x + b_y


@gluon.jit(do_not_specialize=["T", "NT", "H", "HV", "COUNT"])
def delta_prescan_sm90_kernel(
    k, beta, x, y, Ai, cu_seqlens, chunk_table, T, NT, H, HV, COUNT, K: gl.constexpr, C: gl.constexpr
):
    """y = the chunk's sums of max(x log2 e, -126); Ai = (I + A)^-1, A[i, j] = beta_i <k_i, k_j> 2^(y_i - y_j), j < i,
    of every chunk and value head, COUNT of them. C is 64; one warp."""
    IO: gl.constexpr = k.dtype.element_ty
    L: gl.constexpr = gl.BlockedLayout([C // 32], [32], [1], [0])
    R: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    s_k = gl.allocate_shared_memory(IO, [C, K], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    s_Ai = gl.allocate_shared_memory(Ai.dtype.element_ty, [C, C], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    s_beta = gl.allocate_shared_memory(gl.float32, [C], R)
    s_g = gl.allocate_shared_memory(gl.float32, [C], R)
    o_c = gl.arange(0, C, L)
    zeros = gl.zeros([S, S], gl.float32, M)

    for i_b in gl.static_range(3):
        for j_b in gl.static_range(i_b + 1, 4):
            put_block(s_Ai, zeros, i_b, j_b)

    first = gl.program_id(0)
    step = gl.num_programs(0)
    i_hv, i_slot, t, n = place(first, cu_seqlens, chunk_table, T, NT, HV, C)
    copy_rows(s_k, k + (t * H + i_hv // (HV // H)) * K, H * K, gl.maximum(n, 1), False)
    async_copy.commit_group()
    b_beta, b_x = load_rates(beta, x, t * HV + i_hv, n, HV, L, C)
    for i in range(first, COUNT, step):
        row = t * HV + i_hv
        out = Ai + row * C
        # after the last one that one again, for nobody
        i_next = gl.minimum(i + step, COUNT - 1)
        next_hv, i_slot, next_t, next_n = place(i_next, cu_seqlens, chunk_table, T, NT, HV, C)
        s_beta.store(b_beta)
        b_d = b_x * LOG2_E
        # not a maximum, which would make -126 of a nan
        b_g = gl.associative_scan(gl.where(b_d < -126.0, -126.0, b_d), 0, added)
        s_g.store(b_g)
        if y is not None:
            gl.store(y + (row + o_c * HV), b_g, mask=o_c < n)
        async_copy.wait_group(0)
        b_A = ()
        for i_b in gl.static_range(4):
            for j_b in gl.static_range(i_b + 1):
                b_i = s_k.slice(i_b * S, S).load(LEFT)
                b_j = s_k.slice(j_b * S, S).permute((1, 0)).load(RIGHT)
                b_A = b_A + (mma_v2(b_i, b_j, zeros),)
        copy_rows(s_k, k + (next_t * H + next_hv // (HV // H)) * K, H * K, gl.maximum(next_n, 1), False)
        async_copy.commit_group()
        b_beta, b_x = load_rates(beta, x, next_t * HV + next_hv, next_n, HV, L, C)
        blocks = ()
        for i_b in gl.static_range(4):
            for j_b in gl.static_range(i_b + 1):
                blocks = blocks + (decayed(b_A[i_b * (i_b + 1) // 2 + j_b], s_g, s_beta, i_b, j_b),)

        b_X = inverses_of_blocks((blocks[0], blocks[2], blocks[5], blocks[9]))
        for i_b in gl.static_range(4):
            put_block(s_Ai, b_X[i_b], i_b, i_b)
        b_H = each_halves(b_X)
        b_l1, b_l2, b_l3 = each_left((b_H[1], b_H[2], b_H[3]))
        b_r0, b_r1, b_r2 = each_right((b_H[0], b_H[1], b_H[2]))
        b_L10, b_L20, b_L21, b_L30, b_L31, b_L32 = each_right(
            each_halves((blocks[1], blocks[3], blocks[4], blocks[6], blocks[7], blocks[8]))
        )
        zeros2 = (zeros, zeros)
        b_Y = each_product((b_l1, b_l3), (b_L10, b_L32), zeros2)
        b_10, b_32 = each_negative(each_product(each_left(each_halves(b_Y)), (b_r0, b_r2), zeros2))
        put_block(s_Ai, b_10, 1, 0)
        put_block(s_Ai, b_32, 3, 2)
        b_H10, b_H32 = each_halves((b_10, b_32))
        b_l32, b_r10 = left(b_H32), right(b_H10)
        b_Y = each_product((b_l2, b_l2, b_l3, b_l3), (b_L20, b_L21, b_L30, b_L31), (zeros, zeros, zeros, zeros))
        b_Y30, b_Y31 = each_product((b_l32, b_l32), (b_L20, b_L21), (b_Y[2], b_Y[3]))
        b_20, b_21, b_30, b_31 = each_left(each_halves((b_Y[0], b_Y[1], b_Y30, b_Y31)))
        b_Z20, b_Z30, b_Z21, b_Z31 = each_product(
            (b_21, b_31, b_21, b_31), (b_r10, b_r10, b_r1, b_r1), (zeros, zeros, zeros, zeros)
        )
        b_Z20, b_Z30 = each_product((b_20, b_30), (b_r0, b_r0), (b_Z20, b_Z30))
        put_block(s_Ai, -b_Z20, 2, 0)
        put_block(s_Ai, -b_Z21, 2, 1)
        put_block(s_Ai, -b_Z30, 3, 0)
        put_block(s_Ai, -b_Z31, 3, 1)
        store_rows(out, s_Ai, HV * C, n)
        i_hv, t, n = next_hv, next_t, next_n
    async_copy.wait_group(0)

