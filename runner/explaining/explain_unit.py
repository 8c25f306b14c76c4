"""A unit: who makes it, who wants it, which stages convert to it and from it."""

from pathlib import Path

from ...stages._units import UNITS
from ..graphs.unify import fill
from ..stage_files.stage_library import Stage
from ..stage_files.stage_source import StageSource
from .answer import Answer, Line
from .facts import Facts, edge_place


def explain_unit(facts: Facts, unit: str) -> Answer:
    sections = {
        "made by": makers(facts, unit),
        "read by": wanted_by(facts, unit),
        "conversions": conversions(facts, unit),
    }
    return Answer(unit, "a unit", UNITS.get(unit, "a gradient's"), sections)


def makers(facts: Facts, unit: str) -> list[Line]:
    """Inputs that are declared with the unit, and stages' outputs that have it."""
    inputs = facts.op.spec.inputs.values()
    lines = [Line(f"{e.name} is declared as {unit}", e.unit_mark, e.name) for e in inputs if e.unit == unit]
    for node in facts.graph.nodes.values():
        for port, name in node.outputs.items():
            if facts.graph.values[name].unit == unit:
                lines.append(Line(f"{name}: {node.id} ({node.stage.name}) gives it as {port}", node.mark, name))
    return lines


def wanted_by(facts: Facts, unit: str) -> list[Line]:
    """Ports that take this unit and no other, with what they read."""
    lines = []
    for node in facts.graph.nodes.values():
        for name, port in node.stage.contract.inputs.items():
            source = node.inputs.get(name)
            if source and fill(port.unit, node.units) == unit:
                fact, mark = f"{node.id}.{name}", edge_place(node, name)
                lines.append(Line(f"{fact} ({node.stage.name}) wants it, and reads {source}", mark, fact, (source,)))
    return lines


def conversions(facts: Facts, unit: str) -> list[Line]:
    """Stages that make the unit from another one or another one from it: used in the file, or only there to use."""
    nodes = [node for node in facts.graph.nodes.values() if node.phase == "forward"]
    lines = []
    for stage in facts.op.stages.values():
        users = [node for node in nodes if node.stage is stage]
        for text in pairs(stage, unit):
            lines += [Line(f"{node.id} ({stage.name}) converts {text}", node.mark, node.id) for node in users]
            if not users:
                place = StageSource(Path(stage.file)).assignment("CONTRACT")
                text = f"{stage.name} converts {text} by its CONTRACT; the file does not use it"
                lines.append(Line(text, place, stage.name))
    return lines


def pairs(stage: Stage, unit: str) -> list[str]:
    """What a stage converts, as "A to B": A is the unit of its one required input, B an output's; one is the unit."""
    required = [port.unit for port in stage.contract.inputs.values() if not port.optional]
    results = {port.unit for port in stage.contract.outputs.values()} - {None, *required}
    if len(required) != 1 or required[0] is None:
        return []
    return [f"{required[0]} to {result}" for result in sorted(results) if unit in (required[0], result)]
