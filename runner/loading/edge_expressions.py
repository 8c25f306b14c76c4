"""Expressions in edges as stage entries of their own: ``in: {k: elu(k) + 1}`` reads ``kkt:k``, which reads k.

An entry is called after its reader, ``stage:port``, and after nothing that a file can name; an output's is
``return:name``, for no stage is called return.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..diagnostics.codes import BAD_SOURCE
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.marks import Mark
from ..expression import ExpressionError
from ..maps.formula import make_formula
from ..maps.parse_formula import PLAIN, parse_formula
from .check_expressions import axis_names
from .spec import EdgeSpec, OutputSpec, PipelineSpec, StageSpec, Written


def with_entries(spec: PipelineSpec) -> PipelineSpec:
    """spec with every expression in an edge turned into an entry before its reader. Raises ChunkwiseError."""
    axes, entries, outputs, found = axis_names(spec), {}, {}, []

    def source(edge: EdgeSpec | OutputSpec, reader: str | None, port: str) -> str:
        if PLAIN.fullmatch(edge.source):
            return edge.source
        try:
            entry = map_entry(edge.source, edge.source_mark, spec.params, axes, reader, port)
        except ExpressionError as error:
            mark = edge.source_mark.within(error.start, error.end)
            message = f"{reader or 'outputs'}.{port}: {error.message}"
            found.append(Diagnostic(BAD_SOURCE, message, mark, help=error.help))
            return edge.source
        entries[entry.id] = entry
        return f"{entry.id}.y"

    for entry in spec.stages.values():
        edges = tuple(replace(edge, source=source(edge, entry.id, edge.port)) for edge in entry.edges)
        entries[entry.id] = replace(entry, edges=edges)
    for output in spec.outputs.values():
        outputs[output.name] = replace(output, source=source(output, None, output.name))
    if found:
        raise ChunkwiseError(*found)
    return replace(spec, stages=entries, outputs=outputs)


def map_entry(
    text: str, mark: Mark, params: Mapping[str, Written], axes: Collection[str], reader: str | None, port: str
) -> StageSpec:
    formula = make_formula(text, parse_formula(text), params, axes, reader, port)
    edges = []
    for operand, name in formula.operands.items():
        place = mark.within(name.start, name.end)
        edges.append(EdgeSpec(operand, place, name.id, place))
    return StageSpec(
        id=f"{reader or 'return'}:{port}",
        mark=mark,
        use=text,
        use_mark=mark,
        edges=tuple(edges),
        params={name: Written(each, mark) for name, each in formula.scalars.items()},
        formula=formula,
    )
