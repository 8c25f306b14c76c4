"""Softmax attention by PyTorch: which pipelines, and how their tensors lie.

PyTorch takes [B, H, S, D]; ours are [B, S, H, D], and go in as views.
"""

from collections.abc import Callable, Mapping

import torch

from ..case import Case, InputSet
from ..whole_op import Forward
from . import Inapplicable, pick

SERVED = {"flash": True}
"""Pipeline -> whether it is causal, over all the keys."""
TENSORS = ("q", "k", "v")


def is_causal(case: Case, what: str) -> bool:
    """Raises Inapplicable for what PyTorch's functions cannot be told: other inputs, and a causal mask that begins
    elsewhere than at the first query and key."""
    causal = pick(case, SERVED, what)
    others = [name for name in case.op.spec.inputs if name not in (*TENSORS, *case.absent)]
    others += [name for name in case.outputs if case.backward and name != "o"]
    if others:
        raise Inapplicable(f"{what} takes q, k and v, and gives o: --without {','.join(others)}")
    if causal and case.sizes["Sq"] != case.sizes["Sk"]:
        raise Inapplicable(f"{what} aligns a causal mask at the first query and key, here it is at the last")
    return causal


def softmax_forward(attend: Callable[..., torch.Tensor]) -> Forward:
    """attend(q, k, v, scale) -> o, each [B, H, S, D]."""

    def forward(given: InputSet) -> Mapping[str, torch.Tensor]:
        q, k, v = (given.inputs[name].transpose(1, 2) for name in TENSORS)
        return {"o": attend(q, k, v, given.call.params.get("scale")).transpose(1, 2)}

    return forward


def sdpa_forward(backend: str, causal: bool) -> Forward:
    """scaled_dot_product_attention held to one back end: where that cannot serve, PyTorch raises and takes no other."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def attend(q, k, v, scale):
        with sdpa_kernel([getattr(SDPBackend, backend)]):
            grouped = q.shape[1] != k.shape[1]
            return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped)

    return softmax_forward(attend)
