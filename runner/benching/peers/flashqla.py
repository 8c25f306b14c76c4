"""FlashQLA (0.1.3): gated delta rule in TileLang, for Hopper and Blackwell, in bf16 and fp16."""

from importlib import import_module
from importlib.metadata import version

from ...planning.dtypes import name_of
from ..case import Case
from . import Inapplicable, Peer, pick
from ._linear import linear_forward

TENSORS = dict(q="q", k="k", v="v", g="g", beta="beta")
SERVED = {"gated_delta": {}, "gated_delta_l2norm": dict(use_qk_l2norm_in_kernel=True)}
"""Pipeline -> what the function is told besides its tensors."""


def peer(case: Case) -> Peer:
    options = pick(case, SERVED, "flashqla")
    if case.device.type != "cuda":
        raise Inapplicable("FlashQLA's kernels need a GPU")
    if name_of(case.io) not in ("bf16", "fp16"):
        raise Inapplicable(f"FlashQLA takes bf16 and fp16, the case is {name_of(case.io)}")
    function = import_module("flash_qla").chunk_gated_delta_rule
    name = "flash_qla.chunk_gated_delta_rule"
    return Peer(f"flashqla {version('flash-qla')}", name, linear_forward(function, TENSORS, options))
