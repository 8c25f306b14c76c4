"""Cases of attention that the tests of its references and of its kernels share."""

import torch
from support.ops import op, refusal, same_bits

__all__ = ["refusal"]

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
BARE = ("sinks", "slopes")
"""The optional inputs of flash."""


def results(backend, given, params=None, cotangent=1.0):
    """Outputs and gradients of flash by name."""
    leaves = {name: given[name].detach().requires_grad_() for name in "qkv"}
    found = op("flash", backend=backend)(**{**given, **leaves, **(params or {})})
    total = (found.o * cotangent).sum()
    gradients = dict(zip(("d_q", "d_k", "d_v"), torch.autograd.grad(total, list(leaves.values()))))
    return {"o": found.o.detach(), "lse": found.lse.detach(), **gradients}


def nan_leaves_no_trace(backend, given, params, unseen, rows):
    """nan in the keys and values ``unseen`` changes no bit of the queries ``rows`` that do not see them, nor of the
    gradients of keys that only such queries see."""
    cotangent = torch.zeros(given["q"].shape[1])
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
