"""Each stage's rate over its intensity, below the roof that the device's measured rates make."""

from collections.abc import Iterable, Sequence

from ..benching.record import Limits
from .plot import FAINT, INK, Plot, plot, series_colours
from .runs import Run


def roofline(run: Run) -> Plot | None:
    """None where no stage's rate is known."""
    points = [
        (row.id, row.phase, row.first.limits)
        for row in run.stages_of(run.implementations[0] if run.implementations else "")
        if row.first.limits and row.first.limits.tflops and row.first.limits.bytes
    ]
    if not points:
        return None
    bandwidth, rate = roofs(record.limits for record in run.records if record.limits)

    def paint(axes) -> None:
        colours = series_colours(phase for _, phase, _ in points)
        for phase, colour in colours.items():
            mine = [limits for _, of, limits in points if of == phase]
            axes.loglog([intensity(x) for x in mine], [x.tflops for x in mine], "o", color=colour, label=phase)
        for id, _, limits in points:
            place = (intensity(limits), limits.tflops)
            axes.annotate(id, place, xytext=(5, 4), textcoords="offset points", fontsize=8.5)
        paint_roof(axes, [intensity(limits) for *_, limits in points], bandwidth, rate)
        axes.set_xlabel("FLOPs per byte")
        axes.set_ylabel("TFLOP/s")
        axes.grid(True, which="major")
        if len(colours) > 1:
            axes.legend(loc="lower right")

    alt = "Roofline: the rate of each stage over its floating-point operations per byte, below what the device can do."
    return plot(f"{run.name}-roofline", "Roofline", alt, 4.2, paint)


def intensity(limits: Limits) -> float:
    return max(limits.flops, 1.0) / limits.bytes


def roofs(found: Iterable[Limits]) -> tuple[float | None, float | None]:
    """(GB/s, TFLOP/s) that the floors were made with, as far as something is bound by each; both were measured."""
    bound = {limits.bound_by: limits for limits in found if limits.floor_ms}
    memory, compute = bound.get("memory"), bound.get("compute")
    bandwidth = memory.bytes / memory.floor_ms / 1e6 if memory else None
    return bandwidth, compute.flops / compute.floor_ms / 1e9 if compute else None


def paint_roof(axes, intensities: Sequence[float], bandwidth: float | None, rate: float | None) -> None:
    """A slope of the bandwidth up to the flat matrix rate; each alone where only it is known."""
    low, high = min(intensities) / 3, max(intensities) * 3
    ridge = 1e3 * rate / bandwidth if rate and bandwidth else None
    high = max(high, 3 * ridge) if ridge else high
    if bandwidth:
        end = min(high, ridge) if ridge else high
        axes.plot([low, end], [bandwidth * low / 1e3, bandwidth * end / 1e3], color=INK, linewidth=1.2)
        text = f"copy bandwidth {bandwidth:.4g} GB/s"
        axes.annotate(text, (low, bandwidth * low / 1e3), xytext=(4, 12), textcoords="offset points", color=FAINT)
    if rate:
        axes.plot([ridge or low, high], [rate, rate], color=INK, linewidth=1.2)
        text = f"matrix rate {rate:.4g} TFLOP/s"
        place = {"xytext": (-4, 5), "textcoords": "offset points", "ha": "right"}
        axes.annotate(text, (high, rate), color=FAINT, **place)
