"""PyTorch's FlexAttention, compiled; a block mask where the op is causal, made once and not timed."""

from functools import cache

import torch

from ..case import Case
from . import Inapplicable, Peer
from ._softmax import is_causal, softmax_forward


def peer(case: Case) -> Peer:
    causal = is_causal(case, "flex")
    if case.device.type != "cuda":
        raise Inapplicable("FlexAttention is compiled for a GPU")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)

    @cache
    def mask(queries: int, keys: int):
        def earlier(b, h, q, k):
            return q + keys - queries >= k

        return create_block_mask(earlier, None, None, queries, keys, device=case.device) if causal else None

    def attend(q, k, v, scale):
        shown = mask(q.shape[2], k.shape[2])
        return compiled(q, k, v, block_mask=shown, scale=scale, enable_gqa=q.shape[1] != k.shape[1])

    return Peer(f"flex, torch {torch.__version__}", "flex_attention, compiled", softmax_forward(attend))
