"""Attention in plain PyTorch: which pairs count, their scores, and sums in which nothing else leaves a trace."""

import torch


def grouped(x, H):
    """[B, S, HQ, *] as [B, S, H, HQ / H, *]: the query heads of each key head."""
    return x.unflatten(2, (H, x.shape[2] // max(1, H)))


def seen(first, end, Sk):
    """Whether each query sees each key, [B, 1, 1, Sq, Sk]; first, end [B, Sq]."""
    j = torch.arange(Sk, device=first.device)
    return ((j >= first[..., None]) & (j < end[..., None]))[:, None, None]


def scores(q, k, own, slopes, scale, softcap):
    """(scores [B, H, G, Sq, Sk], tanh of the capped ones or None); q [B, Sq, H, G, D], k [B, Sk, H, D]."""
    s, t = scale * torch.einsum("bihgd,bjhd->bhgij", q, k), None
    if softcap:
        t = torch.tanh(s / softcap)
        s = softcap * t
    if slopes is not None:
        distance = torch.arange(k.shape[1], device=k.device) - own[..., None]
        s = s + slopes.view(q.shape[2:4])[:, :, None, None] * distance[:, None, None].to(s.dtype)
    return s, t


def sum_over_keys(weights, keep, x):
    """[B, Sq, H, G, *]: the sum over the keys of weights [B, H, G, Sq, Sk] times x [B, Sk, H, *]. A row of x that is
    not finite makes every query nan that keeps it, and leaves no trace in the others, where 0 times nan would."""
    bad = ~x.isfinite().all(-1)
    if not bad.any():
        return torch.einsum("bhgij,bjhd->bihgd", weights, x)
    total = torch.einsum("bhgij,bjhd->bihgd", weights, x.nan_to_num(0.0, 0.0, 0.0))
    reached = (keep & bad.transpose(1, 2)[:, :, None, None]).any(-1)
    return torch.where(reached.permute(0, 3, 1, 2)[..., None], torch.nan, total)


def largest(s):
    """The largest of each row, without a gradient; 0 for a row of -inf or of nothing."""
    m = s.detach().amax(-1, keepdim=True) if s.shape[-1] else s.new_zeros(*s.shape[:-1], 1)
    return torch.where(m == -torch.inf, 0.0, m)
