"""Scan over chunk states under the delta rule and a decay per channel.

    h[n]  = S                                     the state that enters chunk n
    v_new = u - w S                               the chunk's values, corrected
    S    <- diag(2^b_end) S + kg^T v_new          kg: the keys, decayed to the chunk's end already

S starts from initial_state, zeros when absent, and ends as final_state. arXiv:2510.26692.
"""

from ._channel_scan import SCRATCH, channel_scan, channel_scan_launches, channel_scan_vjp, channel_scan_vjp_launches
from ._contract import F32, Contract, Launcher, Port
from ._scan import scan_configs
from ._scan_vjp import scan_vjp_configs
from ._tiles import state_limits

CONTRACT = Contract(
    inputs={
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "w": Port("B T HV K", unit="wy/decayed_key"),
        "u": Port("B T HV V", unit="wy/value"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "v_new": Port("B T HV V", doc="values with what the state already held taken off"),
        "final_state": Port("N HV K V", F32, unit="state/sequence_end"),
    },
    flops="4 * B * T * HV * K * V",
)

SEGMENT = "chunk_delta_h_k_segment"


def reference(kg, w, u, b_end, initial_state, *, C):
    """kg, w [B, T, HV, K], u [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]."""
    return channel_scan(kg, w, u, b_end, initial_state, C=C)


def vjp(d_h, d_v_new, d_final_state, kg, w, b_end, h, v_new, *, needs, C):
    """The reverse scan of _channel_scan; d_u is the whole cotangent of v_new."""
    grads = channel_scan_vjp(d_h, d_v_new, d_final_state, kg, w, b_end, h, v_new, C=C)
    return {name: x for name, x in grads.items() if name in needs}


def launch(kg, w, u, b_end, initial_state, h, v_new, final_state, *, C, seqs, config):
    return channel_scan_launches(
        kg, w, u, b_end, initial_state, h, v_new, final_state, C=C, seqs=seqs, config=config
    )  # fmt: skip


def vjp_launch(
    d_h, d_v_new, d_final_state, kg, w, b_end, h, v_new, d_kg, d_w, d_u, d_b_end, d_initial_state, d_s,
    *, C, seqs, config,
):  # fmt: skip
    return channel_scan_vjp_launches(
        d_h, d_v_new, d_final_state, kg, w, b_end, h, v_new, d_kg, d_w, d_u, d_b_end, d_initial_state, d_s,
        C=C, seqs=seqs, config=config,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, scan_configs, state_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, scan_vjp_configs, state_limits, SCRATCH)]
