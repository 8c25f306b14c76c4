"""Inputs that count rows of all ranks, where documents end say: every rank gives the same numbers."""

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..calling.call import Call
from ..planning.sequences import is_captured
from .cut import row_axis

_read = WeakTensorKeyDictionary()
"""tensor -> (its version, the numbers in it): the layers of a model are given the same one."""


def whole_numbers(call: Call) -> dict[str, list | None]:
    """The numbers by input; None while a CUDA graph is captured, and nothing can be read."""
    whole = {name for name, value in call.graph.inputs.items() if value.dtype == "int" and row_axis(value.axes) is None}
    return {name: numbers_in(x) for name, x in call.tensors.items() if name in whole and x is not None}


def numbers_in(x: torch.Tensor) -> list | None:
    if x.device.type == "cpu" or x.is_inference():
        return x.tolist()
    if is_captured(x.device):
        return None
    if x not in _read or _read[x][0] != x._version:
        _read[x] = x._version, x.tolist()
    return _read[x][1]
