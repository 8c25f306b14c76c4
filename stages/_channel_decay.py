"""A decay per channel: sums over pairs of a chunk's rows, every exponent at most 0.

b [.., C, K] is the chunk sum per channel. A square block below the diagonal, rows i >= n against columns j < n, takes
2^(b_i - b_j) apart at its first row: 2^(b_i - b_n) 2^(b_n - b_j). Halving the chunk again and again covers every pair
below the diagonal by such blocks, down to single pairs, so neither factor ever exceeds 1, whatever the gate; and an
entry depends on no row after i.
"""

import torch

from ._decay import chunked


def chunk_major(x, C):
    """[B, T, HV, K] -> [B, NT, HV, C, K], the rows padded to a power of two by repeating the last."""
    x = chunked(x, C).transpose(2, 3)
    rows = torch.arange(1 << (C - 1).bit_length(), device=x.device).clamp(max=C - 1)
    return x.index_select(3, rows)


def last_rows(T, C, device):
    """The number of each chunk's last valid row."""
    return torch.arange(C - 1, T + C - 1, C, device=device).clamp(max=T - 1)


def halves(x, dim):
    """Two neighbouring blocks of a dimension, as a new dimension before it."""
    return x.unflatten(dim, (2, x.shape[dim] // 2))


def factors(b):
    """(2^(b_i - b_n) of the second half's rows, 2^(b_n - b_j) of the first half's), n the second half's first row."""
    first, second = b.chunk(2, dim=-2)
    anchor = second[..., :1, :]
    return torch.exp2(second - anchor), torch.exp2(anchor - first)


def pairs(x, y, b):
    """R[i, j] = sum over K of x_i y_j 2^(b_i - b_j) for j <= i, else 0: x, y, b [.., C, K] -> [.., C, C]."""
    if b.shape[-2] == 1:
        return (x * y).sum(-1, keepdim=True)
    diagonal = pairs(*(halves(each, -2) for each in (x, y, b)))
    of_rows, of_columns = factors(b)
    _, x = x.chunk(2, dim=-2)
    y, _ = y.chunk(2, dim=-2)
    corner = (x * of_rows) @ (y * of_columns).mT
    first, second = diagonal.unbind(-3)
    top = torch.cat([first, torch.zeros_like(first)], dim=-1)
    return torch.cat([top, torch.cat([corner, second], dim=-1)], dim=-2)


def pair_gradients(d, x, y, b):
    """(dx, dy, db) of ``pairs`` for the cotangent d, the diagonal left out; db in units of ln 2.

    The pair (i, j) adds d_ij x_i y_j 2^(b_i - b_j) to db at its row i and takes it at its row j. Both are made of the
    same rounded factors, so that they cancel where db is summed over a range with both rows in it.
    """
    if b.shape[-2] == 1:
        return (torch.zeros_like(b),) * 3
    corner, diagonal = blocks(d)
    inner = pair_gradients(diagonal, *(halves(each, -2) for each in (x, y, b)))
    of_rows, of_columns = factors(b)
    _, x = x.chunk(2, dim=-2)
    y, _ = y.chunk(2, dim=-2)
    corner, x, y = as_operand(corner), as_operand(x * of_rows), as_operand(y * of_columns)
    read, written = corner @ y, corner.mT @ x
    first = (torch.zeros_like(read), of_columns * written, -y * written)
    second = (of_rows * read, torch.zeros_like(read), x * read)
    outer = (torch.cat(each, dim=-2) for each in zip(first, second))
    return tuple(own.flatten(-3, -2) + far for own, far in zip(inner, outer))


def as_operand(x):
    """x itself, as a product takes it: the rounding model rounds what enters an einsum, here once for several uses."""
    return torch.einsum("...->...", x)


def blocks(d):
    """(the lower left quarter of d, its two diagonal quarters [.., 2, C / 2, C / 2])."""
    first, second = d.chunk(2, dim=-2)
    corner, last = second.chunk(2, dim=-1)
    return corner, torch.stack([first.chunk(2, dim=-1)[0], last], dim=-3)
