"""The records of stages, each by two clocks, and of their sums."""

from collections.abc import Iterator

from ..planning.plan import Step
from .limits import limits
from .lines import Lines
from .record import STAGE_ALONE, STAGE_INSIDE, SUM, Record, Source
from .stage_clock import AllStages


def stage_records(lines: Lines, stages: AllStages) -> Iterator[Record]:
    for each in stages.times:
        node = each.step.node
        for scope, timing, kernels in ((STAGE_ALONE, each.alone, each.kernels), (STAGE_INSIDE, each.inside, ())):
            yield lines.record(
                node.id, f"chunkwise {each.step.backend}", scope, timing, uses=node.stage.name, phase=node.phase,
                source=source_of(each.step), kernels=kernels, error=lines.gate.errors.get(node.id),
                limits=limits(each.flops, each.bytes, timing, lines.machine.rates),
            )  # fmt: skip


def source_of(step: Step) -> Source | None:
    mark = step.node.mark
    return Source(mark.file, mark.line) if mark else None


def sum_records(lines: Lines, stages: AllStages) -> Iterator[Record]:
    for scope, timing in ((STAGE_ALONE, stages.alone), (STAGE_INSIDE, stages.inside)):
        yield lines.record(
            SUM, stages.implementation, scope, timing,
            limits=limits(stages.flops, stages.bytes, timing, lines.machine.rates),
        )  # fmt: skip
