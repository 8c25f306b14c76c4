"""Cases of attention that the tests of its references and of its kernels share."""

import torch
from support.one_stage import stage_op
from support.ops import check, inputs, op, same_bits

from chunkwise.runner.definition.functions import dropout

MASKS = {
    "causal": {},
    "all": dict(causal=0),
    "window": dict(window=9),
    "window of the past and all of the future": dict(causal=0, window=9),
    "prefix": dict(prefix_lm=13),
    "window and prefix": dict(window=20, prefix_lm=13),
    "softcap": dict(softcap=2.5),
}
SHAPES = {
    "grouped by 4": dict(HQ=4, H=1, D=64, DV=64, Sq=40, Sk=40),
    "two groups": dict(HQ=4, H=2, D=128, DV=128, Sq=33, Sk=34),
    "72 wide, values 40": dict(HQ=2, H=1, D=72, DV=40, Sq=33, Sk=70),
    "values wider": dict(HQ=2, H=1, D=16, DV=80, Sq=20, Sk=50),
    "one query": dict(HQ=4, H=2, D=64, DV=64, Sq=1, Sk=45),
    "no key": dict(HQ=2, H=1, D=64, DV=64, Sq=5, Sk=0),
    "queries that see nothing": dict(HQ=2, H=1, D=64, DV=64, Sq=50, Sk=20),
}
LITTLE = dict(B=1, HQ=2, H=1, D=16, DV=24)
BARE = ("sinks", "slopes", "lengths")
"""The optional inputs of flash."""


def results(backend, given, params=None, cotangent=1.0, name="flash", flash=None):
    """Outputs and gradients of an op, or of one by name."""
    leaves = {name: given[name].detach().requires_grad_() for name in "qkv"}
    found = (flash or op(name, backend=backend))(**{**given, **leaves, **(params or {})})
    total = (found.o * cotangent).sum()
    gradients = dict(zip(("d_q", "d_k", "d_v"), torch.autograd.grad(total, list(leaves.values()))))
    return {"o": found.o.detach(), "lse": found.lse.detach(), **gradients}


def nan_leaves_no_trace(backend, given, params, unseen, rows, flash=None):
    """nan in the keys and values ``unseen`` changes no bit of the queries ``rows`` that do not see them."""
    cotangent = torch.zeros(given["q"].shape[1], device=given["q"].device, dtype=given["q"].dtype)
    cotangent[rows] = 1.0
    cotangent = cotangent[:, None, None]
    clean = results(backend, given, params, cotangent, flash=flash)
    dirty = {name: x.clone() if x is not None else None for name, x in given.items()}
    for name in "kv":
        dirty[name][:, unseen] = torch.nan
    found = results(backend, dirty, params, cotangent, flash=flash)
    for name in ("o", "lse", "d_q"):
        assert same_bits(found[name][:, rows], clean[name][:, rows]), name
    return clean, found


def kept_weights(flash, B=2, HQ=2, N=40, **params):
    """Which weights a call keeps, [B, HQ, N, N], as its output has it and as its gradient of v has it: every score is
    0, and values and cotangents are unit rows."""
    rows = torch.eye(N)[None, :, None]
    q, v = torch.zeros(B, N, HQ, 16), rows.expand(B, N, HQ, N).clone().requires_grad_()
    o = flash(q=q, k=q, v=v, causal=0, **params).o
    (d_v,) = torch.autograd.grad(o, v, rows.expand_as(o))
    return (o != 0).permute(0, 2, 1, 3), (d_v != 0).permute(0, 2, 3, 1)


def dropped_alike(flash, tiled_otherwise):
    """The same seed drops the same weights forward, backward, in other tiles, and in a part of the batch."""
    forward, backward = kept_weights(flash, dropout=0.3, seed=11)
    assert torch.equal(forward, by_definition(forward.shape, 0.3, 11)) and torch.equal(backward, forward)
    assert all(torch.equal(each, forward) for each in kept_weights(tiled_otherwise, dropout=0.3, seed=11))
    for each in kept_weights(flash, B=1, dropout=0.3, seed=11, first_batch=1):
        assert torch.equal(each, forward[1:])
    assert not torch.equal(by_definition(forward.shape, 0.3, 11 + 2**40), forward)


def by_definition(shape, p, seed):
    """What dropout keeps of all weights [B, HQ, Sq, Sk]."""
    axes = [torch.arange(size).view([-1 if at == dim else 1 for at in range(4)]) for dim, size in enumerate(shape)]
    return dropout(torch.ones(shape, dtype=torch.float64), p, seed, *axes) != 0


def dropped_packed_is_alone(backend):
    """Sequence n of a pack drops what it drops as batch n."""
    drop, (q_lengths, k_lengths) = dict(dropout=0.4, seed=3), ((5, 3, 9), (7, 4, 20))
    found, alone = packed(backend, q_lengths, k_lengths, drop)
    for name, right in alone.items():
        torch.testing.assert_close(found[name][:, : right.shape[1]], right, rtol=3e-6, atol=3e-6)


def packed(backend, q_lengths, k_lengths, params=None, **sizes):
    """(results of sequences one after another, three queries and two keys past the last; of each alone, joined)."""
    ends = {name: torch.tensor(lengths).cumsum(0).int() for name, lengths in (("q", q_lengths), ("k", k_lengths))}
    rows = dict(Sq=sum(q_lengths) + 3, Sk=sum(k_lengths) + 2, ND=len(q_lengths))
    given = inputs(op("flash_varlen"), absent=BARE, **{**LITTLE, **sizes, **rows})
    given |= {"q_ends": ends["q"], "k_ends": ends["k"]}
    given["k"][:, sum(k_lengths) :] = torch.nan
    given["v"][:, sum(k_lengths) :] = torch.nan
    alone, q, k = [], 0, 0
    for place, (n, m) in enumerate(zip(q_lengths, k_lengths, strict=True)):
        parts = {"q": given["q"][:, q : q + n], "k": given["k"][:, k : k + m], "v": given["v"][:, k : k + m]}
        alone.append(results(backend, parts, {**(params or {}), "first_batch": place}))
        q, k = q + n, k + m
    joined = {name: torch.cat([each[name] for each in alone], 1) for name in alone[0]}
    return results(backend, given, params, name="flash_varlen"), joined


def packed_is_alone(backend):
    """V1, V15, M4: sequences of separate query and key lengths, among them none and a query without a key."""
    found, alone = packed(backend, (5, 0, 3, 1, 9), (7, 4, 0, 20, 6))
    for name, right in alone.items():
        n = right.shape[1]
        torch.testing.assert_close(found[name][:, :n], right, rtol=3e-6, atol=3e-6)
        rest = -torch.inf if name == "lse" else 0
        assert (found[name][:, n:] == rest).all(), name
    assert (found["o"][:, 5:8] == 0).all() and (found["lse"][:, 5:8] == -torch.inf).all()


def merged_is_whole(backend, tmp_path):
    """M1: attention over two parts of the keys, merged, is attention over all of them; two empties give (0, -inf), and
    an empty one with nan in its output gives the other."""
    merge = stage_op(tmp_path, "merge_states", backend=backend)
    given = inputs(op("flash"), Sq=9, Sk=30, absent=BARE, **LITTLE)
    whole = op("flash")(**given, causal=0)
    parts = [op("flash")(**{**given, "k": given["k"][:, cut], "v": given["v"][:, cut]}, causal=0) for cut in CUTS]
    (o_a, lse_a), (o_b, lse_b) = parts
    found = merge(o_a=o_a, lse_a=lse_a, o_b=o_b, lse_b=lse_b)
    torch.testing.assert_close(found.o, whole.o, rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(found.lse, whole.lse, rtol=3e-6, atol=3e-6)
    empty = torch.full_like(lse_b, -torch.inf)
    found = merge(o_a=o_a, lse_a=lse_a, o_b=torch.full_like(o_b, torch.nan), lse_b=empty)
    assert same_bits(found.o, o_a)
    torch.testing.assert_close(found.lse, lse_a)
    found = merge(o_a=o_a, lse_a=empty, o_b=o_b, lse_b=empty)
    assert (found.o == 0).all() and (found.lse == -torch.inf).all()
    check(merge, {"o_a": o_a, "lse_a": lse_a, "o_b": o_b, "lse_b": lse_b}, backward=True)


CUTS = (slice(0, 11), slice(11, None))


PAGED = {
    "paged_decode": ("flash_decode", dict(Sq=2)),
    "paged_prefill": ("flash_decode", dict(Sq=21)),
    "mla_paged_decode": ("mla_decode", dict(Sq=2)),
}
"""Op over pages -> (the op over keys one after another, queries)."""


def paged_is_contiguous(name, backend):
    """Any table of pages, shared prefixes and half full last pages; nan in unused pages and rows leaves no trace."""
    paged, plain = op(name, backend=backend), op(PAGED[name][0], backend=backend)
    sizes = dict(B=3, HQ=4, H=2, D=16, DC=24, DN=16, DR=8, DV=24, PAGES=12, PAGE=16, NP=3)
    given = inputs(paged, absent=("sinks", "slopes"), **sizes, **PAGED[name][1])
    given["pages"] = torch.tensor([[4, 7, 1], [4, 0, -1], [9, 99, 99]], dtype=torch.int32)
    given["lengths"] = lengths = torch.tensor([48, 21, 5], dtype=torch.int32)
    caches = [each for each in ("k", "v", "c", "k_rope") if each in given]
    used = torch.zeros(12, 16, dtype=torch.bool)
    for page, count in [(4, 16), (7, 16), (1, 16), (0, 5), (9, 5)]:
        used[page, :count] = True
    dirty = {each: given[each].clone() for each in caches}
    for x in dirty.values():
        x[~used] = torch.nan
    found = paged(**{**given, **dirty})
    for b, n in enumerate(lengths.tolist()):
        order = given["pages"][b, : -(-n // 16)].long()
        one = {each: x[b : b + 1] if each in ("q", "q_rope") else x for each, x in given.items() if each != "pages"}
        one |= {each: given[each][order].flatten(0, 1)[None, :n] for each in caches}
        right = plain(**one | {"lengths": lengths[b : b + 1]})
        torch.testing.assert_close(found.o[b : b + 1], right.o, rtol=3e-6, atol=3e-6)
        torch.testing.assert_close(found.lse[b : b + 1], right.lse, rtol=3e-6, atol=3e-6)


def latent(name, backend="reference", io=torch.float32, **sizes):
    """An op over a latent and inputs for it."""
    found = op(name, backend=backend)
    usual = dict(B=2, Sq=3, Sk=40, HQ=4, DN=16, DR=8, DC=48, DV=24, PAGES=5, PAGE=16, NP=3)
    return found, inputs(found, io, **(usual | sizes))


LATENT = ("mla_naive", "mla_absorbed", "mla_decode", "mla_paged_decode")
