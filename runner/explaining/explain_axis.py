"""An axis of the pipeline: what gives it its size, where it enters each stage, what must hold of it."""

from ..expression import names_in, parse_expression
from ..loading.spec import Written
from .answer import Answer, Line
from .axes import axis_sources
from .facts import Facts, shape_of


def explain_axis(facts: Facts, axis: str) -> Answer:
    sections = {
        "inference": list(dict.fromkeys(axis_sources(facts, axis))),
        "read by": [*at_stages(facts, axis), *in_expressions(facts, axis)],
    }
    size = facts.sizes.get(axis)
    return Answer(axis, "an axis", f"{axis} = {size}" if size is not None else "without a size", sections)


def at_stages(facts: Facts, axis: str) -> list[Line]:
    """The edge that brings the axis into each stage, and the values that leave with it where no edge did."""
    lines = []
    for node in facts.graph.nodes.values():
        for own, term in node.axes.items():
            if term == axis and own in node.bound_by:
                origin = node.bound_by[own]
                text = f"{own} of {node.id} is {axis}: {origin.text}"
                lines.append(Line(text, origin.mark, f"{node.id}.{origin.port}", (axis,)))
        if axis in node.stage.reference_keywords and node.axes.get(axis) == axis and axis not in node.bound_by:
            text = f"{node.id} ({node.stage.name}) takes {axis} as a number"
            lines.append(Line(text, node.mark, node.id, (axis,)))
        for name in node.outputs.values():
            value = facts.graph.values[name]
            if axis in value.axes and axis not in node.bound_by and axis in node.axes:
                lines.append(Line(f"{name} is {shape_of(value)}", node.mark, name, (axis,)))
    return lines


def in_expressions(facts: Facts, axis: str) -> list[Line]:
    """Constraints, params and stages' requirements that speak of the axis."""
    spec, lines = facts.op.spec, []
    for written in spec.constraints:
        if axis in names(written):
            lines.append(Line(f"the file requires {written.value}", written.mark, "constraints", (axis,)))
    for name, written in spec.params.items():
        if axis in names(written):
            lines.append(Line(f"the param {name} is {written.value}", written.mark, name, (axis,)))
    for node in facts.graph.nodes.values():
        for text in node.stage.contract.requires:
            if any(node.axes.get(own) == axis for own in names_in(parse_expression(text))):
                lines.append(Line(f"{node.id} ({node.stage.name}) requires {text}", node.mark, node.id, (axis,)))
    return lines


def names(written: Written) -> set[str]:
    return set(names_in(parse_expression(written.value))) if isinstance(written.value, str) else set()
