"""fla-core, by its documented functions (0.6.0): each chunked op of the linear family that both have.

Its functions choose a back end by themselves (Triton, or TileLang where that is installed); the kernels that ran are in
the record. Environment variables of fla's (FLA_DISABLE_BACKEND_DISPATCH, FLA_CACHE_MODE) are the caller's to set. But
for one: where FlashQLA is installed, fla hands gated_delta over to it, and would be timed twice under two names.
"""

import os
from importlib import import_module
from importlib.metadata import version

from ..case import Case
from . import Inapplicable, Peer, pick
from ._linear import linear_forward

GATE = dict(use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, use_qk_l2norm_in_kernel=True)
KDA = dict(q="q", k="k", v="v", g="a", beta="b", A_log="A_log", dt_bias="dt_bias")
SERVED = {
    "delta_rule": ("delta_rule.chunk_delta_rule", dict(q="q", k="k", v="v", beta="beta"), {}),
    "delta_rule_l2norm": (
        "delta_rule.chunk_delta_rule", dict(q="q", k="k", v="v", beta="beta"), dict(use_qk_l2norm_in_kernel=True),
    ),
    "gated_delta": (
        "gated_delta_rule.chunk_gated_delta_rule", dict(q="q", k="k", v="v", g="g", beta="beta"), {},
    ),
    "gated_delta_l2norm": (
        "gated_delta_rule.chunk_gated_delta_rule", dict(q="q", k="k", v="v", g="g", beta="beta"),
        dict(use_qk_l2norm_in_kernel=True),
    ),
    "linear_attn": ("linear_attn.chunk_linear_attn", dict(q="q", k="k", v="v"), dict(normalize=False)),
    "simple_gla": ("simple_gla.chunk_simple_gla", dict(q="q", k="k", v="v", g="g"), {}),
    "retention": ("simple_gla.chunk_simple_gla", dict(q="q", k="k", v="v", g_gamma="g_gamma"), {}),
    "lightning": ("simple_gla.chunk_simple_gla", dict(q="q", k="k", v="v", g_gamma="g_gamma"), {}),
    "gla": ("gla.chunk_gla", dict(q="q", k="k", v="v", g="g"), {}),
    "kda_core": ("kda.chunk_kda", dict(q="q", k="k", v="v", g="g", beta="beta"), {}),
    "kda": ("kda.chunk_kda", KDA, GATE),
    "kda_bounded": ("kda.chunk_kda", KDA, GATE | dict(safe_gate=True, lower_bound=-5.0)),
}  # fmt: skip
"""Pipeline -> (function below fla.ops, the function's tensor -> the pipeline's input, what else it is told)."""


def peer(case: Case) -> Peer:
    path, tensors, options = pick(case, SERVED, "fla")
    if case.device.type != "cuda":
        raise Inapplicable("fla's kernels need a GPU")
    os.environ.setdefault("FLA_FLASH_QLA", "0")
    module, name = path.split(".")
    function = getattr(import_module(f"fla.ops.{module}"), name)
    return Peer(f"fla {version('fla-core')}", f"fla.ops.{path}", linear_forward(function, tensors, options))
