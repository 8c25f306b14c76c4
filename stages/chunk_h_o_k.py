"""Scan over chunks under a decay per channel that emits the output: chunk_h_k and chunk_o_k in one kernel.

    o  = qg S + A v
    S <- diag(2^b_end) S + kg^T v

The states do not go through memory. What lies above A's diagonal is not read. arXiv:2312.06635.
"""

from ._channel_scan_o import (
    NOT_IN,
    channel_scan_o,
    channel_scan_o_configs,
    channel_scan_o_launch,
    channel_scan_o_limits,
    hopper_scan_configs,
    hopper_scan_launch,
    hopper_scan_limits,
)
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "qg": Port("B T HV K", unit="query/decayed"),
        "A": Port("B T HV C", unit="attention/lower/gated"),
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "v": Port("B T HV V"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    flops="2 * B * T * HV * V * (2 * K + C)",
)

FUSES = """
stages:
  scan: {use: chunk_h_k, in: {kg: kg, v: v, b_end: b_end, initial_state: initial_state}}
  out:  {use: chunk_o_k, in: {qg: qg, A: A, v: v, h: scan.h}}
outputs: {o: out.o, final_state: scan.final_state}
"""

FASTER_ON = ("sm_90",)
SEGMENT = "chunk_h_k_segment"


def reference(qg, A, kg, v, b_end, initial_state, *, C):
    """qg, kg [B, T, HV, K], A [B, T, HV, C], v [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]."""
    return channel_scan_o(qg, A, kg, None, v, b_end, initial_state, C=C)


def launch(qg, A, kg, v, b_end, initial_state, o, final_state, *, C, seqs, config):
    return [
        channel_scan_o_launch(
            qg, A, kg, None, v, b_end, initial_state, o, final_state, C=C, seqs=seqs, config=config
        )
    ]  # fmt: skip


def launch_on_hopper(qg, A, kg, v, b_end, initial_state, o, final_state, *, C, seqs, config):
    return [
        hopper_scan_launch(
            qg, A, kg, None, v, None, None, b_end, initial_state, o, final_state, C=C, seqs=seqs, config=config
        )
    ]  # fmt: skip


LAUNCHERS = [
    Launcher("gluon", launch_on_hopper, hopper_scan_configs, hopper_scan_limits, not_in=NOT_IN, always=("o",)),
    Launcher("triton", launch, channel_scan_o_configs, channel_scan_o_limits, always=("o",)),
]
