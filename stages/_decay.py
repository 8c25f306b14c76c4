"""The decay that stages share (a gate, a fixed slope, both or neither), tokens cut into chunks, groups of heads."""

import math

import torch


def chunk_log_decay(g, g_gamma, like, C):
    """Base-2 log decay summed from each chunk's first row, [B, T, HV].

    g [B, T, HV] is such a sum already; g_gamma [HV] is a natural log decay per token, so that the row with
    number r in its chunk has g_gamma (r + 1) log2 e. Both given, they add; neither: zeros.
    """
    total = like.new_zeros(like.shape[:-1]) if g is None else g
    if g_gamma is None:
        return total
    row = torch.arange(like.shape[1], device=like.device) % C + 1
    return total + row.to(g_gamma.dtype)[:, None] * g_gamma * math.log2(math.e)


def chunked(x, C):
    """[B, T, ...] -> [B, NT, C, ...]; rows past T repeat the last: no difference of decays turns positive."""
    B, T = x.shape[:2]
    NT = -(-T // C)
    rows = torch.arange(NT * C, device=x.device).clamp(max=T - 1)
    return x.index_select(1, rows).reshape(B, NT, C, *x.shape[2:])


def zero_chunked(x, C):
    """``chunked`` with rows of 0 past T, for cotangents."""
    past = torch.arange(-(-x.shape[1] // C) * C, device=x.device) >= x.shape[1]
    x = chunked(x, C)
    return x.masked_fill(past.reshape(-1, C, *[1] * (x.ndim - 3)), 0)


def unchunked(x, T):
    """[B, NT, C, ...] -> [B, T, ...]."""
    return x.flatten(1, 2)[:, :T]


def pair_decay(g):
    """E[i, j] = 2^(g_i - g_j) for j <= i, else 0: g [B, NT, C, HV] -> [B, NT, HV, C, C]. Masked before exp2."""
    g = g.transpose(-1, -2)
    C = g.shape[-1]
    causal = torch.ones(C, C, dtype=torch.bool, device=g.device).tril()
    return torch.exp2((g[..., :, None] - g[..., None, :]).masked_fill(~causal, -torch.inf))


def per_value_head(x, HV):
    """[B, T, H, *] -> [B, T, HV, *]: value head i reads query/key head i // (HV / H)."""
    return x.repeat_interleave(HV // max(1, x.shape[2]), dim=2)


def per_key_head(x, H):
    """The transpose of per_value_head: sums each group of HV / H value heads, in order."""
    return x.unflatten(2, (H, x.shape[2] // max(1, H))).sum(dim=3)
