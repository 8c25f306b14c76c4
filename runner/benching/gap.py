"""Why the stages do not add up to the whole: what the sum of stages less the end to end is made of, in words."""

from ..reporting.clocks import Timing

HOST_BOUND = 0.8
"""Of the time end to end: where the host takes this much of it to enqueue, it is what the device waits for."""


def gap_notes(
    alone: Timing, inside: Timing, whole: Timing, host_us: float | None, replay: Timing | None
) -> list[str]:
    """alone, inside: the sums of stages. host_us: None on a CPU. replay: the op as a CUDA graph, if that was timed."""
    gap, caches = whole.median_ms - alone.median_ms, inside.median_ms - alone.median_ms
    between = whole.median_ms - inside.median_ms
    noise = sum(each.noise_pct * each.median_ms for each in (alone, whole)) / 100
    parts = f"{signed(caches)} inside the stages, {signed(between)} outside them"
    lines = [f"end to end - sum of stages = {signed(gap)}: {parts}"]
    if abs(gap) <= noise:
        lines.append(f"the gap is no larger than the noise of its two figures, {noise:.3g} ms")
    if host_us is not None and -caches > noise:
        lines.append("inside the op a stage finds in the caches what the one before it wrote; alone it starts without")
    if between > noise:
        lines.append(f"outside the stages: checking the call, allocating buffers, launching{waits(whole, host_us)}")
    if replay:
        lines.append(f"replayed from a CUDA graph, without the host: {replay.median_ms:.4g} ms")
    return lines


def waits(whole: Timing, host_us: float | None) -> str:
    if host_us is None:
        return ""
    bound = host_us / 1e3 > HOST_BOUND * whole.median_ms
    return f"; the host needs {host_us:.0f} us to enqueue a call" + (", so the device waits for it" if bound else "")


def signed(ms: float) -> str:
    return f"{ms:+.4g} ms"
