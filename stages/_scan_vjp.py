"""Gradient of the scans over chunk states, with the delta rule's correction and without it."""

import math

import torch

from ._contract import F32, Launch, Port, ceil_div
from ._decay import per_key_head, per_value_head
from ._scan import scan_configs
from ._sum_parts import sum_parts
from ._tiles import by_dtype, precision


def scan_vjp(d_h, d_v_new, d_final_state, k, w, b, h, v_new, *, C):
    """Gradients of a scan by its inputs: k, w, v (the u of chunk_delta_h), g, initial_state.

    b [B, T, HV] is the log decay inside the chunk, base 2; w None: the values pass uncorrected. Backwards over the
    chunks, with dS the cotangent of the state that leaves each, ga_i = 2^(b_C - b_i) and x the cotangent of v_new:

        x = d_v_new + (ga k) dS    dv = x    dw = -x h^T    dk = ga v_new dS^T    dS <- 2^b_C dS + dh - w^T x

    By b: t_i = <k_i, dk_i> leaves row i and enters the last valid row, which also takes 2^b_C <h, dS>; that row's
    own t would enter and leave, and is left out so that it cancels exactly.
    """
    H, HV = k.shape[2], v_new.shape[2]
    k = per_value_head(k, HV)
    dS = v_new.new_zeros(*h.shape[:1], *h.shape[2:]) if d_final_state is None else d_final_state
    empty = {"k": k[:, :0], "v": v_new[:, :0], "g": b[:, :0], **({} if w is None else {"w": w[:, :0]})}
    parts = {name: [x] for name, x in empty.items()}
    for n in reversed(range(h.shape[1])):
        rows = slice(n * C, (n + 1) * C)
        last = b[:, rows][:, -1:]
        ga, gl = torch.exp2(last - b[:, rows])[..., None], torch.exp2(last[:, 0])[..., None, None]
        x = torch.einsum("bthk,bhkv->bthv", ga * k[:, rows], dS)
        if d_v_new is not None:
            x = x + d_v_new[:, rows]
        dk = ga * torch.einsum("bthv,bhkv->bthk", v_new[:, rows], dS)
        t = (k[:, rows] * dk).sum(-1)[:, :-1]
        carried = t.sum(1, keepdim=True) + (gl[..., 0, 0] * torch.einsum("bhkv,bhkv->bh", h[:, n], dS))[:, None]
        parts["g"].append(math.log(2) * torch.cat([-t, carried], dim=1))
        parts["k"].append(dk)
        parts["v"].append(x)
        dS = gl * dS
        if d_h is not None:
            dS = dS + d_h[:, n]
        if w is not None:
            parts["w"].append(-torch.einsum("bthv,bhkv->bthk", x, h[:, n]))
            dS = dS - torch.einsum("bthk,bthv->bhkv", w[:, rows], x)
    grads = {name: torch.cat(found[::-1], dim=1) for name, found in parts.items()}
    return {**grads, "k": per_key_head(grads["k"], H), "initial_state": dS}


SCRATCH = {
    "d_s": Port("B NT HV K V", doc="the cotangent of the state that leaves each chunk"),
    "dg_parts": Port("NK B T HV", F32, doc="d_g by tile of K"),
}


def scan_vjp_configs(axes, device):
    """The reverse scan's tiles are the scan's; WK, WV tile the chunk-parallel kernel, NK counts its tiles of K."""
    shared = {"WK": 64, "WK_F32": 32, "WV_F32": 32, "write_stages_F32": 1, "NK": ceil_div(axes["K"], 32)}
    write = [
        {**shared, "WV": WV, "write_warps": 8 if axes["C"] == 128 else 4, "write_stages": stages}
        for WV, stages in ((64, 2), (64, 1), (32, 2))
    ]
    first, *others = scan_configs(axes, device)
    return [{**first, **each} for each in write] + [{**each, **write[0]} for each in others]


def scan_vjp_launches(
    d_h, d_v_new, d_final_state, k, w, g, g_gamma, h, v_new, d_k, d_w, d_v, d_g, d_initial_state, d_s, dg_parts,
    *, C, seqs, config, b_end=None, d_b_end=None, scan=None,
):  # fmt: skip
    """The reverse scan, then each chunk by itself, then the sum of d_g's parts; what nobody asked for is left out.
    scan: how the reverse scan is launched, where that is not by one kernel."""
    gate = d_g is not None or d_b_end is not None
    by_chunk = d_k is not None or d_w is not None or gate
    exits = d_s if d_k is not None or gate or d_v is None else None
    launches = []
    if by_chunk or d_v is not None or d_initial_state is not None:
        launches += (scan or one_reverse_scan)(
            d_h, d_v_new, d_final_state, k, w, g, g_gamma, v_new, d_v, exits if by_chunk else None,
            d_initial_state, b_end, C=C, seqs=seqs, config=config,
        )  # fmt: skip
    if by_chunk:
        launches += write_vjp(
            d_v_new, k, g, g_gamma, h, v_new, d_k, d_w, d_v, d_g, d_s, dg_parts, b_end, d_b_end,
            C=C, seqs=seqs, config=config,
        )  # fmt: skip
    return launches


def one_reverse_scan(*tensors, **given):
    return [reverse_scan(*tensors, **given)]


def reverse_scan(
    d_h, d_v_new, d_final_state, k, w, g, g_gamma, v_new, d_v, d_s, d_initial_state, b_end, *, C, seqs, config
):  # fmt: skip
    from ..kernels.chunk_delta_h_vjp import chunk_delta_h_reverse_kernel

    (H, K), (HV, V) = k.shape[2:], v_new.shape[2:]
    BV = by_dtype(config, "BV", k.dtype, V)
    return Launch(
        chunk_delta_h_reverse_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            k=k, w=w, g=g, g_gamma=g_gamma, b_end=b_end, d_h=d_h, d_v_new=d_v_new, d_final_state=d_final_state,
            d_v=d_v, d_s=d_s, d_initial_state=d_initial_state, cu_seqlens=seqs.cu_seqlens,
            chunk_offsets=seqs.chunk_offsets,
            T=seqs.T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(
            K=K, V=V, C=C, BK=by_dtype(config, "BK", k.dtype, K), BV=BV, PRECISION=precision(k.dtype)
        ),
        num_warps=by_dtype(config, "num_warps", k.dtype),
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip


def write_vjp(
    d_v_new, k, g, g_gamma, h, v_new, d_k, d_w, d_v, d_g, d_s, dg_parts, b_end, d_b_end, *, C, seqs, config
):  # fmt: skip
    from ..kernels.chunk_delta_h_vjp import chunk_delta_h_write_vjp_kernel

    (B, T, H, K), (HV, V) = k.shape, v_new.shape[2:]
    BK, BV = by_dtype(config, "WK", k.dtype, K), by_dtype(config, "WV", k.dtype, V)
    NK = ceil_div(K, BK)
    gate = None if d_g is None else d_g if NK == 1 else dg_parts
    write = Launch(
        chunk_delta_h_write_vjp_kernel,
        grid=(B * seqs.NT * H * NK,),
        args=dict(
            k=k, v_new=v_new, g=g, g_gamma=g_gamma, b_end=b_end, h=h, d_v_new=d_v_new, d_v=d_v, d_s=d_s, d_k=d_k,
            d_w=d_w, d_g=gate, d_b_end=d_b_end, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
            T=T, NT=seqs.NT, R=B * T, H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BK=BK, BV=BV, PRECISION=precision(k.dtype)),
        num_warps=config["write_warps"],
        num_stages=by_dtype(config, "write_stages", k.dtype),
    )  # fmt: skip
    return [write] if gate is d_g else [write, sum_parts(dg_parts, d_g, NK)]
