"""Inverse of the unit lower triangular matrix of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows

HALVES = tl.constexpr("""{
    .reg .b32 i0, i1;
    .reg .f32 x0, x1;
    cvt.rn.bf16x2.f32 $0, $3, $2;
    shl.b32 i0, $0, 16;
    and.b32 i1, $0, 0xffff0000;
    mov.b32 x0, i0;
    mov.b32 x1, i1;
    sub.f32 x0, $2, x0;
    sub.f32 x1, $3, x1;
    cvt.rn.bf16x2.f32 $1, x1, x0;
}""")

@triton.jit
def four_of_row(p_r, k, m):
    """Numbers k to k + 3 of the rows at p_r [P, 16], for each of 16 columns the same."""
    p = p_r[:, :, None] + (k + tl.arange(0, 4))[None, None, :]
    b_a = tl.reshape(tl.load(p, mask=m[:, :, None], other=0.0), (p_r.shape[0], 16, 2, 2))
    b_even, b_odd = tl.split(b_a)
    b_0, b_2 = tl.split(b_even)
    b_1, b_3 = tl.split(b_odd)
    return b_0, b_1, b_2, b_3


@triton.jit
def diagonal_inverses(A, stride, n, C: tl.constexpr):
    """Inverses of the 16 x 16 diagonal blocks of I + A, [C / 16, 16, 16], by substitution in float32.

    X = I - A X, so that its rows follow one by one: X[i, :] = I[i, :] - sum over k < i of A[i, k] X[k, :]. A thread has
    columns of its own, with all their rows, and asks no other thread.
    """
    o_c = tl.arange(0, C // 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    o_b = o_c // 16 * 16
    rows = (tl.where(o_c == o_b, 1.0, 0.0),)
    for i in tl.static_range(1, 16):
        p_r = A + (o_b + i) * stride + o_b
        b_x = tl.where(o_c == o_b + i, 1.0, 0.0)
        for k in tl.static_range(0, i, 4):
            b_a = four_of_row(p_r, k, o_b + i < n)
            for j in tl.static_range(4):
                if k + j < i:
                    b_x -= b_a[j] * rows[k + j]
        rows = rows + (b_x,)
    for i_l in tl.static_range(4):
        # rows that lie 8 apart first: the bits of a row's number then stand in their order
        joins = ()
        for j in tl.static_range(8 >> i_l):
            joins = joins + (tl.join(rows[j], rows[j + (8 >> i_l)]),)
        rows = joins
    return tl.permute(tl.reshape(rows[0], (C // 16, 16, 16)), (0, 2, 1))


@triton.jit
def load_below(A, stride, n, P: tl.constexpr, S: tl.constexpr):
    """Of each diagonal block of 2 S rows, the lower left quarter: [P, S, S]."""
    o_c = tl.arange(0, P)[:, None] * (2 * S) + tl.arange(0, S)[None, :]
    o_r = o_c + S
    return tl.load(A + (o_r * stride)[:, :, None] + o_c[:, None, :], mask=(o_r < n)[:, :, None], other=0.0)


@triton.jit
def store_block(Ai, b, stride, n, o_r, o_c):
    """Ai at rows o_r [P, S] and columns o_c [P, S] of the chunk: b [P, S, S]."""
    p = Ai + (o_r * stride)[:, :, None] + o_c[:, None, :]
    tl.store(p, b.to(Ai.dtype.element_ty), mask=(o_r < n)[:, :, None])


@triton.jit
def halves(b_x):
    """b_x rounded to bf16, and what that leaves, rounded too. Two numbers at a time, which the compiler does only for
    what is stored."""
    return tl.inline_asm_elementwise(
        HALVES, "=r,=r,f,f", [b_x], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=2
    )


@triton.jit
def close_dot(b_x, b_y, PRECISION: tl.constexpr):
    """A product of float32 that is near theirs: by three of their bf16 halves, or as PRECISION has it."""
    if PRECISION == "bf16x3":
        b_x1, b_x0 = halves(b_x)
        b_y1, b_y0 = halves(b_y)
        b_z = tl.dot(b_x1, b_y1, tl.dot(b_x1, b_y0, tl.dot(b_x0, b_y1)))
    else:
        b_z = tl.dot(b_x, b_y, input_precision=PRECISION)
    return b_z


@triton.jit
def pairs(b_X, b_L, P: tl.constexpr, S: tl.constexpr, PRECISION: tl.constexpr):
    """From the inverses b_X [2 P, S, S] of diagonal blocks, for each pair of neighbours (X0, -X1 L X0, X1)."""
    b_X0, b_X1 = tl.split(tl.permute(tl.reshape(b_X, (P, 2, S, S)), (0, 2, 3, 1)))
    if P == 1:
        b_X10 = close_dot(tl.reshape(b_X1, (S, S)), tl.reshape(b_L, (S, S)), PRECISION)
        b_X10 = tl.reshape(close_dot(b_X10, tl.reshape(b_X0, (S, S)), PRECISION), (P, S, S))
    else:
        b_X10 = close_dot(close_dot(b_X1, b_L, PRECISION), b_X0, PRECISION)
    return b_X0, -b_X10, b_X1


@triton.jit
def store_pairs(Ai, b_X10, stride, n, P: tl.constexpr, S: tl.constexpr):
    """What lies between the diagonal blocks of S of each pair: b_X10 [P, S, S] below, zeros above."""
    o_s = tl.arange(0, P)[:, None] * (2 * S) + tl.arange(0, S)[None, :]
    store_block(Ai, tl.zeros_like(b_X10), stride, n, o_s, o_s + S)
    store_block(Ai, b_X10, stride, n, o_s + S, o_s)


@triton.jit
def joined(b_X0, b_X10, b_X1, P: tl.constexpr, S: tl.constexpr):
    """The pairs' inverses [P, 2 S, 2 S]."""
    b_top = tl.reshape(tl.permute(tl.join(b_X0, tl.zeros_like(b_X0)), (0, 1, 3, 2)), (P, S, 2 * S))
    b_bottom = tl.reshape(tl.permute(tl.join(b_X10, b_X1), (0, 1, 3, 2)), (P, S, 2 * S))
    return tl.reshape(tl.permute(tl.join(b_top, b_bottom), (0, 3, 1, 2)), (P, 2 * S, 2 * S))


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def solve_tril_kernel(
    A, Ai, cu_seqlens, chunk_table, T, NT, HV, C: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Ai = (I + A)^-1 for one chunk and head: 16-wide diagonal blocks by substitution, then merges 16 -> C."""
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = length - o_t
    stride = HV * C
    o_chunk = ((bos + o_t) * HV + pid % HV) * C
    A += o_chunk
    Ai += o_chunk
    b_X = diagonal_inverses(A, stride, n, C)
    # what the merges read, on its way before anything is stored
    if C >= 64:
        b_16 = load_below(A, stride, n, C // 32, 16)
    if C > 16:
        b_half = load_below(A, stride, n, 1, C // 2)
    o_d = tl.arange(0, C // 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    store_block(Ai, b_X, stride, n, o_d, o_d)
    if C >= 64:
        b_X0, b_X10, b_X1 = pairs(b_X, b_16, C // 32, 16, PRECISION)
        store_pairs(Ai, b_X10, stride, n, C // 32, 16)
        b_X = joined(b_X0, b_X10, b_X1, C // 32, 16)
    if C == 128:
        b_X0, b_X10, b_X1 = pairs(b_X, load_below(A, stride, n, C // 64, 32), C // 64, 32, PRECISION)
        store_pairs(Ai, b_X10, stride, n, C // 64, 32)
        b_X = joined(b_X0, b_X10, b_X1, C // 64, 32)
    if C > 16:
        _, b_X10, _ = pairs(b_X, b_half, 1, C // 2, PRECISION)
        store_pairs(Ai, b_X10, stride, n, 1, C // 2)
