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
    corner = torch.einsum("...ik,...jk->...ij", x * of_rows, y * of_columns)
    first, second = diagonal.unbind(-3)
    top = torch.cat([first, torch.zeros_like(first)], dim=-1)
    return torch.cat([top, torch.cat([corner, second], dim=-1)], dim=-2)


def sum_over_columns(d, y, b):
    """Sum over j < i of d_ij 2^(b_i - b_j) y_j: the gradient of ``pairs`` by x, without the diagonal."""
    if b.shape[-2] == 1:
        return torch.zeros_like(b)
    corner, diagonal = blocks(d)
    of_rows, of_columns = factors(b)
    inner = sum_over_columns(diagonal, halves(y, -2), halves(b, -2))
    first, second = inner.unbind(-3)
    y, _ = y.chunk(2, dim=-2)
    read = of_rows * torch.einsum("...ij,...jk->...ik", corner, y * of_columns)
    return torch.cat([first, second + read], dim=-2)


def sum_over_rows(d, x, b):
    """Sum over i > j of d_ij 2^(b_i - b_j) x_i: the gradient of ``pairs`` by y, without the diagonal."""
    if b.shape[-2] == 1:
        return torch.zeros_like(b)
    corner, diagonal = blocks(d)
    of_rows, of_columns = factors(b)
    inner = sum_over_rows(diagonal, halves(x, -2), halves(b, -2))
    first, second = inner.unbind(-3)
    _, x = x.chunk(2, dim=-2)
    written = of_columns * torch.einsum("...ij,...ik->...jk", corner, x * of_rows)
    return torch.cat([first + written, second], dim=-2)


def blocks(d):
    """(the lower left quarter of d, its two diagonal quarters [.., 2, C / 2, C / 2])."""
    first, second = d.chunk(2, dim=-2)
    corner, last = second.chunk(2, dim=-1)
    return corner, torch.stack([first.chunk(2, dim=-1)[0], last], dim=-3)
