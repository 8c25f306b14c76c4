"""The whole op's time over one axis, ours and the peers', on logarithmic axes."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from ..benching.record import FIRST_CALL, Record, content_id
from .plot import Plot, plain_numbers, plot, series_colours
from .runs import Run

FOLLOWS = {"T": {"NT"}, "B": {"N"}, "H": {"HV"}}
"""Axes that move with an axis that is swept; any other that moves too is another line."""


@dataclass(frozen=True)
class Sweep:
    """Runs that differ in one axis. name: of its plot's files."""

    name: str
    axis: str
    runs: tuple[Run, ...]

    @property
    def title(self) -> str:
        first = self.runs[0].workload
        moving = {self.axis, *FOLLOWS.get(self.axis, ()), "N", "NT"}
        at = ", ".join(f"{axis}={size}" for axis, size in first.axes.items() if axis not in moving)
        passes = "forward and backward" if first.backward else "forward"
        return f"{self.runs[0].pipeline} over {self.axis}: {first.dtype}, {passes}, {at}"


def sweeps_of(runs: Sequence[Run]) -> list[Sweep]:
    """For every axis the runs that are alike but for it."""
    found = []
    for axis in dict.fromkeys(axis for run in runs for axis in run.workload.axes):
        if any(axis in after for after in FOLLOWS.values()) and not alone(axis, runs):
            continue
        groups: dict[str, list[Run]] = {}
        for run in runs:
            if axis in run.workload.axes:
                groups.setdefault(apart_from(axis, run), []).append(run)
        for each in groups.values():
            if len({run.workload.axes[axis] for run in each}) > 1:
                ordered = sorted(each, key=lambda run: run.workload.axes[axis])
                found.append(Sweep(f"sweep-{len(found) + 1}", axis, tuple(ordered)))
    return found


def alone(axis: str, runs: Sequence[Run]) -> bool:
    """Whether an axis that could follow another one (HV after H) is swept by itself."""
    leader = next(name for name, after in FOLLOWS.items() if axis in after)
    return axis == "HV" and len({run.workload.axes.get(leader) for run in runs}) == 1


def apart_from(axis: str, run: Run) -> str:
    """The same for two runs that may differ in this axis and what follows it alone."""
    facts = {**asdict(run.workload), "name": None, "pipeline": run.pipeline, "at": run.records[0].environment_id}
    left_out = {axis, *FOLLOWS.get(axis, ())}
    facts["axes"] = {name: size for name, size in run.workload.axes.items() if name not in left_out}
    facts["seqlens"] = run.workload.seqlens is not None
    return content_id(facts)


def sweep_plot(sweep: Sweep) -> Plot | None:
    """None where nothing was timed."""
    lines = lines_of(sweep)
    if not lines:
        return None

    def paint(axes) -> None:
        colours = series_colours(lines)
        for name, points in lines.items():
            x, timings = [size for size, _ in points], [record.timing for _, record in points]
            spread = [[t.median_ms - t.p20_ms for t in timings], [t.p80_ms - t.median_ms for t in timings]]
            middle = [t.median_ms for t in timings]
            axes.errorbar(x, middle, spread, fmt="o-", markersize=4, capsize=2, color=colours[name], label=name)
        sizes = sorted({size for points in lines.values() for size, _ in points})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.minorticks_off()
        plain_numbers(axes.yaxis, "g")
        axes.set_xlabel(sweep.axis)
        axes.set_ylabel("ms, median and p20 to p80")
        axes.grid(True, which="major")
        axes.legend(loc="upper left")

    alt = f"Time of the whole op over {sweep.axis}, logarithmic on both axes: {', '.join(lines)}."
    return plot(sweep.name, sweep.title, alt, 4.2, paint)


def lines_of(sweep: Sweep) -> dict[str, list[tuple[int, Record]]]:
    """Name of a line -> (size, record), rising."""
    found: dict[str, list[tuple[int, Record]]] = {}
    for run in sweep.runs:
        for record in timed(run.ops):
            name = f"{record.what.implementation}, {record.clock.scope.removeprefix('op ')}"
            found.setdefault(name, []).append((run.workload.axes[sweep.axis], record))
    return found


def timed(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.timing and record.clock.scope != FIRST_CALL]
