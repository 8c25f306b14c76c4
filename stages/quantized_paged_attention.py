"""paged_attention over a cache in eight bits, whose numbers are scaled where they are read.

Keys and values are what dequant would make of them, rounded alike.
"""

from dataclasses import replace

from . import paged_attention
from ._contract import Q8, Launcher, Port
from ._decode import SCRATCH, decode_launches
from ._eight_bits import SCALE, dequantized
from ._flash import flash_limits

CONTRACT = replace(
    paged_attention.CONTRACT,
    inputs={
        "q": Port("B Sq HQ D"),
        "k": Port("PAGES PAGE H D", Q8),
        "k_scale": SCALE,
        "v": Port("PAGES PAGE H DV", Q8),
        "v_scale": SCALE,
        **{name: port for name, port in paged_attention.CONTRACT.inputs.items() if name not in ("q", "k", "v")},
    },
)

FUSES = """
stages:
  dequant_k: {use: dequant, in: {x: k, scale: k_scale}}
  dequant_v: {use: dequant, in: {x: v, scale: v_scale}}
  attend:
    use: paged_attention
    in:
      {q: q, k: dequant_k.y, v: dequant_v.y, pages: pages, first: first, end: end, own: own, sinks: sinks,
       slopes: slopes}
    with: {scale: scale, softcap: softcap}
outputs: {o: attend.o, lse: attend.lse}
"""

FASTER_ON = ()


def reference(q, k, k_scale, v, v_scale, pages, first, end, own, sinks, slopes, *, scale, softcap):
    """q [B, Sq, HQ, D], k [PAGES, PAGE, H, D], v [PAGES, PAGE, H, DV], k_scale, v_scale [PAGES, PAGE, H]."""
    k, v = dequantized(k, k_scale), dequantized(v, v_scale)
    return paged_attention.reference(q, k, v, pages, first, end, own, sinks, slopes, scale=scale, softcap=softcap)


def vjp(
    d_o, d_lse, q, k, k_scale, v, v_scale, pages, first, end, own, sinks, slopes, o, lse, *, needs, scale, softcap
):  # fmt: skip
    """paged_attention's; a scale takes from all numbers of its row."""
    wide = dequantized(k, k_scale), dequantized(v, v_scale)
    grads = paged_attention.vjp(
        d_o, d_lse, q, *wide, pages, first, end, own, sinks, slopes, o, lse,
        needs=needs | {"k", "v"}, scale=scale, softcap=softcap,
    )  # fmt: skip
    for name, x in (("k", k), ("v", v)):
        d = grads.pop(name)
        grads[f"{name}_scale"] = (d * x.to(d.dtype)).sum(-1)
    return {name: x for name, x in grads.items() if name in needs}


def launch(
    q, k, k_scale, v, v_scale, pages, first, end, own, sinks, slopes, o, lse, o_parts, lse_parts, *, scale, softcap,
    seqs, config,
):  # fmt: skip
    size = k.shape[1]
    return decode_launches(
        q, k, v, pages, first, end, own, sinks, slopes, o, lse, o_parts, lse_parts, pages.shape[1] * size, size, scale,
        softcap, config, scales=(k_scale, v_scale),
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, paged_attention.configs, flash_limits, SCRATCH)]
