"""latent_attention of each query over the latents that it has chosen, which are read where they lie."""

from . import gather_latent, gathered_latent_attention, latent_attention
from ._contract import Contract, Launcher, Port
from ._decode import latent_launches
from .top_k import CHOSEN

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ DC"),
        "q_rope": Port("B Sq HQ DR"),
        "c": Port("B Sk DC"),
        "k_rope": Port("B Sk DR"),
        **CHOSEN,
    },
    outputs=latent_attention.CONTRACT.outputs,
    params={"scale": None},
    flops=gathered_latent_attention.CONTRACT.flops,
)

FUSES = """
stages:
  gather: {use: gather_latent, in: {c: c, k_rope: k_rope, places: places, count: count}}
  attend:
    use: gathered_latent_attention
    in: {q: q, q_rope: q_rope, c: gather.c_rows, k_rope: gather.rope_rows, count: count}
    with: {scale: scale}
outputs: {o: attend.o, lse: attend.lse}
"""

FASTER_ON = ()


def reference(q, q_rope, c, k_rope, places, count, *, scale):
    """q [B, Sq, HQ, DC], q_rope [B, Sq, HQ, DR], c [B, Sk, DC], k_rope [B, Sk, DR], places [B, Sq, TOP]."""
    own = (gather_latent.rows(x, places, count) for x in (c, k_rope))
    return gathered_latent_attention.reference(q, q_rope, *own, count, scale=scale)


def vjp(d_o, d_lse, q, q_rope, c, k_rope, places, count, o, lse, *, needs, scale):
    """gathered_latent_attention's; a latent takes from every query that has chosen it."""
    own = (gather_latent.rows(x, places, count) for x in (c, k_rope))
    grads = gathered_latent_attention.vjp(d_o, d_lse, q, q_rope, *own, count, o, lse, needs=needs, scale=scale)
    caches = {"c": c, "k_rope": k_rope}
    return {
        name: gather_latent.scattered(caches[name], x, places, count) if name in caches else x
        for name, x in grads.items()
    }


def configs(axes, device):
    return latent_attention.configs(axes | {"Sk": axes["TOP"]}, device)


def launch(q, q_rope, c, k_rope, places, count, o, lse, o_parts, lse_parts, *, scale, seqs, config):
    Sq, Sk, TOP = q.shape[1], c.shape[1], places.shape[-1]
    q, q_rope, places = q.flatten(0, 1)[:, None], q_rope.flatten(0, 1)[:, None], places.flatten(0, 1)
    return latent_launches(
        q, q_rope, c, k_rope, places, None, count, o, lse, o_parts, lse_parts, TOP, 1, scale, config, SHARE=Sq, ROWS=Sk
    )


LAUNCHERS = [Launcher("triton", launch, configs, latent_attention.limits, latent_attention.SCRATCH)]
