"""Scan under the delta rule and a decay per channel that resolves each chunk's dependences and emits the output.

recompute_w_u_k, chunk_delta_h_k and chunk_o_k at once:

    v_new = Ai beta (v - kb S)                    the chunk's values, corrected by the entering state S
    o     = qg S + A v_new
    S    <- diag(2^b_end) S + kg^T v_new

Neither w and u nor v_new nor the states go through memory. What lies above the diagonals of A and Ai is not read.
arXiv:2510.26692.
"""

from . import chunk_delta_o_k, recompute_w_u, recompute_w_u_k
from ._channel_scan_o import (
    NOT_IN,
    channel_scan_o_configs,
    channel_scan_o_limits,
    hopper_delta_scan_configs,
    hopper_delta_scan_limits,
    hopper_scan_launch,
)
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "qg": Port("B T HV K", unit="query/decayed"),
        "A": Port("B T HV C", unit="attention/lower/gated"),
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "kb": Port("B T HV K", unit="key/decayed"),
        "v": Port("B T HV V"),
        "beta": Port("B T HV"),
        "Ai": Port("B T HV C", unit="gram/unit_lower_inverse/gated"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    flops="2 * B * T * HV * V * (3 * K + 2 * C)",
)

FUSES = """
stages:
  wy:   {use: recompute_w_u_k, in: {kb: kb, v: v, beta: beta, Ai: Ai}}
  scan: {use: chunk_delta_h_k, in: {kg: kg, w: wy.w, u: wy.u, b_end: b_end, initial_state: initial_state}}
  out:  {use: chunk_o_k,       in: {qg: qg, A: A, v: scan.v_new, h: scan.h}}
outputs: {o: out.o, final_state: scan.final_state}
"""

FASTER_ON = ("sm_90",)


def reference(qg, A, kg, kb, v, beta, Ai, b_end, initial_state, *, C):
    """qg, kg, kb [B, T, HV, K], A, Ai [B, T, HV, C], v [B, T, HV, V], beta [B, T, HV], b_end [B, NT, HV, K],
    initial_state [B, HV, K, V]."""
    wy = recompute_w_u_k.reference(kb, v, beta, Ai, C=C)
    return chunk_delta_o_k.reference(qg, A, kg, wy["w"], wy["u"], b_end, initial_state, C=C)


def launch(qg, A, kg, kb, v, beta, Ai, b_end, initial_state, o, final_state, *, C, seqs, config):
    return [
        hopper_scan_launch(
            qg, A, kg, kb, v, beta, Ai, b_end, initial_state, o, final_state, C=C, seqs=seqs, config=config
        )
    ]  # fmt: skip


def launch_apart(qg, A, kg, kb, v, beta, Ai, b_end, initial_state, o, final_state, w, u, *, C, seqs, config):
    """The dependences first, then the scan."""
    rows = recompute_w_u.configs({"C": C}, "")[0]
    return [
        *recompute_w_u_k.launch(kb, v, beta, Ai, w, u, C=C, seqs=seqs, config=rows),
        *chunk_delta_o_k.launch(qg, A, kg, w, u, b_end, initial_state, o, final_state, C=C, seqs=seqs, config=config),
    ]


def apart_limits(axes, device):
    """None, or why the kernels one after the other refuse these sizes. On Hopper that is what the stages are."""
    return f"{device}: no faster than the stages apart" if device == "sm_90" else channel_scan_o_limits(axes, device)


REFUSED = NOT_IN | {"fp16": "not verified: alone, on random inputs, its states pass 65504"}
SCRATCH = {"w": Port("B T HV K"), "u": Port("B T HV V")}
LAUNCHERS = [
    Launcher("gluon", launch, hopper_delta_scan_configs, hopper_delta_scan_limits, not_in=REFUSED, always=("o",)),
    Launcher("triton", launch_apart, channel_scan_o_configs, apart_limits, SCRATCH, always=("o",)),
]
