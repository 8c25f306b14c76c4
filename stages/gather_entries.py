"""The entries that each query has chosen, one after another; 0 past the last one."""

from ._contract import Contract, Launcher, Port
from .gather_latent import configs, gather_launch, rows, scattered
from .top_k import CHOSEN

CONTRACT = Contract(
    inputs={"c": Port("B NB D"), **CHOSEN},
    outputs={"rows": Port("B Sq TOP D")},
    flops="B * Sq * TOP * D",
)


def reference(c, places, count):
    """c [B, NB, D], places [B, Sq, TOP], count [B, Sq]."""
    return {"rows": rows(c, places, count)}


def vjp(d_rows, c, places, count, *, needs):
    """An entry takes from every query that has chosen it."""
    return {"c": scattered(c, d_rows, places, count)} if "c" in needs else {}


def launch(c, places, count, rows, *, seqs, config):
    return [gather_launch(c, None, places, count, rows, None, config)]


LAUNCHERS = [Launcher("triton", launch, configs)]
