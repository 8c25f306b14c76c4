"""Scan over chunk states under a decay per channel: each chunk decays the state and adds what its rows leave.

    h[n] = S                                      the state that enters chunk n
    S   <- diag(2^b_end) S + kg^T v               kg: the keys, decayed to the chunk's end already

S starts from initial_state, zeros when absent, and ends as final_state. arXiv:2312.06635.
"""

from ._channel_scan import SCRATCH, channel_scan, channel_scan_launches, channel_scan_vjp, channel_scan_vjp_launches
from ._contract import F32, Contract, Launcher, Port
from ._scan import scan_configs
from ._scan_vjp import scan_vjp_configs
from ._tiles import state_limits

CONTRACT = Contract(
    inputs={
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "v": Port("B T HV V"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "final_state": Port("N HV K V", F32, unit="state/sequence_end"),
    },
    flops="2 * B * T * HV * K * V",
)

SEGMENT = "chunk_h_k_segment"


def reference(kg, v, b_end, initial_state, *, C):
    """kg [B, T, HV, K], v [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]."""
    found = channel_scan(kg, None, v, b_end, initial_state, C=C)
    return {name: found[name] for name in ("h", "final_state")}


def vjp(d_h, d_final_state, kg, v, b_end, h, *, needs, C):
    """The reverse scan of _channel_scan."""
    grads = channel_scan_vjp(d_h, None, d_final_state, kg, None, b_end, h, v, C=C)
    grads["v"] = grads.pop("u")
    return {name: x for name, x in grads.items() if name in needs}


def launch(kg, v, b_end, initial_state, h, final_state, *, C, seqs, config):
    return channel_scan_launches(
        kg, None, v, b_end, initial_state, h, None, final_state, C=C, seqs=seqs, config=config
    )  # fmt: skip


def vjp_launch(d_h, d_final_state, kg, v, b_end, h, d_kg, d_v, d_b_end, d_initial_state, d_s, *, C, seqs, config):
    return channel_scan_vjp_launches(
        d_h, None, d_final_state, kg, None, b_end, h, v, d_kg, None, d_v, d_b_end, d_initial_state, d_s,
        C=C, seqs=seqs, config=config,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, scan_configs, state_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, scan_vjp_configs, state_limits, SCRATCH)]
