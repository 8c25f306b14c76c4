"""Values of every head from what its queries read of the latent.

o = x w_uv
"""

import torch

from ._contract import Contract, Launcher, Port
from ._head_product import head_product, product_configs

CONTRACT = Contract(
    inputs={"x": Port("B Sq HQ DC"), "w_uv": Port("HQ DC DV", unit="weight/up_projection")},
    outputs={"o": Port("B Sq HQ DV")},
    flops="2 * B * Sq * HQ * DC * DV",
)


def reference(x, w_uv):
    """x [B, Sq, HQ, DC], w_uv [HQ, DC, DV]."""
    return {"o": torch.einsum("bihc,hcd->bihd", x, w_uv)}


def vjp(d_o, x, w_uv, *, needs):
    """dx = do w_uv^T; dw = x^T do."""
    grads = {"x": torch.einsum("bihd,hcd->bihc", d_o, w_uv), "w_uv": torch.einsum("bihc,bihd->hcd", x, d_o)}
    return {name: x for name, x in grads.items() if name in needs}


def launch(x, w_uv, o, *, seqs, config):
    return [head_product(x, w_uv, o, config)]


LAUNCHERS = [Launcher("triton", launch, product_configs)]
