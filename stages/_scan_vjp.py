"""Gradient of the scans over chunk states, with the delta rule's correction and without it."""

import math

import torch

from ._decay import per_key_head, per_value_head


def scan_vjp(d_h, d_v_new, d_final_state, k, w, b, h, v_new, *, C):
    """Gradients of a scan by its inputs: k, w, v (the u of chunk_delta_h), g, initial_state.

    b [B, T, HV] is the log decay inside the chunk, base 2; w None: the values pass uncorrected. Backwards over the
    chunks, with dS the cotangent of the state that leaves each, ga_i = 2^(b_C - b_i) and x the cotangent of v_new:

        x = d_v_new + (ga k) dS    dv = x    dw = -x h^T    dk = ga v_new dS^T    dS <- 2^b_C dS - w^T x + dh

    By b: t_i = <k_i, dk_i> leaves row i and enters the last valid row, which also takes 2^b_C <h, dS>; that row's
    own t would enter and leave, and is left out so that it cancels exactly.
    """
    (T, H), HV = k.shape[1:3], v_new.shape[2]
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
        carried = t.sum(1, keepdim=True) + (gl * h[:, n] * dS).sum((-2, -1))[:, None]
        parts["g"].append(math.log(2) * torch.cat([-t, carried], dim=1))
        parts["k"].append(dk)
        parts["v"].append(x)
        dS = gl * dS
        if w is not None:
            parts["w"].append(-torch.einsum("bthv,bhkv->bthk", x, h[:, n]))
            dS = dS - torch.einsum("bthk,bthv->bhkv", w[:, rows], x)
        if d_h is not None:
            dS = dS + d_h[:, n]
    grads = {name: torch.cat(found[::-1], dim=1) for name, found in parts.items()}
    return {**grads, "k": per_key_head(grads["k"], H), "initial_state": dS}
