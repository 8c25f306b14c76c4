"""Keys and values of every head from the latent that they share.

k = c w_uk    v = c w_uv
"""

import torch

from ._contract import Contract, Launcher, Port
from ._head_product import head_product, product_configs

CONTRACT = Contract(
    inputs={
        "c": Port("B Sk DC"),
        "w_uk": Port("HQ DC DN", unit="weight/up_projection"),
        "w_uv": Port("HQ DC DV", unit="weight/up_projection"),
    },
    outputs={"k": Port("B Sk HQ DN"), "v": Port("B Sk HQ DV")},
    flops="2 * B * Sk * HQ * DC * (DN + DV)",
)


def reference(c, w_uk, w_uv):
    """c [B, Sk, DC], w_uk [HQ, DC, DN], w_uv [HQ, DC, DV]."""
    return {"k": torch.einsum("bjc,hcd->bjhd", c, w_uk), "v": torch.einsum("bjc,hcd->bjhd", c, w_uv)}


def vjp(d_k, d_v, c, w_uk, w_uv, *, needs):
    """dc = dk w_uk^T + dv w_uv^T; dw = c^T times what it made."""
    pairs = [(d, w, name) for d, w, name in ((d_k, w_uk, "w_uk"), (d_v, w_uv, "w_uv")) if d is not None]
    grads = {name: torch.zeros_like(w) for name, w in (("w_uk", w_uk), ("w_uv", w_uv))}
    grads |= {name: torch.einsum("bjc,bjhd->hcd", c, d) for d, _, name in pairs}
    grads["c"] = sum((torch.einsum("bjhd,hcd->bjc", d, w) for d, w, _ in pairs), torch.zeros_like(c))
    return {name: x for name, x in grads.items() if name in needs}


def launch(c, w_uk, w_uv, k, v, *, seqs, config):
    return [head_product(c, w, y, config) for w, y in ((w_uk, k), (w_uv, v)) if y is not None]


LAUNCHERS = [Launcher("triton", launch, product_configs)]
