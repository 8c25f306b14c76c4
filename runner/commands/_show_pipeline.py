"""One pipeline in words: its file, and what was solved for every edge."""

from collections.abc import Iterator, Mapping

from ..calling.call_help import note
from ..diagnostics.render_errors import shown_path
from ..graphs.graph import Graph, Node, Value
from ..loading.spec import DefinitionSpec, PipelineSpec
from ._tables import table

EDGE = ("shape", "dtype", "unit", "values")


def pipeline_text(graph: Graph) -> list:
    """summary, source, inputs, the other keys of the file, the stages with their solved edges, outputs."""
    spec = graph.spec
    extends = f"extends {', which extends '.join(map(shown_path, spec.bases))}" if spec.bases else ""
    parts = [f"{spec.name}  ({shown_path(spec.file)})", *filter(None, (spec.summary, spec.source, extends)), ""]
    parts += [input_table(graph), "", *plain_lines(spec)]
    parts += definition_lines(spec.definition)
    for phase in dict.fromkeys(node.phase for node in graph.nodes.values()):
        parts += [stage_table(graph, phase), ""]
    parts += [output_table(graph), ""]
    if graph.gradients:
        kept = ", ".join(graph.kept) or "nothing but inputs"
        parts += [
            result_table(graph, "gradients", {f"d_{n}": v for n, v in graph.gradients.items()}),
            "",
            f"kept: {kept}",
        ]
    return [*parts, "io: the dtype that the inputs have in common"]


def columns(*names: str) -> dict[str, str]:
    return dict.fromkeys((*names, *EDGE), "left")


def type_cells(value: Value) -> tuple[str, str, str, str]:
    laws = ", ".join(law.text for law in value.laws)
    return f"[{' '.join(map(str, value.axes))}]", value.dtype, value.unit or "-", laws or "-"


def input_table(graph: Graph):
    rows = ((name, *type_cells(value), note(graph.spec.inputs[name])) for name, value in graph.inputs.items())
    return table("", {**columns("inputs"), "": "left"}, rows)


def plain_lines(spec: PipelineSpec) -> list[str]:
    lines = [f"axis      {name} = {written.text}" for name, written in spec.axes.items()]
    lines += [f"param     {name} = {written.value}" for name, written in spec.params.items()]
    lines += [f"requires  {written.value}" for written in spec.constraints]
    return [*lines, ""] if lines else []


def definition_lines(definition: DefinitionSpec | None) -> list[str]:
    if definition is None:
        return ["no definition: its stages can be verified, the op cannot", ""]
    lines = ["definition"]
    lines += [f"  state  {name} = {written.value}" for name, written in definition.state.items()]
    for kind in ("let", "step", "dense"):
        lines += [f"  {kind:5}  {written.value}" for written in getattr(definition, kind)]
    lines += [f"  final  {name} = {written.value}" for name, written in definition.final.items()]
    return [*lines, ""]


def stage_table(graph: Graph, phase: str):
    """A line for every port: where it comes from, or that it goes out, and the type of the value there."""
    rows = (row for node in graph.nodes.values() if node.phase == phase for row in stage_rows(graph, node))
    return table("", columns("stages" if phase == "forward" else phase, "uses", "port"), rows)


def stage_rows(graph: Graph, node: Node) -> Iterator[tuple[str, ...]]:
    present = {port: source for port, source in node.inputs.items() if source}
    lines = [(f"{port} <- {source}", *type_cells(graph.values[source])) for port, source in present.items()]
    lines += [(f"{name} = {value}", "", "", "", "") for name, value in node.params.items()]
    lines += [(f"-> {port}", *type_cells(graph.values[name])) for port, name in node.outputs.items()]
    for number, line in enumerate(lines):
        yield (node.id, node.stage.name, *line) if number == 0 else ("", "", *line)


def output_table(graph: Graph):
    return result_table(graph, "outputs", {name: source for name, source in graph.outputs.items() if source})


def result_table(graph: Graph, title: str, results: Mapping[str, str]):
    rows = ((f"{name} <- {source}", *type_cells(graph.values[source])) for name, source in results.items())
    return table("", columns(title), rows)


def value_document(value: Value) -> dict:
    return {
        "shape": list(value.axes),
        "dtype": value.dtype,
        "unit": value.unit,
        "where": [law.text for law in value.laws],
    }


def definition_document(definition: DefinitionSpec) -> dict:
    document = {name: [written.value for written in getattr(definition, name)] for name in ("let", "step", "dense")}
    return {**document, "state": values(definition.state), "final": values(definition.final)}


def values(written: Mapping) -> dict:
    return {name: each.value if each.least is None else each.text for name, each in written.items()}


def pipeline_document(graph: Graph) -> dict:
    spec = graph.spec
    return {
        "pipeline": spec.name,
        "file": spec.file,
        "extends": list(spec.bases),
        "summary": spec.summary,
        "source": spec.source,
        "axes": values(spec.axes),
        "inputs": [
            {"name": name, **value_document(value), "optional": spec.inputs[name].optional}
            for name, value in graph.inputs.items()
        ],
        "params": values(spec.params),
        "constraints": [written.value for written in spec.constraints],
        "definition": definition_document(spec.definition) if spec.definition else None,
        "stages": [node_document(graph, node) for node in graph.nodes.values()],
        "outputs": [
            {"name": name, "source": source, **value_document(graph.values[source])}
            for name, source in graph.outputs.items()
            if source
        ],
    }


def node_document(graph: Graph, node: Node) -> dict:
    return {
        "id": node.id,
        "stage": node.stage.name,
        "inputs": {
            port: {"source": source, **value_document(graph.values[source])}
            for port, source in node.inputs.items()
            if source
        },
        "params": dict(node.params),
        "outputs": {port: value_document(graph.values[name]) for port, name in node.outputs.items()},
    }
