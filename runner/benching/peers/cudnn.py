"""PyTorch's scaled_dot_product_attention, held to cuDNN."""

import torch

from ..case import Case
from . import Inapplicable, Peer
from ._softmax import is_causal, sdpa_forward


def peer(case: Case) -> Peer:
    causal = is_causal(case, "cudnn")
    if case.device.type != "cuda" or not torch.backends.cudnn.is_available():
        raise Inapplicable("needs a GPU and cuDNN")
    name = f"sdpa cudnn {torch.backends.cudnn.version()}"
    return Peer(name, "scaled_dot_product_attention(CUDNN_ATTENTION)", sdpa_forward("CUDNN_ATTENTION", causal))
