"""Stages that turn one unit into another, for a value and the port that it does not fit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...stages._contract import Port
from ..loading.spec import StageSpec
from ..stage_files.stage_library import Stage
from .graph import Value


@dataclass(frozen=True)
class Conversion:
    """stage turns what its input port ``takes`` into what its output port ``gives``; its other inputs may be absent."""

    stage: Stage
    takes: str
    gives: str


def conversions(value: Value, port: Port, wanted: str | None, stages: Mapping[str, Stage]) -> list[Conversion]:
    """Every stage that takes the value as it is and gives what the port wants: unit, dtype and number of axes."""
    return [
        Conversion(stage, takes, gives)
        for stage in stages.values()
        for takes, source in stage.contract.inputs.items()
        for gives, result in stage.contract.outputs.items()
        if value.unit is not None
        and wanted is not None
        and (source.unit, source.dtype, len(source.axes)) == (value.unit, value.dtype, len(value.axes))
        and (result.unit, result.dtype, len(result.axes)) == (wanted, port.dtype, len(port.axes))
        and all(other == takes or each.optional for other, each in stage.contract.inputs.items())
        and None not in stage.contract.params.values()
    ]


def in_place(
    found: Iterable[Conversion], source: str, entries: Mapping[str, StageSpec]
) -> tuple[str, Conversion] | None:
    """The entry of the file that makes one of the conversions of a source already, and which one."""
    for each in found:
        for entry in entries.values():
            if entry.use == each.stage.name and [(e.port, e.source) for e in entry.edges] == [(each.takes, source)]:
                return entry.id, each
    return None
