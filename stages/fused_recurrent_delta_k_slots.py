"""Kimi Delta Attention, token by token in one kernel, on states that stay in their slots.

fused_recurrent_delta_k with the states of _fused_recurrent: read from their rows, and written over them.
"""

from ._contract import Contract, Launcher
from ._fused_recurrent import NEW_STATES, STATES, in_slots, linear_launch, recurrent_configs, recurrent_limits
from .fused_recurrent_delta_k import CONTRACT as PLAIN
from .fused_recurrent_delta_k import reference as recur

CONTRACT = Contract(
    inputs={name: port for name, port in PLAIN.inputs.items() if name != "initial_state"} | STATES,
    outputs={"o": PLAIN.outputs["o"]} | NEW_STATES,
    params=PLAIN.params,
    requires=PLAIN.requires,
    flops=PLAIN.flops,
)


def reference(q, k, v, g, beta, state, state_indices, *, scale):
    """q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], beta [B, T, HV];
    state [SLOTS, HV, K, V], state_indices [B]."""
    return in_slots(lambda initial: recur(q, k, v, g, beta, initial, scale=scale), state, state_indices, v.shape[0])


def launch(q, k, v, g, beta, state, state_indices, o, new_state, *, scale, seqs, config):
    return linear_launch(
        q,
        k,
        v,
        g,
        None,
        beta,
        state,
        state_indices,
        o,
        new_state,
        scale=scale,
        seqs=seqs,
        config=config,
        per_channel=True,
    )


LAUNCHERS = [Launcher("triton", launch, recurrent_configs, recurrent_limits)]
