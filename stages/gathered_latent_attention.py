"""latent_attention of each query over latents of its own, the first ``count`` of those gathered for it."""

from . import latent_attention
from ._contract import Contract, Launcher, Port
from ._decode import latent_launches
from .top_k import CHOSEN

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ DC"),
        "q_rope": Port("B Sq HQ DR"),
        "c": Port("B Sq TOP DC"),
        "k_rope": Port("B Sq TOP DR"),
        "count": CHOSEN["count"],
    },
    outputs=latent_attention.CONTRACT.outputs,
    params={"scale": None},
    flops="2 * B * Sq * TOP * HQ * (2 * DC + DR)",
)


def reference(q, q_rope, c, k_rope, count, *, scale):
    """q [B, Sq, HQ, DC], q_rope [B, Sq, HQ, DR], c [B, Sq, TOP, DC], k_rope [B, Sq, TOP, DR], count [B, Sq]."""
    found = latent_attention.reference(*by_query(q, q_rope, c, k_rope), *span(count), scale=scale)
    return {"o": found["o"].view_as(q), "lse": found["lse"].view(q.shape[:3])}


def by_query(q, q_rope, c, k_rope):
    """Each query as a batch of its own."""
    return q.flatten(0, 1)[:, None], q_rope.flatten(0, 1)[:, None], c.flatten(0, 1), k_rope.flatten(0, 1)


def span(count):
    """(first, end) [B Sq, 1]."""
    end = count.flatten()[:, None]
    return end * 0, end


def vjp(d_o, d_lse, q, q_rope, c, k_rope, count, o, lse, *, needs, scale):
    """latent_attention's."""
    d_o, d_lse, o, lse = (None if x is None else x.flatten(0, 1)[:, None] for x in (d_o, d_lse, o, lse))
    given = by_query(q, q_rope, c, k_rope)
    grads = latent_attention.vjp(d_o, d_lse, *given, *span(count), o, lse, needs=needs, scale=scale)
    shapes = {"q": q, "q_rope": q_rope, "c": c, "k_rope": k_rope}
    return {name: x.view_as(shapes[name]) for name, x in grads.items()}


def configs(axes, device):
    return latent_attention.configs(axes | {"Sk": axes["TOP"]}, device)


def launch(q, q_rope, c, k_rope, count, o, lse, o_parts, lse_parts, *, scale, seqs, config):
    q, q_rope, c, k_rope = by_query(q, q_rope, c, k_rope)
    return latent_launches(
        q, q_rope, c, k_rope, None, None, count, o, lse, o_parts, lse_parts, c.shape[1], 1, scale, config
    )


LAUNCHERS = [Launcher("triton", launch, configs, latent_attention.limits, latent_attention.SCRATCH)]
