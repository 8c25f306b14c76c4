"""Dropout by counters: what is kept follows from a seed and a weight's own place, whatever tile or call it stands in.

    w = philox4x32-10(key: seed, counter: (head, 0, 0, 0))
    a, b = mix(batch ^ w_0), mix(batch ^ w_1)             of a sequence and a head
    r = mix(row ^ a)                                      of a query
    u = ((key ^ r) mixed once, ^ r ^ b, times a number)   of a weight: kept where u >= p 2^32

in 32 bits throughout. row and key are places in the sequence that they belong to. Kept weights count 1 / (1 - p).
kernels/_dropout.py computes the same bits.
"""

import torch

WORD = 0xFFFFFFFF
ROUNDS, MULTIPLIERS, WEYL = 10, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
"""Of Philox (Salmon et al., 2011)."""


def philox(seed, counter):
    """Four words of Philox-4x32-10. seed: 64 bits; counter: four words, int64 tensors of one shape."""
    keys, (c0, c1, c2, c3) = [seed & WORD, seed >> 32 & WORD], counter
    for _ in range(ROUNDS):
        a, b = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (b >> 32 & WORD) ^ c1 ^ keys[0], b & WORD, (a >> 32 & WORD) ^ c3 ^ keys[1], a & WORD
        keys = [(key + step) & WORD for key, step in zip(keys, WEYL)]
    return c0, c1, c2, c3


def mixed(x):
    """A bijection of 32 bits (Wellons' hash prospector), int64 tensor."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD & WORD
    x = (x ^ (x >> 15)) * 0xD35A2D97 & WORD
    return x ^ (x >> 15)


def kept(p, seed, batch, head, row, key):
    """Whether the weight at each place is kept; places int64 tensors that are broadcast against each other."""
    batch, head, row, key = (x & WORD for x in (batch, head, row, key))
    words = philox(int(seed), (head, head & 0, head & 0, head & 0))
    a, b = mixed(batch ^ words[0]), mixed(batch ^ words[1])
    r = mixed(row ^ a)
    u = key ^ r
    u = (u ^ (u >> 16)) * 0x21F0AAAD & WORD
    u = (u ^ (u >> 15) ^ r ^ b) * 0xD35A2D97 & WORD
    return u >= threshold(p)


def threshold(p):
    """p in 32 bits."""
    return min(max(round(p * 2**32), 0), WORD)


def kept_scale(p):
    """What a kept weight counts: with p = 1 nothing is left to scale."""
    return 1 / (1 - p) if p < 1 else 0.0


def dropout_args(dropout, seed, first_batch):
    """Arguments of kernels: numbers of one type each, whatever their values, so that none compiles anew."""
    seed, least = int(seed), threshold(dropout)
    words = {"seed_low": seed, "seed_high": seed >> 32, "threshold": least, "first_batch": int(first_batch)}
    return {name: signed(x & WORD) for name, x in words.items()} | {"kept_scale": float(kept_scale(dropout))}


def signed(word):
    return word - 2**32 if word >> 31 else word


def factors(like, own, sequence, start, *, dropout, seed, first_batch):
    """What each weight counts, 0 or 1 / (1 - dropout), as like [B, H, G, Sq, Sk]. own [B, Sq]: the key at each query's
    place; sequence, start [B, Sq]: the number of its sequence, beside that of its batch without, and its first key."""
    (B, H, G, _, Sk), device, first = like.shape, like.device, int(first_batch)
    numbers = torch.arange(first, first + B, device=device)[:, None] if sequence is None else sequence.long() + first
    start = torch.zeros_like(own) if start is None else start
    heads = torch.arange(H * G, device=device).view(H, G, 1, 1)
    batch, row = (x[:, None, None, :, None] for x in (numbers, (own - start).long()))
    key = torch.arange(Sk, device=device) - start[:, None, None, :, None].long()
    return kept(dropout, seed, batch, heads, row, key).to(like.dtype) * kept_scale(dropout)
