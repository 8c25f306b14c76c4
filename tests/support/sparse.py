"""Cases of attention to chosen keys that the tests of its references and of its kernels share."""

import math

import torch
from support.one_stage import stage_op
from support.ops import check, inputs, op, same_bits

from chunkwise.runner import load

SIZES = dict(B=2, Sq=5, Sk=40, HQ=4, DN=16, DR=8, DC=48, DV=24, HI=3, KI=16)
FUSED = "sparse_latent_attention"


def sparse(backend="reference", TOP=6, fuse="none", **sizes):
    """dsa with at most TOP keys for each query, and inputs for it."""
    found = load("dsa", backend=backend, mode="chunk", fuse=fuse).with_axes({"TOP": TOP})
    return found, inputs(found, **(SIZES | sizes))


def all_chosen_is_dense(backend):
    """With as many places as keys, dsa is mla_absorbed; the mask is the same."""
    dsa, given = sparse(backend, TOP=48)
    dense = op("mla_absorbed", backend=backend)
    own = {name: given[name] for name in dense.spec.inputs}
    for params in ({}, dict(window=9), dict(causal=0), dict(prefix_lm=20)):
        for a, b in zip(dsa(**given, **params), dense(**own, **params), strict=True):
            torch.testing.assert_close(a, b, rtol=3e-6, atol=3e-6)


def nan_past_a_length(backend, fuse="none"):
    """M4: nor in a key that is seen and not chosen."""
    dsa, given = sparse(backend, fuse=fuse)
    given["lengths"] = torch.tensor([25, 40], dtype=torch.int32)
    clean = dsa(**given)
    for name in ("c", "k_rope", "k_index"):
        given[name] = given[name].clone()
        given[name][0, 25:] = torch.nan
    assert all(same_bits(a, b) for a, b in zip(clean, dsa(**given)))
    choose = dsa.until("choose")
    chosen = choose(**{name: given[name] for name in choose.spec.inputs}).places
    others = torch.ones(2, 40, dtype=torch.bool)
    for b in range(2):
        others[b, chosen[b].long().clamp(min=0).flatten()] = False
    assert others[0].any()
    for name in ("c", "k_rope"):
        given[name][others] = torch.nan
    assert all(same_bits(a, b) for a, b in zip(clean, dsa(**given)))


ROWS = {
    "all alike": [1.0] * 9,
    "alike at the border": [2.0, 1.0, 3.0, 1.0, 1.0, 2.0, 1.0, 0.5, 4.0],
    "both zeros": [-0.0, 0.0, -1.0, 0.0, -0.0, 0.0, -2.0, -0.0, 0.0],
    "below 0": [-3.0, -1e-38, -1.0, -2.5, -1e30, -1.0, -7.0, -1.5, -1.0],
    "few candidates": [-math.inf, 2.0, -math.inf, -math.inf, -5.0, -math.inf, -math.inf, 0.0, -math.inf],
    "none": [-math.inf] * 9,
    "inf": [math.inf, 1.0, math.inf, 3.4e38, 2.0, -math.inf, 3.4e38, 1e-45, -1e-45],
}


def chooses_largest(backend, tmp_path):
    """By the rule itself, one number after the other: the largest, and of two that are alike the lower place."""
    x = torch.tensor(list(ROWS.values()))[None]
    found = stage_op(tmp_path, "top_k", backend=backend)(x=x)
    for name, row, places, count in zip(ROWS, x[0].tolist(), found.places[0].tolist(), found.count[0].tolist()):
        ranked = sorted((j for j in range(9) if row[j] != -math.inf), key=lambda j: (-row[j], j))
        right = sorted(ranked[:6])
        assert (count, places) == (len(right), right + [-1] * (6 - len(right))), name


def scores_of_any_numbers(backend, tmp_path):
    """Not whole ones alone, of which generated scores are made."""
    index = stage_op(tmp_path, "lightning_indexer", backend=backend)
    generator = torch.Generator().manual_seed(3)
    given = inputs(index, B=2, Sq=20, Sk=70, HI=5, KI=24)
    given |= {name: torch.randn(given[name].shape, generator=generator) for name in "qkw"}
    given |= {"first": torch.arange(20).expand(2, 20).int(), "end": torch.arange(20, 60, 2).expand(2, 20).int()}
    check(index, given, backward=True)
