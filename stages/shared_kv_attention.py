"""Softmax attention of all heads over one set of entries and tokens, each of which is key and value at once.

    s_ij = scale <q_i, x_j>    o = softmax(s) x

over the first ``count`` of the entries gathered for a query and the tokens first_i <= j < end_i, with lse and empty
rows as in flash_fwd.
"""

from ._contract import Contract, Launcher, Port
from ._shared_kv import AROUND, OUTPUTS, QUERY, attention, configs, gradients, limits
from ._shared_kv import launch as shared_launch
from .top_k import CHOSEN

CONTRACT = Contract(
    inputs={"q": QUERY, "c": Port("B Sq TOP DC"), "count": CHOSEN["count"], **AROUND},
    outputs=OUTPUTS,
    params={"scale": None},
    flops="4 * B * Sq * (TOP + NB * M) * GO * HG * DC",
)


def reference(q, c, count, kv, first, end, sinks, *, scale):
    """q [B, Sq, GO, HG, DC], c [B, Sq, TOP, DC], kv [B, NB, M, DC], count, first, end [B, Sq], sinks [GO, HG]."""
    return attention(q, c, count, kv, first, end, sinks, scale=scale)


def vjp(d_o, d_lse, q, c, count, kv, first, end, sinks, *, needs, scale):
    """Of both parts, merged."""
    grads = gradients(d_o, d_lse, q, c, count, kv, first, end, sinks, scale=scale)
    return {name: x for name, x in grads.items() if name in needs}


def launch(q, c, count, kv, first, end, sinks, o, lse, *, scale, seqs, config):
    return [shared_launch(q, c, None, count, kv, first, end, sinks, o, lse, scale=scale, config=config)]


LAUNCHERS = [Launcher("triton", launch, configs, limits)]
