"""Every error that was found, against its budget."""

import math

from ..benching.record import END_TO_END, Record
from .plot import FAINT, SERIES, Plot, plain_numbers, plot
from .runs import Run


def errors_plot(run: Run) -> Plot | None:
    """None where no record has an error that can be drawn."""
    judged = {label(record): record.error for record in run.records if record.error and record.error.rel_l2_err > 0}
    judged = {name: error for name, error in judged.items() if math.isfinite(error.rel_l2_err)}
    if not judged:
        return None
    names = list(judged)

    def paint(axes) -> None:
        for row, error in enumerate(judged.values()):
            if error.budget:
                axes.plot([error.rel_l2_err, error.budget], [row, row], color=FAINT, linewidth=0.8)
        within = [(e.rel_l2_err, n) for n, e in enumerate(judged.values()) if not e.budget or e.rel_l2_err <= e.budget]
        over = [(e.rel_l2_err, n) for n, e in enumerate(judged.values()) if e.budget and e.rel_l2_err > e.budget]
        budgets = [(e.budget, n) for n, e in enumerate(judged.values()) if e.budget]
        for points, mark, colour, name in (
            (within, "o", SERIES[0], "error"),
            (over, "X", SERIES[4], "over its budget"),
            (budgets, "|", SERIES[1], "budget"),
        ):
            if points:
                x, y = zip(*points)
                axes.plot(x, y, mark, color=colour, markersize=9 if mark == "|" else 6, markeredgewidth=2, label=name)
        axes.set_xscale("log")
        plain_numbers(axes.xaxis, ".0e")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("relative L2 error")
        axes.grid(True, axis="x")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    alt = "Errors and budgets: " + ", ".join(f"{name} {error.rel_l2_err:.1e}" for name, error in judged.items()) + "."
    return plot(f"{run.name}-errors", "Errors against budgets", alt, 1.4 + 0.26 * len(names), paint)


def label(record: Record) -> str:
    of = record.what.implementation if record.what.stage == END_TO_END else record.what.stage
    return f"{of}: {record.error.value}"
