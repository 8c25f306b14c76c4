"""Queries carried over to the latent that keys are made from: q w_uk^T reads from c what q reads from c w_uk.

y = q w_uk^T
"""

import torch

from ._contract import Contract, Launcher, Port
from ._head_product import head_product, product_configs

CONTRACT = Contract(
    inputs={"q": Port("B Sq HQ DN"), "w_uk": Port("HQ DC DN", unit="weight/up_projection")},
    outputs={"y": Port("B Sq HQ DC")},
    flops="2 * B * Sq * HQ * DC * DN",
)


def reference(q, w_uk):
    """q [B, Sq, HQ, DN], w_uk [HQ, DC, DN]."""
    return {"y": torch.einsum("bihd,hcd->bihc", q, w_uk)}


def vjp(d_y, q, w_uk, *, needs):
    """dq = dy w_uk; dw = dy^T q."""
    grads = {"q": torch.einsum("bihc,hcd->bihd", d_y, w_uk), "w_uk": torch.einsum("bihc,bihd->hcd", d_y, q)}
    return {name: x for name, x in grads.items() if name in needs}


def launch(q, w_uk, y, *, seqs, config):
    return [head_product(q, w_uk, y, config, turned=True)]


LAUNCHERS = [Launcher("triton", launch, product_configs)]
