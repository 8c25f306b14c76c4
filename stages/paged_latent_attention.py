"""latent_attention over a latent in pages of a shared cache, laid out as in paged_attention."""

from . import latent_attention
from ._contract import INT, Contract, Launcher, Port
from ._decode import latent_launches
from .paged_attention import by_page, in_order, page_order

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ DC"),
        "q_rope": Port("B Sq HQ DR"),
        "c": Port("PAGES PAGE DC"),
        "k_rope": Port("PAGES PAGE DR"),
        "pages": Port("B NP", INT, unit="index/page", where="row_of(PAGES)"),
        **latent_attention.SPAN,
    },
    outputs=latent_attention.CONTRACT.outputs,
    params={"scale": None},
    flops="2 * B * Sq * NP * PAGE * HQ * (2 * DC + DR)",
)


def reference(q, q_rope, c, k_rope, pages, first, end, *, scale):
    """q [B, Sq, HQ, DC], q_rope [B, Sq, HQ, DR], c [PAGES, PAGE, DC], k_rope [PAGES, PAGE, DR], pages [B, NP]."""
    where = page_order(pages, end, c.shape[1])
    c, k_rope = (in_order(x, where) for x in (c, k_rope))
    return latent_attention.reference(q, q_rope, c, k_rope, first, end, scale=scale)


def vjp(d_o, d_lse, q, q_rope, c, k_rope, pages, first, end, o, lse, *, needs, scale):
    """latent_attention's; a page takes from every sequence that has it."""
    where = page_order(pages, end, c.shape[1])
    ordered = (in_order(x, where) for x in (c, k_rope))
    grads = latent_attention.vjp(d_o, d_lse, q, q_rope, *ordered, first, end, o, lse, needs=needs, scale=scale)
    caches = {"c": c, "k_rope": k_rope}
    return {name: by_page(x, where, caches[name]) if name in caches else x for name, x in grads.items()}


def configs(axes, device):
    return latent_attention.configs(axes | {"Sk": axes["NP"] * axes["PAGE"]}, device)


def launch(q, q_rope, c, k_rope, pages, first, end, o, lse, o_parts, lse_parts, *, scale, seqs, config):
    size = c.shape[1]
    return latent_launches(
        q, q_rope, c, k_rope, pages, first, end, o, lse, o_parts, lse_parts, pages.shape[1] * size, size, scale, config
    )


LAUNCHERS = [Launcher("triton", launch, configs, latent_attention.limits, latent_attention.SCRATCH)]
