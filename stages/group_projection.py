"""The heads of each group together through a matrix of the group.

y = sum over the heads and columns of a group of x w
"""

import torch

from ._contract import Contract, Launcher, Port
from ._head_product import head_product, product_configs

CONTRACT = Contract(
    inputs={"x": Port("B Sq GO HG DC"), "w": Port("GO HG DC DO", unit="weight/group")},
    outputs={"y": Port("B Sq GO DO")},
    flops="2 * B * Sq * GO * HG * DC * DO",
)


def reference(x, w):
    """x [B, Sq, GO, HG, DC], w [GO, HG, DC, DO]."""
    return {"y": torch.einsum("bighc,ghco->bigo", x, w)}


def vjp(d_y, x, w, *, needs):
    """dx = dy w^T; dw = x^T dy."""
    grads = {"x": torch.einsum("bigo,ghco->bighc", d_y, w), "w": torch.einsum("bighc,bigo->ghco", x, d_y)}
    return {name: x for name, x in grads.items() if name in needs}


def launch(x, w, y, *, seqs, config):
    return [head_product(x.flatten(3), w.flatten(1, 2), y, config)]


LAUNCHERS = [Launcher("triton", launch, product_configs)]
