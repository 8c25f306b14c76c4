"""Each stage's rate over its intensity, below the roof that the device's measured rates make."""

import math
from collections.abc import Iterable, Mapping, Sequence

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
        paint_roof(axes, [intensity(limits) for *_, limits in points], bandwidth, rate)
        paint_names(axes, {id: (intensity(limits), limits.tflops) for id, _, limits in points})
        axes.set_xlabel("FLOPs per byte")
        axes.set_ylabel("TFLOP/s")
        axes.grid(True, which="major")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    alt = "Roofline: the rate of each stage over its floating-point operations per byte, below what the device can do."
    title = "Roofline" if bandwidth or rate else "Rates; no stage is long enough for memory or compute to be its limit"
    return plot(f"{run.name}-roofline", title, alt, max(4.2, 1 + 0.2 * len(points)), paint)


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
        slope, words = [bandwidth * low / 1e3, bandwidth * end / 1e3], f"copies {bandwidth:.4g} GB/s"
        axes.plot([low, end], slope, color=INK, linewidth=1.2, label=words)
    if rate:
        words = f"multiplies {rate:.4g} TFLOP/s"
        axes.plot([ridge or low, high], [rate, rate], "--", color=INK, linewidth=1.2, label=words)


def paint_names(axes, places: Mapping[str, tuple[float, float]]) -> None:
    """On the right, apart from each other, in the order of the points; a thin line leads to each."""
    axes.margins(y=0.15)
    bottom, top = (math.log(limit) for limit in axes.get_ylim())
    wanted = {id: (math.log(y) - bottom) / (top - bottom) for id, (_, y) in places.items()}
    step, free = 1 / max(len(places), 16), 1.0
    for id in sorted(wanted, key=wanted.__getitem__, reverse=True):
        free = min(free, wanted[id])
        line = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.5}
        place = {"xytext": (1.02, free), "textcoords": "axes fraction", "va": "center", "fontsize": 8.5}
        axes.annotate(id, places[id], arrowprops=line, **place)
        free -= step
