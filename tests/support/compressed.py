"""Cases of attention to compressed blocks that the tests of its references and of its kernels share."""

import torch
from support.ops import inputs, same_bits

from chunkwise.runner import load

SIZES = dict(B=2, Sq=9, NB=12, M=4, GO=2, HG=3, DC=40, DO=20, HI=3, KI=16)
FUSED = "sparse_shared_kv_attention"
WINDOW = dict(window=7)


def compressed(backend="reference", TOP=3, fuse="none", io=torch.float32, absent=(), **sizes):
    """csa with at most TOP blocks for each query, and inputs for it."""
    found = load("csa", backend=backend, mode="chunk", fuse=fuse).with_axes({"TOP": TOP})
    return found, inputs(found, io, absent=absent, **(SIZES | sizes))


def by_hand(given, window):
    """csa's y with every block chosen that lies before a query's own one: block by block, and one softmax over all."""
    q, kv, M = given["q"], given["kv"].flatten(1, 2), given["kv"].shape[2]
    entries = []
    for n in range(given["kv"].shape[1]):
        blocks = [("a", n), ("b", n - 1)] if n else [("a", n)]
        z = torch.cat([given[f"z_{name}"][:, at] + given[f"bias_{name}"] for name, at in blocks], 1)
        x = torch.cat([given[f"kv_{name}"][:, at] for name, at in blocks], 1)
        entries.append((torch.softmax(z, 1) * x).sum(1))
    keys = torch.cat([torch.stack(entries, 1), kv], 1)
    i = torch.arange(q.shape[1])[:, None] + kv.shape[1] - q.shape[1]
    n, j = torch.arange(len(entries)), torch.arange(kv.shape[1])
    seen = torch.cat([(n < i // M), (j <= i) & (j > i - window)], 1)
    s = q.shape[-1] ** -0.5 * torch.einsum("bighc,bkc->bighk", q, keys)
    s = s.masked_fill(~seen[:, None, None], -torch.inf)
    sinks = given["sinks"][..., None].expand(*s.shape[:-1], 1)
    p = torch.softmax(torch.cat([s, sinks], -1), -1)[..., :-1]
    return torch.einsum("bighk,bkc,ghco->bigo", p, keys, given["w_o"])


def all_chosen_is_dense(backend):
    csa, given = compressed(backend, TOP=12, absent=("lengths",))
    torch.testing.assert_close(csa(**given, **WINDOW).y, by_hand(given, 7), rtol=1e-5, atol=1e-5)


def nan_past_a_length(backend, fuse="none"):
    """M4: in the middle of a block, and before the window in what only a window reads."""
    csa, given = compressed(backend, fuse=fuse, Sq=5)
    given["lengths"] = torch.tensor([30, 48], dtype=torch.int32)
    clean = csa(**given, **WINDOW)
    for name, x in given.items():
        if name in ("kv", "kv_a", "kv_b", "z_a", "z_b", "k_a", "k_b", "zk_a", "zk_b"):
            given[name] = x.clone()
            given[name].flatten(1, 2)[0, 30:] = torch.nan
    given["kv"].flatten(1, 2)[0, :19] = torch.nan
    assert all(same_bits(a, b) for a, b in zip(clean, csa(**given, **WINDOW)))
