"""shared_kv_attention over the entries that a query has chosen, which are read where they lie."""

from . import gather_latent, shared_kv_attention
from ._contract import Contract, Launcher, Port
from ._shared_kv import AROUND, OUTPUTS, QUERY, attention, configs, gradients, limits
from ._shared_kv import launch as shared_launch
from .top_k import CHOSEN

CONTRACT = Contract(
    inputs={"q": QUERY, "c": Port("B NB DC"), **CHOSEN, **AROUND},
    outputs=OUTPUTS,
    params={"scale": None},
    flops=shared_kv_attention.CONTRACT.flops,
)

FUSES = """
stages:
  gather: {use: gather_entries, in: {c: c, places: places, count: count}}
  attend:
    use: shared_kv_attention
    in: {q: q, c: gather.rows, count: count, kv: kv, first: first, end: end, sinks: sinks}
    with: {scale: scale}
outputs: {o: attend.o, lse: attend.lse}
"""

FASTER_ON = ()


def reference(q, c, places, count, kv, first, end, sinks, *, scale):
    """q [B, Sq, GO, HG, DC], c [B, NB, DC], places [B, Sq, TOP], kv [B, NB, M, DC], count, first, end [B, Sq]."""
    return attention(q, gather_latent.rows(c, places, count), count, kv, first, end, sinks, scale=scale)


def vjp(d_o, d_lse, q, c, places, count, kv, first, end, sinks, *, needs, scale):
    """shared_kv_attention's; an entry takes from every query that has chosen it."""
    own = gather_latent.rows(c, places, count)
    grads = gradients(d_o, d_lse, q, own, count, kv, first, end, sinks, scale=scale)
    grads["c"] = gather_latent.scattered(c, grads["c"], places, count)
    return {name: x for name, x in grads.items() if name in needs}


def launch(q, c, places, count, kv, first, end, sinks, o, lse, *, scale, seqs, config):
    return [shared_launch(q, c, places, count, kv, first, end, sinks, o, lse, scale=scale, config=config)]


LAUNCHERS = [Launcher("triton", launch, configs, limits)]
