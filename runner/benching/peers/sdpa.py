"""PyTorch's scaled_dot_product_attention: its flash back end is timed; what that cannot be told, its plain one computes
where results are compared."""

import torch

from ..case import Case, InputSet
from . import Inapplicable, Peer, pick
from ._softmax import SERVED, TENSORS, Asked, is_causal, sdpa, sdpa_forward


def peer(case: Case) -> Peer:
    return flash(is_causal(case, "sdpa"))


def flash(causal: bool) -> Peer:
    name = f"sdpa flash, torch {torch.__version__}"
    return Peer(name, "scaled_dot_product_attention(FLASH_ATTENTION)", sdpa_forward("FLASH_ATTENTION", causal))


def compared(case: Case) -> Peer:
    """The flash back end on a GPU where it knows the call; else the plain one, with a mask."""
    pick(case, SERVED, "sdpa")
    if case.device.type == "cuda" and case.io.itemsize == 2 and plain(case):
        return flash(True)
    return Peer(f"sdpa math, torch {torch.__version__}", "scaled_dot_product_attention(MATH)", masked)


def plain(case: Case) -> bool:
    try:
        is_causal(case, "sdpa")
    except Inapplicable:
        return False
    return True


def masked(given: InputSet) -> dict[str, torch.Tensor]:
    """A sink is a key of zeros whose score is the mask's, with a value of zeros."""
    asked, q = Asked.by(given), given.inputs["q"]
    asked.refuse("sdpa", "softcap", "dropout")
    b, h, i, j = (
        torch.arange(size, device=q.device).view([-1 if at == dim else 1 for at in range(4)])
        for dim, size in enumerate((q.shape[0], q.shape[2], asked.Sq, asked.Sk))
    )
    mask = asked.seen(b, i, j)
    q, k, v = (given.inputs[name].transpose(1, 2) for name in TENSORS)
    if asked.slopes is not None or asked.sinks is not None:
        score = torch.as_tensor(asked.score(0.0, b, h, i, j), device=q.device)
        mask = torch.where(mask, score, float("-inf")).to(q.dtype)
    if asked.sinks is not None:
        sink = asked.sinks.to(q.dtype)[:, None, None].expand(len(q), -1, asked.Sq, 1)
        mask = torch.cat([mask.expand(*sink.shape[:3], -1), sink], -1)
        k, v = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
    return {"o": sdpa("MATH", q, k, v, attn_mask=mask, scale=asked.params["scale"]).transpose(1, 2)}
