"""Softmax attention by PyTorch: which pipelines, what a call of theirs asks for, and how their tensors lie.

PyTorch takes [B, H, S, D]; ours are [B, S, H, D], and go in as views.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..case import Case, InputSet
from ..whole_op import Forward
from . import Inapplicable, pick

SERVED = {"flash": True}
"""Pipeline -> whether it is causal, over all the keys."""
TENSORS = ("q", "k", "v")
USUAL = {"causal": 1, "window": 0, "prefix_lm": 0, "softcap": 0, "dropout": 0}
"""Params of an op that PyTorch's functions compute as they stand."""


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
    """attend(q, k, v, scale) -> o, each [B, H, S, D]. Raises Inapplicable for params that change the op."""

    def forward(given: InputSet) -> Mapping[str, torch.Tensor]:
        params = given.call.params
        for name, usual in USUAL.items():
            if params.get(name, usual) != usual:
                raise Inapplicable(f"it is called with no {name}, the op here has {name} = {params[name]}")
        q, k, v = (given.inputs[name].transpose(1, 2) for name in TENSORS)
        return {"o": attend(q, k, v, params.get("scale")).transpose(1, 2)}

    return forward


def sdpa_forward(backend: str, causal: bool) -> Forward:
    """scaled_dot_product_attention held to one back end: where that cannot serve, PyTorch raises and takes no other."""
    return softmax_forward(lambda q, k, v, scale: sdpa(backend, q, k, v, is_causal=causal, scale=scale))


def sdpa(backend: str, q, k, v, **more) -> torch.Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel([getattr(SDPBackend, backend)]):
        return scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **more)


@dataclass(frozen=True)
class Asked:
    """What a call of an op of SERVED asks for, as its definition has it. lengths [B], slopes, sinks [HQ] or None."""

    params: Mapping[str, float]
    Sq: int
    Sk: int
    lengths: torch.Tensor | None
    slopes: torch.Tensor | None
    sinks: torch.Tensor | None

    @classmethod
    def by(cls, given: InputSet) -> "Asked":
        others = {name: given.inputs.get(name) for name in ("lengths", "slopes", "sinks")}
        return cls(given.call.params, given.inputs["q"].shape[1], given.inputs["k"].shape[1], **others)

    def refuse(self, what: str, *names: str) -> None:
        """Raises Inapplicable where the call asks for one of these params."""
        for name in names:
            if self.params[name]:
                raise Inapplicable(f"{what} has no {name} as this op has it")

    def own(self, b, i):
        """The key at a query's own place."""
        return i + self.count(b) - self.Sq

    def count(self, b):
        return self.Sk if self.lengths is None else self.lengths[b].clamp(max=self.Sk)

    def seen(self, b, i, j):
        """Whether query i of batch b sees key j."""
        own, params = self.own(b, i), self.params
        shown = j < self.count(b)
        if params["causal"]:
            shown = shown & ((j <= own) | (j < params["prefix_lm"]))
        return shown & (j > own - params["window"]) if params["window"] else shown

    def score(self, s, b, h, i, j):
        """A score after softcap and slopes."""
        cap = self.params["softcap"]
        if cap:
            s = cap * torch.tanh(s / cap)
        return s if self.slopes is None else s + self.slopes[h] * (j - self.own(b, i))
