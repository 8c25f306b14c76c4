"""Scores and Gram matrix inside each chunk under a decay per channel; queries and keys decayed to the chunk's ends.

    A_qk[i, j] = scale  sum over K of q_i k_j 2^(b_i - b_j)   for j <= i in the chunk, else 0
    A_kk[i, j] = beta_i sum over K of k_i k_j 2^(b_i - b_j)   for j < i in the chunk, else 0
    qg = scale 2^b q    kb = 2^b k    kg = 2^(b_C - b) k    b_end = b_C

b is the chunk sum per channel, b_C that at the chunk's last valid row. Every exponent used is at most 0
(_channel_decay.py), so no gate overflows, and an entry depends on no row after i. arXiv:2510.26692.
"""

from ._contract import F32, Contract, Launcher, Port
from ._intra import (
    SCRATCH,
    gluon,
    intra,
    intra_launch,
    intra_vjp,
    intra_vjp_configs,
    intra_vjp_launches,
    on_hopper,
    wide_tiles,
)
from ._tiles import by_dtype, chunk_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        "b": Port("B T HV K", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)"),
    },
    outputs={
        "A_qk": Port("B T HV C", unit="attention/lower/gated"),
        "A_kk": Port("B T HV C", F32, unit="gram/strict_lower/gated"),
        "qg": Port("B T HV K", unit="query/decayed"),
        "kb": Port("B T HV K", unit="key/decayed"),
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
    },
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="4 * B * T * HV * C * K",
)


def reference(q, k, beta, b, *, C, scale):
    """q, k [B, T, H, K], beta [B, T, HV], b [B, T, HV, K]."""
    return intra(q, k, beta, b, C=C, scale=scale)


def vjp(d_A_qk, d_A_kk, d_qg, d_kb, d_kg, d_b_end, q, k, beta, b, *, needs, C, scale):
    """See _intra.intra_vjp."""
    grads = intra_vjp(d_A_qk, d_A_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, C=C, scale=scale)
    return {name: x for name, x in grads.items() if name in needs}


def configs(axes, device):
    return [config | gluon(axes, device) for config in wide_tiles(axes, device)]


def launch(q, k, beta, b, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, seqs, config):
    plain = intra_launch(q, k, beta, b, A_qk, A_kk, qg, kg, kb, b_end, C=C, scale=scale, seqs=seqs, config=config)
    if by_dtype(config, "gluon", q.dtype) and all(x is not None for x in (A_qk, A_kk, qg, kb, kg, b_end)):
        from ..kernels.kda_intra_sm90 import kda_intra_sm90_kernel

        return [on_hopper(plain, kda_intra_sm90_kernel, BK=32)]
    return [plain]


def vjp_launch(
    d_A_qk, d_A_kk, d_qg, d_kb, d_kg, d_b_end, q, k, beta, b, d_q, d_k, d_beta, d_b, dbeta_parts,
    *, C, scale, seqs, config,
):  # fmt: skip
    return intra_vjp_launches(
        d_A_qk, d_A_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, d_q, d_k, d_beta, d_b, dbeta_parts,
        C=C, scale=scale, seqs=seqs, config=config,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, chunk_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, intra_vjp_configs, chunk_limits, SCRATCH)]
