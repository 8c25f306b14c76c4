"""Scan over chunks under the delta rule and a decay per channel that emits the output, in one kernel.

chunk_delta_h_k and chunk_o_k at once:

    v_new = u - w S                               the chunk's values, corrected by the entering state S
    o     = qg S + A v_new
    S    <- diag(2^b_end) S + kg^T v_new

Neither v_new nor the states go through memory. What lies above A's diagonal is not read. arXiv:2510.26692.
"""

from ._channel_scan_o import channel_scan_o, channel_scan_o_configs, channel_scan_o_launch, channel_scan_o_limits
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "qg": Port("B T HV K", unit="query/decayed"),
        "A": Port("B T HV C", unit="attention/lower/gated"),
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "w": Port("B T HV K", unit="wy/decayed_key"),
        "u": Port("B T HV V", unit="wy/value"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    flops="2 * B * T * HV * V * (3 * K + C)",
)

FUSES = """
stages:
  scan: {use: chunk_delta_h_k, in: {kg: kg, w: w, u: u, b_end: b_end, initial_state: initial_state}}
  out:  {use: chunk_o_k,       in: {qg: qg, A: A, v: scan.v_new, h: scan.h}}
outputs: {o: out.o, final_state: scan.final_state}
"""

FASTER_ON = ("sm_90",)
SEGMENT = "chunk_delta_h_k_segment"


def reference(qg, A, kg, w, u, b_end, initial_state, *, C):
    """qg, kg, w [B, T, HV, K], A [B, T, HV, C], u [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]."""
    return channel_scan_o(qg, A, kg, w, u, b_end, initial_state, C=C)


def launch(qg, A, kg, w, u, b_end, initial_state, o, final_state, *, C, seqs, config):
    return [
        channel_scan_o_launch(qg, A, kg, w, u, b_end, initial_state, o, final_state, C=C, seqs=seqs, config=config)
    ]


LAUNCHERS = [Launcher("triton", launch, channel_scan_o_configs, channel_scan_o_limits, always=("o",))]
