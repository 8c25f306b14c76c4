"""Scores inside each chunk under a decay per channel, and queries and keys decayed to the chunk's ends.

    A[i, j] = scale sum over K of q_i k_j 2^(b_i - b_j)   for j <= i in the chunk, else 0
    qg = scale 2^b q    kg = 2^(b_C - b) k    b_end = b_C

b is the chunk sum per channel, b_C that at the chunk's last valid row. Every exponent used is at most 0
(_channel_decay.py), so no gate overflows, and an entry depends on no row after i. arXiv:2312.06635.
"""

from ._contract import F32, Contract, Launcher, Port
from ._intra import (
    gluon,
    intra,
    intra_launch,
    intra_vjp,
    intra_vjp_configs,
    intra_vjp_launches,
    narrow_tiles,
    on_hopper,
)
from ._tiles import by_dtype, chunk_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "b": Port("B T HV K", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)"),
    },
    outputs={
        "A": Port("B T HV C", unit="attention/lower/gated"),
        "qg": Port("B T HV K", unit="query/decayed"),
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
    },
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * C * K",
)


def reference(q, k, b, *, C, scale):
    """q, k [B, T, H, K], b [B, T, HV, K]."""
    found = intra(q, k, None, b, C=C, scale=scale)
    return {"A": found.pop("A_qk"), **found}


def vjp(d_A, d_qg, d_kg, d_b_end, q, k, b, *, needs, C, scale):
    """See _intra.intra_vjp."""
    grads = intra_vjp(d_A, None, d_qg, d_kg, None, d_b_end, q, k, None, b, C=C, scale=scale)
    return {name: x for name, x in grads.items() if name in needs}


def configs(axes, device):
    return [config | gluon(axes, device) for config in narrow_tiles(axes, device)]


def launch(q, k, b, A, qg, kg, b_end, *, C, scale, seqs, config):
    plain = intra_launch(q, k, None, b, A, None, qg, kg, None, b_end, C=C, scale=scale, seqs=seqs, config=config)
    if by_dtype(config, "gluon", q.dtype) and all(x is not None for x in (A, qg, kg, b_end)):
        from ..kernels.gla_intra_sm90 import gla_intra_sm90_kernel

        return [on_hopper(plain, gla_intra_sm90_kernel, ("beta", "A_kk", "kb"))]
    return [plain]


def vjp_launch(d_A, d_qg, d_kg, d_b_end, q, k, b, d_q, d_k, d_b, *, C, scale, seqs, config):
    return intra_vjp_launches(
        d_A, None, d_qg, d_kg, None, d_b_end, q, k, None, b, d_q, d_k, None, d_b, None,
        C=C, scale=scale, seqs=seqs, config=config,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, chunk_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, intra_vjp_configs, chunk_limits)]
