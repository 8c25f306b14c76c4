"""PyTorch's FlexAttention, compiled; a block mask where the op is causal, made once and not timed."""

import warnings
from collections.abc import Callable
from functools import cache

import torch

from ..case import Case, InputSet
from . import Inapplicable, Peer, pick
from ._compiled import always_compiled
from ._softmax import SERVED, TENSORS, Asked, is_causal, softmax_forward


def peer(case: Case) -> Peer:
    causal = is_causal(case, "flex")
    if case.device.type != "cuda":
        raise Inapplicable("FlexAttention is compiled for a GPU")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = always_compiled(flex_attention)

    @cache
    def mask(queries: int, keys: int):
        def earlier(b, h, q, k):
            return q + keys - queries >= k

        return create_block_mask(earlier, None, None, queries, keys, device=case.device) if causal else None

    def attend(q, k, v, scale):
        shown = mask(q.shape[2], k.shape[2])
        return compiled(q, k, v, block_mask=shown, scale=scale, enable_gqa=q.shape[1] != k.shape[1])

    return Peer(f"flex, torch {torch.__version__}", "flex_attention, compiled", softmax_forward(attend))


def compared(case: Case) -> Peer:
    """Whatever the op is asked for, but for dropout; PyTorch computes it on a CPU too, without a gradient, and there it
    need not be compiled."""
    pick(case, SERVED, "flex")
    if case.device.type == "cpu" and case.backward:
        raise Inapplicable("FlexAttention has no gradient on a CPU")
    from torch.nn.attention.flex_attention import flex_attention

    gpu = case.device.type == "cuda"
    function = always_compiled(flex_attention) if gpu else flex_attention
    how = "compiled" if gpu else "not compiled"
    return Peer(f"flex {how}, torch {torch.__version__}", f"flex_attention, {how}", told(function))


def told(function: Callable) -> Callable:
    """The op by flex_attention: the mask as a block mask; softcap and slopes in its score function; a sink, which is
    one more term of the sum that the log-sum-exp is of, afterwards."""

    def forward(given: InputSet) -> dict[str, torch.Tensor]:
        from torch.nn.attention.flex_attention import AuxRequest, create_block_mask

        asked = Asked.by(given)
        asked.refuse("FlexAttention", "dropout")
        q, k, v = (given.inputs[name].transpose(1, 2) for name in TENSORS)
        mask = create_block_mask(
            lambda b, h, i, j: asked.seen(b, i, j), q.shape[0], None, asked.Sq, asked.Sk, device=q.device
        )
        more = {"scale": asked.params["scale"], "enable_gqa": q.shape[1] != k.shape[1]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not compiled on a CPU
            o, aux = function(q, k, v, score_mod=asked.score, block_mask=mask, return_aux=AuxRequest(lse=True), **more)
        lse = aux.lse
        if asked.sinks is not None:
            whole = torch.logaddexp(lse, asked.sinks[:, None])
            o, lse = (o * torch.exp(lse - whole)[..., None]).to(o.dtype), whole
        return {"o": o.transpose(1, 2), "lse": lse.transpose(1, 2)}

    return forward
