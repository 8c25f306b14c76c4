"""What the checks of a call look at, as a key: two calls with the same one pass the same checks and run the same plans.

Where tensors lie, and what they hold, is no part of it.
"""

from collections.abc import Hashable, Mapping

import torch

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Subclasses may answer for themselves."""


def signature(given: Mapping, cu_seqlens, seqlens, outputs) -> Hashable | None:
    """None for a call that must be looked at each time: lengths that a tensor holds, and whatever is rarely passed or
    refused."""
    key: list = []
    for name, x in given.items():
        kind = type(x)
        if kind in PLAIN and x.layout is torch.strided and not x.is_nested:
            key += (name, x.shape, x.dtype, x.get_device() if x.is_cuda else x.device)  # numbers compare fast
        elif x is None or kind is float or kind is int:
            key += (name, x)
        else:
            return None
    if seqlens is not None or cu_seqlens is not None:
        if not only(int, seqlens) or not on_device(cu_seqlens):
            return None
        key += ("seqlens", *seqlens)
        if cu_seqlens is not None:
            key += ("cu_seqlens", cu_seqlens.shape, cu_seqlens.dtype, cu_seqlens.device, cu_seqlens.layout)
    if outputs is not None:
        if not only(str, outputs):
            return None
        key += ("outputs", *outputs)
    return tuple(key)


def only(kind: type, items) -> bool:
    """Whether it is a list or tuple of that type alone; True is no int here."""
    return type(items) in (list, tuple) and set(map(type, items)) <= {kind}


def on_device(cu_seqlens) -> bool:
    """Whether the values are out of the checks' sight, or there are none."""
    return cu_seqlens is None or type(cu_seqlens) in PLAIN and cu_seqlens.device.type == "cuda"
