"""PyTorch's scaled_dot_product_attention, held to its flash back end."""

import torch

from ..case import Case
from . import Peer
from ._softmax import is_causal, sdpa_forward


def peer(case: Case) -> Peer:
    causal = is_causal(case, "sdpa")
    name = f"sdpa flash, torch {torch.__version__}"
    return Peer(name, "scaled_dot_product_attention(FLASH_ATTENTION)", sdpa_forward("FLASH_ATTENTION", causal))
