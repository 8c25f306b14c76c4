"""A pipeline's ``definition`` on the runner's terms: typed against its inputs, evaluated in float64."""

import math
from collections.abc import Mapping

import torch

from ..definition import Definition, DefinitionError, Line, Problem, evaluate, parse_definition, typecheck
from ..definition.check import Types
from ..definition.lower import Lowering, lower
from ..definition.types import HEADS
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note
from ..diagnostics.marks import Mark
from ..graphs.graph import Graph
from ..graphs.sizes import shape
from ..loading.spec import DefinitionSpec, PipelineSpec, Written
from ..planning.sequences import Packing
from .slots import per_sequence_axes, put_back, taken


def block(spec: DefinitionSpec) -> dict:
    """The definition as plain lines with their marks."""
    return {
        "state": {name: line(written) for name, written in spec.state.items()},
        "let": [line(written) for written in spec.let],
        "step": [line(written) for written in spec.step],
        "final": {name: line(written) for name, written in spec.final.items()},
        "dense": [line(written) for written in spec.dense],
    }


def line(written: Written) -> Line:
    return Line(str(written.value), written.mark)


def diagnostic(problem: Problem) -> Diagnostic:
    mark = problem.line.where if problem.line else None
    if isinstance(mark, Mark):
        mark = mark.within(problem.start, problem.end)
    return Diagnostic(problem.code or codes.DEFINITION, problem.message, mark, help=problem.help)


def parsed(spec: PipelineSpec) -> Definition:
    try:
        return parse_definition({key: value for key, value in block(spec.definition).items() if value})
    except DefinitionError as error:
        raise ChunkwiseError(*map(diagnostic, error.problems)) from None


def definition_gradients(
    graph: Graph, inputs: Mapping, cotangents: Mapping, params, sizes, packing
) -> dict[str, torch.Tensor]:
    """float64 gradients of the definition by autograd, for every input in graph.gradients.

    cotangents: output -> incoming gradient. Only every sqrt(T)-th state is kept on the way.
    """
    return gradients_and_terms(graph, inputs, cotangents, params, sizes, packing)[0]


def gradients_and_terms(
    graph: Graph, inputs: Mapping, cotangents: Mapping, params, sizes, packing
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The gradients, and for every input that all tokens share the root of the sum of its terms' squares.

    Such a gradient is a sum over tokens, and its terms may cancel; their rounding errors add up like that root.
    """
    declared, leaves = dict(per_sequence_axes(graph.spec)), {}
    shared = [name for name in graph.gradients if "T" in sizes and not {"B", "N", "T"} & set(declared[name])]
    for name in graph.gradients:
        leaf = inputs[name].detach().double()
        if name in shared:
            leaf = leaf.expand(sizes["B"], sizes["T"], *leaf.shape).contiguous()
            declared[name] = ("B", "T", *declared[name])
        leaves[name] = leaf.requires_grad_()
    segment = max(1, math.isqrt(sizes.get("T", 1)))
    with torch.enable_grad():
        outputs = definition_outputs(graph, {**inputs, **leaves}, params, sizes, packing, segment, declared)
        pairs = [(outputs[name], d.double()) for name, d in cotangents.items() if outputs[name].requires_grad]
        found = torch.autograd.grad(
            [out for out, _ in pairs], list(leaves.values()), [d for _, d in pairs], allow_unused=True
        )
    gradients = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), found)
    }
    terms = {name: gradients[name].square().sum((0, 1)).sqrt() for name in shared}
    return gradients | {name: gradients[name].sum((0, 1)) for name in shared}, terms


def defaults(spec: PipelineSpec) -> dict[str, float]:
    return {name: float(entry.default.value) for name, entry in spec.inputs.items() if entry.default is not None}


def types_of(spec: PipelineSpec, definition: Definition) -> Types:
    """Raises DefinitionError."""
    optional = [name for name, entry in spec.inputs.items() if entry.optional]
    axes, params = tuple(spec.axes), tuple(spec.params)
    return typecheck(definition, per_sequence_axes(spec), axes, params, optional, tuple(defaults(spec)))


def definition_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """What does not fit in the definition: syntax, names, shapes, outputs that it does not give."""
    if spec.definition is None:
        return []
    try:
        definition = parsed(spec)
        types_of(spec, definition)
    except ChunkwiseError as error:
        return list(error.diagnostics)
    except DefinitionError as error:
        return [diagnostic(problem) for problem in error.problems]
    if definition.dense:
        return dense_errors(spec, definition)
    given = {each.target.id for each in definition.step} | set(definition.finals)
    return [
        Diagnostic(
            codes.DEFINITION,
            f"the definition never says what the output {name} is",
            output.mark,
            help=f"a line of step gives a value of each token ({name} = ...), final gives a state after the last one",
        )
        for name, output in spec.outputs.items()
        if name not in given
    ]


def output_axes_errors(graph: Graph) -> list[Diagnostic]:
    """Outputs whose axes are not those that a step gives them. graph: with everything present."""
    spec = graph.spec
    if spec.definition is None or spec.definition.dense:
        return []
    definition, declared = parsed(spec), per_sequence_axes(spec)
    types = types_of(spec, definition)
    known = {axis for axes in declared.values() for axis in axes}
    head, found = [axis for axis in HEADS if axis in known][:1], []
    for name, source in graph.outputs.items():
        if source is None:
            continue
        own = graph.values[source].axes
        if name in definition.finals:
            lanes, inner, line = own[:1], types.finals[name], definition.finals[name].line
        else:
            line = next(each.line for each in reversed(definition.step) if each.target.id == name)
            lanes, inner = (("B", "T") if "T" in known else own[:1]), types.values[name]
        right = (*lanes, *head, *inner)
        if [sized(spec, axis) for axis in own] != [sized(spec, axis) for axis in right]:
            message = f"the output {name} is [{words(own)}], and the definition gives [{words(right)}]"
            note = Note(f"{name} of the definition", line.where)
            found.append(Diagnostic(codes.DEFINITION, message, spec.outputs[name].mark, (note,)))
    return found


def sized(spec: PipelineSpec, axis: str | int) -> str:
    """An axis by its size where the file fixes it, else by its name."""
    return str(spec.axes[axis].value if axis in spec.axes else axis)


def words(axes) -> str:
    return " ".join(map(str, axes))


def dense_errors(spec: PipelineSpec, definition: Definition) -> list[Diagnostic]:
    """Outputs that no line gives, and tokens under an axis that only a step has."""
    given = {each.target.id for each in definition.dense}
    help = "a line of dense gives an output by its name: {} = ..."
    found = [
        Diagnostic(
            codes.DEFINITION, f"the definition never says what the output {name} is", each.mark, help=help.format(name)
        )
        for name, each in spec.outputs.items()
        if name not in given
    ]
    return found + [
        Diagnostic(
            codes.DEFINITION,
            f"{name} has the axis T, whose tokens a definition goes through one by one under step",
            each.shape_mark,
            help="name the tokens that dense lines join: Sq for queries, Sk for keys",
        )
        for name, each in spec.inputs.items()
        if "T" in each.shape
    ]


def term(axis: str) -> str | int:
    return int(axis) if axis.isdigit() else axis


def number_errors(graph: Graph, params: Mapping[str, float], sizes: Mapping[str, int]) -> list[Diagnostic]:
    """What in the definition has no value for these numbers; no tensor is needed to tell."""
    if graph.spec.definition is None:
        return []
    definition, declared = parsed(graph.spec), per_sequence_axes(graph.spec)
    try:
        if definition.dense:
            inputs = {
                name: torch.empty(shape(map(term, axes), sizes), device="meta") for name, axes in declared.items()
            }
            evaluate(definition, inputs, declared=declared, outputs={}, params=params, axes=sizes)
        else:
            lower(definition, Lowering(declared, {**sizes, **params}, {}, False), ())
    except DefinitionError as error:
        return [diagnostic(problem) for problem in error.problems]
    return []


def definition_outputs(
    graph: Graph,
    inputs: Mapping[str, torch.Tensor | None],
    params: Mapping[str, float],
    sizes,
    packing: Packing | None,
    segment: int | None = None,
    declared: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, torch.Tensor]:
    """The outputs of the definition in float64, on the inputs' device. segment: see definition.evaluate. declared:
    axes of the inputs, the file's unless given."""
    names = {name: graph.values[source].axes for name, source in graph.outputs.items() if source is not None}
    own = taken(graph.spec, inputs, sizes.get("N", 0))
    axes = {name: sizes[name] for name in graph.axis_names if name in sizes and name not in ("NT",)}
    try:
        outputs = evaluate(
            parsed(graph.spec),
            own,
            declared=declared or per_sequence_axes(graph.spec),
            outputs=names,
            params=params,
            lengths=packing.on_host() if packing else None,
            axes=axes,
            defaults=defaults(graph.spec),
            segment=segment,
        )
    except DefinitionError as error:
        raise ChunkwiseError(*map(diagnostic, error.problems)) from None
    return put_back(graph, inputs, outputs, sizes, packing)
