"""The stages one after another, and the whole op below: what lies between their ends is the gap."""

from ..benching.record import EAGER, REPLAY, STAGE_ALONE, STAGE_INSIDE
from .plot import FAINT, PAGE, Plot, plot, series_colours
from .runs import Run

LETTER = 0.0135
"""Of the whole: the width of a letter; a bar that is shorter than its name has none."""


def timeline(run: Run) -> Plot | None:
    """Of the first implementation; None where its stages have no times."""
    if not run.implementations:
        return None
    implementation = run.implementations[0]
    scope = STAGE_INSIDE if run.has(STAGE_INSIDE) else STAGE_ALONE
    bars = [(row.id, row.phase, ms) for row in run.stages_of(implementation) if (ms := row.ms(scope))]
    if not bars:
        return None
    wholes = [record for record in run.ops if record.timing and record.what.implementation == implementation]
    wholes = [record for record in wholes if record.clock.scope in (EAGER, REPLAY)]

    def paint(axes) -> None:
        paint_stages(axes, bars)
        for row, record in enumerate(wholes, start=1):
            axes.barh(row, record.timing.median_ms, height=0.5, color=FAINT)
        axes.set_yticks(range(len(wholes) + 1), [scope, *(record.clock.scope for record in wholes)])
        axes.invert_yaxis()
        axes.set_xlabel("ms, medians laid end to end")
        axes.set_xlim(left=0)
        axes.grid(True, axis="x")

    order = ", ".join(f"{id} {ms:.3g} ms" for id, _, ms in bars)
    height = 1.5 + 0.45 * len(wholes)
    return plot(f"{run.name}-timeline", "Timeline", f"Stages in running order: {order}.", height, paint)


def paint_stages(axes, bars: list[tuple[str, str, float]]) -> None:
    """Neighbours of one phase are told apart by a line, phases by colour; names stand where they fit."""
    colours, start, whole = series_colours(phase for _, phase, _ in bars), 0.0, sum(ms for *_, ms in bars)
    labelled = set()
    for id, phase, ms in bars:
        label = None if phase in labelled else phase
        labelled.add(phase)
        axes.barh(0, ms, left=start, height=0.6, color=colours[phase], edgecolor=PAGE, linewidth=0.8, label=label)
        if ms >= LETTER * len(id) * whole:
            axes.text(start + ms / 2, 0, id, ha="center", va="center", color=PAGE, fontsize=8.5, clip_on=True)
        start += ms
    if len(colours) > 1:
        axes.legend(loc="upper right", bbox_to_anchor=(1, 1.35), ncols=len(colours))
