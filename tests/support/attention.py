"""Cases of attention that the tests of its references and of its kernels share."""

import torch
from support.ops import inputs, op, same_bits

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


def results(backend, given, params=None, cotangent=1.0, name="flash"):
    """Outputs and gradients of an op by name."""
    leaves = {name: given[name].detach().requires_grad_() for name in "qkv"}
    found = op(name, backend=backend)(**{**given, **leaves, **(params or {})})
    total = (found.o * cotangent).sum()
    gradients = dict(zip(("d_q", "d_k", "d_v"), torch.autograd.grad(total, list(leaves.values()))))
    return {"o": found.o.detach(), "lse": found.lse.detach(), **gradients}


def nan_leaves_no_trace(backend, given, params, unseen, rows):
    """nan in the keys and values ``unseen`` changes no bit of the queries ``rows`` that do not see them, nor of the
    gradients of keys that only such queries see."""
    cotangent = torch.zeros(given["q"].shape[1], device=given["q"].device, dtype=given["q"].dtype)
    cotangent[rows] = 1.0
    cotangent = cotangent[:, None, None]
    clean = results(backend, given, params, cotangent)
    dirty = {name: x.clone() if x is not None else None for name, x in given.items()}
    for name in "kv":
        dirty[name][:, unseen] = torch.nan
    found = results(backend, dirty, params, cotangent)
    for name in ("o", "lse", "d_q"):
        assert same_bits(found[name][:, rows], clean[name][:, rows]), name
    return clean, found


def packed(backend, q_lengths, k_lengths, **sizes):
    """(results of sequences one after another, with three queries and two keys past the last; of each alone, joined)."""
    ends = {name: torch.tensor(lengths).cumsum(0).int() for name, lengths in (("q", q_lengths), ("k", k_lengths))}
    rows = dict(Sq=sum(q_lengths) + 3, Sk=sum(k_lengths) + 2, ND=len(q_lengths))
    given = inputs(op("flash_varlen"), absent=BARE, **{**LITTLE, **sizes, **rows})
    given |= {"q_ends": ends["q"], "k_ends": ends["k"]}
    given["k"][:, sum(k_lengths) :] = torch.nan
    given["v"][:, sum(k_lengths) :] = torch.nan
    alone, q, k = [], 0, 0
    for n, m in zip(q_lengths, k_lengths, strict=True):
        parts = {"q": given["q"][:, q : q + n], "k": given["k"][:, k : k + m], "v": given["v"][:, k : k + m]}
        alone.append(results(backend, parts))
        q, k = q + n, k + m
    joined = {name: torch.cat([each[name] for each in alone], 1) for name in alone[0]}
    return results(backend, given, name="flash_varlen"), joined


def packed_is_alone(backend):
    """V1, V15, M4: sequences of separate query and key lengths, among them none and a query without a key."""
    found, alone = packed(backend, (5, 0, 3, 1, 9), (7, 4, 0, 20, 6))
    for name, right in alone.items():
        n = right.shape[1]
        torch.testing.assert_close(found[name][:, :n], right, rtol=3e-6, atol=3e-6)
        rest = -torch.inf if name == "lse" else 0
        assert (found[name][:, n:] == rest).all(), name
    assert (found["o"][:, 5:8] == 0).all() and (found["lse"][:, 5:8] == -torch.inf).all()
