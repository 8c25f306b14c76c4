"""flash_fwd for a few queries over a long cache: the keys are split, and the query heads of a key head share each read.

The number of splits follows from Sk and H alone, and where they lie from what a sequence's own queries see: its
bits do not depend on the batch. One split writes the result; of several a second kernel makes it, in their order.
"""

from dataclasses import replace

from . import flash_fwd
from ._contract import Launcher
from ._decode import SCRATCH, decode_configs, decode_launches
from ._flash import flash_limits

CONTRACT = replace(
    flash_fwd.CONTRACT,
    inputs={name: port for name, port in flash_fwd.CONTRACT.inputs.items() if name not in ("sequence", "start")},
    params={"scale": None, "softcap": 0},
    requires=("HQ % H == 0", "softcap >= 0"),
)


def reference(q, k, v, first, end, own, sinks, slopes, *, scale, softcap):
    """q [B, Sq, HQ, D], k [B, Sk, H, D], v [B, Sk, H, DV], first, end, own [B, Sq], sinks, slopes [HQ]."""
    return flash_fwd.reference(q, k, v, first, end, own, sinks, slopes, scale=scale, softcap=softcap)


def vjp(d_o, d_lse, q, k, v, first, end, own, sinks, slopes, o, lse, *, needs, scale, softcap):
    """flash_fwd's."""
    return flash_fwd.vjp(
        d_o, d_lse, q, k, v, first, end, own, sinks, slopes, o=o, lse=lse, needs=needs, scale=scale, softcap=softcap
    )


def configs(axes, device):
    return decode_configs(axes["Sk"], axes, (axes["D"], 0, axes["DV"]), device)


def launch(
    q, k, v, first, end, own, sinks, slopes, o, lse, o_parts, lse_parts, *, scale, softcap, seqs, config
):  # fmt: skip
    return decode_launches(
        q, k, v, None, first, end, own, sinks, slopes, o, lse, o_parts, lse_parts, k.shape[1], 1, scale, softcap, config
    )


LAUNCHERS = [Launcher("triton", launch, configs, flash_limits, SCRATCH)]
VJP_STAGES = """
stages:
  preprocess: {use: flash_bwd_preprocess, in: {d_o: d_o, d_lse: d_lse, o: o, lse: lse, sinks: sinks}}
  dkdv:
    use: flash_bwd_dkdv
    in:
      {d_o: d_o, q: q, k: k, v: v, first: first, end: end, own: own, slopes: slopes, lse: lse, delta: preprocess.delta}
    with: {scale: scale, softcap: softcap}
  dq:
    use: flash_bwd_dq
    in:
      {d_o: d_o, q: q, k: k, v: v, first: first, end: end, own: own, slopes: slopes, lse: lse, delta: preprocess.delta}
    with: {scale: scale, softcap: softcap}
outputs: {d_q: dq.d_q, d_k: dkdv.d_k, d_v: dkdv.d_v, d_sinks: preprocess.d_sinks}
"""
