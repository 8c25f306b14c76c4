"""What a stage or an op could take on this device, and whether what it is said to do is possible at all."""

from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from ..graphs.flops import place_of
from ..graphs.graph import Node
from ..reporting.clocks import Timing
from .device_rates import DeviceRates
from .record import Limits

MARGIN = 1.2
"""Over the rates that were measured: reading alone is a little faster than copying."""
CACHE_SHARE = 4
"""Bytes below this many times the cache need not all pass through memory: no bandwidth is impossible for them."""

MEMORY, COMPUTE, LATENCY = "memory", "compute", "latency"


def limits(flops: float, moved: int, timing: Timing | None, rates: DeviceRates | None) -> Limits:
    """flops, moved: of one run, moved in bytes. The floor is the longer of moving the bytes at the copy bandwidth and
    doing the flops at the matrix rate; shorter than an empty launch, it is the launch that binds."""
    ms = timing.median_ms if timing else 0.0
    tflops, gbps = (flops / ms / 1e9, moved / ms / 1e6) if ms else (None, None)
    if rates is None:
        return Limits(flops, moved, tflops, gbps)
    memory, compute = moved / rates.copy_gbps / 1e6, flops / rates.matrix_tflops / 1e9
    floor = max(memory, compute, rates.launch_ms)
    bound = LATENCY if floor == rates.launch_ms else MEMORY if memory >= compute else COMPUTE
    return Limits(flops, moved, tflops, gbps, floor, bound, 100 * floor / ms if ms else None)


def impossible(node: Node, found: Limits, rates: DeviceRates) -> Diagnostic | None:
    """An error where the stage would have done more than the device can: its formula is wrong, for the time is not."""
    over_memory = found.bytes > CACHE_SHARE * rates.cache_bytes and (found.gbps or 0) > MARGIN * rates.copy_gbps
    if (found.tflops or 0) > MARGIN * rates.matrix_tflops:
        text = node.stage.contract.flops
        what = f"flops {text} is {found.flops:.3g}, {found.tflops:.3g} TFLOP/s, and the device's matrix rate in "
        what += f"{rates.dtype} is {rates.matrix_tflops:.3g}"
    elif over_memory:
        what = f"its ports hold {found.bytes:.3g} bytes, {found.gbps:.3g} GB/s, and the device copies "
        what += f"{rates.copy_gbps:.3g}"
    else:
        return None
    help = "correct flops in the stage's contract, or its ports: they say more than can have been done in that time"
    return Diagnostic(codes.ABOVE_CEILING, f"{node.id} ({node.stage.name}): {what}", place_of(node), help=help)
