"""The scan over chunk states with a decay per channel, and its gradient, with or without the delta correction."""

import math

import torch

from ._contract import Port
from ._scan import state_scan
from ._scan_vjp import scan_vjp_launches


def channel_scan(kg, w, u, b_end, initial_state, *, C):
    """kg, w [B, T, HV, K], u [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]; w None: v_new = u."""
    T, S = kg.shape[1], initial_state
    if S is None:
        S = u.new_zeros(u.shape[0], *kg.shape[2:], u.shape[-1])
    states, values = [u.new_zeros(u.shape[0], 0, *S.shape[1:])], [u[:, :0]]
    for n, start in enumerate(range(0, T, C)):
        rows = slice(start, start + C)
        v_new = u[:, rows]
        if w is not None:
            v_new = v_new - torch.einsum("bthk,bhkv->bthv", w[:, rows], S)
        states.append(S[:, None])
        values.append(v_new)
        S = torch.exp2(b_end[:, n]).unsqueeze(-1) * S + torch.einsum("bthk,bthv->bhkv", kg[:, rows], v_new)
    return {"h": torch.cat(states, dim=1), "v_new": torch.cat(values, dim=1), "final_state": S}


def channel_scan_vjp(d_h, d_v_new, d_final_state, kg, w, b_end, h, v_new, *, C):
    """Gradients by kg, w, u, b_end, initial_state. Backwards over the chunks, with dS the cotangent of the state that
    leaves each and x that of v_new:

        x = d_v_new + kg dS    du = x    dw = -x h^T    dkg = v_new dS^T    db_end = ln 2 2^b_end sum over V of h dS
        dS <- 2^b_end dS - w^T x + dh
    """
    dS = v_new.new_zeros(h.shape[0], *h.shape[2:]) if d_final_state is None else d_final_state
    parts = {"kg": [kg[:, :0]], "u": [v_new[:, :0]], "w": [kg[:, :0]], "b_end": [b_end[:, :0]]}
    for n in reversed(range(h.shape[1])):
        rows = slice(n * C, (n + 1) * C)
        decay = torch.exp2(b_end[:, n])
        x = torch.einsum("bthk,bhkv->bthv", kg[:, rows], dS)
        if d_v_new is not None:
            x = x + d_v_new[:, rows]
        parts["kg"].append(torch.einsum("bthv,bhkv->bthk", v_new[:, rows], dS))
        parts["u"].append(x)
        parts["b_end"].append(math.log(2) * (decay * torch.einsum("bhkv,bhkv->bhk", h[:, n], dS))[:, None])
        dS = decay.unsqueeze(-1) * dS
        if d_h is not None:
            dS = dS + d_h[:, n]
        if w is not None:
            parts["w"].append(-torch.einsum("bthv,bhkv->bthk", x, h[:, n]))
            dS = dS - torch.einsum("bthk,bthv->bhkv", w[:, rows], x)
    return {name: torch.cat(found[::-1], dim=1) for name, found in parts.items()} | {"initial_state": dS}


def channel_scan_launches(kg, w, u, b_end, initial_state, h, v_new, final_state, *, C, seqs, config):
    return [
        state_scan(
            kg, w, u, None, None, initial_state, h, v_new, final_state, b_end=b_end, C=C, seqs=seqs, config=config
        )
    ]


SCRATCH = {"d_s": Port("B NT HV K V", doc="the cotangent of the state that leaves each chunk")}


def channel_scan_vjp_launches(
    d_h, d_v_new, d_final_state, kg, w, b_end, h, v_new, d_kg, d_w, d_u, d_b_end, d_initial_state, d_s,
    *, C, seqs, config,
):  # fmt: skip
    return scan_vjp_launches(
        d_h, d_v_new, d_final_state, kg, w, None, None, h, v_new, d_kg, d_w, d_u, None, d_initial_state, d_s, None,
        b_end=b_end, d_b_end=d_b_end, C=C, seqs=seqs, config=config,
    )  # fmt: skip
