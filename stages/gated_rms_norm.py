"""Output norm and gate: each row over its root mean square, times a weight, times the silu of a gate.

    y = o / sqrt(mean over V of o^2 + eps) weight z sigmoid(z)

The norm comes before the gate, as Gated DeltaNet, Qwen3-Next and Kimi Linear have it.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._middle_sums import middle_sum
from ._tiles import padded

PARTS = 512

CONTRACT = Contract(
    inputs={"o": Port("B T HV V"), "z": Port("B T HV V", doc="gate before the silu"), "weight": Port("V", F32)},
    outputs={"y": Port("B T HV V")},
    params={"eps": 1e-6},
    requires=("eps >= 0",),
    flops="9 * B * T * HV * V",
)


def reference(o, z, weight, *, eps):
    """o, z, y [B, T, HV, V]; weight [V]."""
    r = torch.rsqrt(o.square().mean(dim=-1, keepdim=True) + eps)
    return {"y": o * r * weight * (z * torch.sigmoid(z))}


def vjp(d_y, o, z, weight, *, needs, eps):
    """With n = r o, r = 1 / sqrt(mean o^2 + eps), and dn = dy weight silu(z):

        do = r (dn - n mean over V of n dn)    dz = dy n weight silu'(z)    d weight = sum dy n silu(z)
    """
    r = torch.rsqrt(o.square().mean(dim=-1, keepdim=True) + eps)
    n, on = o * r, torch.sigmoid(z)
    d_n = d_y * weight * (z * on)
    gradients = {
        "o": r * (d_n - n * (n * d_n).mean(dim=-1, keepdim=True)),
        "z": d_y * n * weight * (on * (1 + z * torch.sigmoid(-z))),
        "weight": (d_y * n * (z * on)).sum(dim=(0, 1, 2)),
    }
    return {name: gradients[name] for name in gradients if name in needs}


def limits(axes, device):
    return f"V = {axes['V']}: at most 1024" if axes["V"] > 1024 else None


def configs(axes, device):
    return [{"BR": max(1, 2048 // padded(axes["V"])), "num_warps": 4, "num_stages": 1}]


def launch(o, z, weight, y, *, eps, seqs, config):
    from ..kernels.gated_rms_norm import gated_rms_norm_kernel

    B, T, HV, V = o.shape
    rows = B * T * HV
    return [
        Launch(
            gated_rms_norm_kernel,
            grid=(ceil_div(rows, config["BR"]),),
            args=dict(o=o, z=z, weight=weight, y=y, eps=eps, rows=rows),
            constexprs=dict(V=V, BV=padded(V), BR=config["BR"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


def vjp_launch(d_y, o, z, weight, d_o, d_z, d_weight, parts, *, eps, seqs, config):
    """PARTS programs each take every PARTS-th block of rows; a second kernel adds their sums in order."""
    from ..kernels.gated_rms_norm import gated_rms_norm_vjp_kernel

    B, T, HV, V = o.shape
    parts = None if d_weight is None else parts
    by_row = Launch(
        gated_rms_norm_vjp_kernel,
        grid=(PARTS,),
        args=dict(
            d_y=d_y, o=o, z=z, weight=weight, d_o=d_o, d_z=d_z, parts=parts, eps=eps,
            cu_seqlens=seqs.cu_seqlens, N=seqs.N, rows=B * T * HV, per_token=HV,
        ),
        constexprs=dict(P=PARTS, V=V, BV=padded(V), BR=config["BR"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
    return [by_row, *([] if d_weight is None else middle_sum(parts, None, d_weight, 1, PARTS, V))]


LAUNCHERS = [Launcher("triton", launch, configs, limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, configs, limits, scratch={"parts": Port(f"{PARTS} V", F32)})]
