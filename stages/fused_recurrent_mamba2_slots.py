"""Mamba-2, token by token in one kernel, on states that stay in their slots.

fused_recurrent_mamba2 with the states of _fused_recurrent: read from their rows, and written over them.
"""

from ._contract import Contract, Launcher
from ._fused_recurrent import NEW_STATES, STATES, in_slots, recurrent_configs, recurrent_limits
from .fused_recurrent_mamba2 import CONTRACT as PLAIN
from .fused_recurrent_mamba2 import mamba2_launch
from .fused_recurrent_mamba2 import reference as recur

CONTRACT = Contract(
    inputs={name: port for name, port in PLAIN.inputs.items() if name != "initial_state"} | STATES,
    outputs={"o": PLAIN.outputs["o"]} | NEW_STATES,
    params=PLAIN.params,
    requires=PLAIN.requires,
    flops=PLAIN.flops,
)


def reference(x, dt, A_log, b, c, d_skip, dt_bias, state, state_indices):
    """x [B, T, HV, V], dt [B, T, HV], b, c [B, T, H, K], A_log, d_skip, dt_bias [HV];
    state [SLOTS, HV, K, V], state_indices [B]."""
    return in_slots(
        lambda initial: recur(x, dt, A_log, b, c, d_skip, dt_bias, initial), state, state_indices, x.shape[0]
    )


def launch(x, dt, A_log, b, c, d_skip, dt_bias, state, state_indices, o, new_state, *, seqs, config):
    return mamba2_launch(
        x, dt, A_log, b, c, d_skip, dt_bias, state, state_indices, o, new_state, seqs=seqs, config=config
    )


LAUNCHERS = [Launcher("triton", launch, recurrent_configs, recurrent_limits)]
