"""The reverse walk: from a forward graph to one graph with its rebuild and backward phases.

Each node that lies between a wanted input and an output with a cotangent gives one ``X.vjp`` node. Where a value
fans out, the contributions meet in a sum node: added in float32, rounded once. What the vjps read of the forward
pass is kept, or, where its stage says ``recompute``, rebuilt by a copy of that stage in the rebuild phase.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from ...stages import _gradient_sum
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note
from ..graphs.graph import Graph, Node, Term, Value
from ..stage_files.stage_library import SHIPPED, Stage
from .vjp_stage import cotangent_dtype, vjp_stage


def derive(
    graph: Graph, wanted: Collection[str], cotangents: Collection[str], recompute: Collection[str] | None = None
) -> Graph:
    """The graph with its backward pass.

    wanted: inputs whose gradients are asked for. cotangents: outputs that a gradient flows into.
    recompute: ids of the stages to rebuild; None takes the file's ``recompute`` marks.
    A wanted input that no cotangent reaches has no entry in ``gradients``, an output that depends on no wanted input
    none in ``cotangents``. Raises ChunkwiseError where a gradient
    would have to pass a port that a stage's vjp does not cover.
    """
    if graph.mutated:
        raise ChunkwiseError(no_gradients(graph))
    walk = Walk(graph, wanted, cotangents)
    for node in reversed(list(graph.nodes.values())):
        walk.visit(node)
    totals = {name: walk.total(name, graph.values[name].dtype) for name in wanted if name in graph.values}
    if walk.found:
        raise ChunkwiseError(*walk.found)
    marked = {node.id for node in graph.nodes.values() if node.recompute} if recompute is None else set(recompute)
    rebuilt, renamed, kept = rebuild(graph, walk, marked)
    backward = [
        replace(node, inputs={port: renamed.get(v, v) for port, v in node.inputs.items()}) for node in walk.nodes
    ]
    values = {**graph.values, **walk.values}
    values |= {
        new: replace(graph.values[old], name=new, producer=f"{graph.values[old].producer}.rebuild")
        for old, new in renamed.items()
    }
    return Graph(
        spec=graph.spec,
        absent=graph.absent,
        inputs=graph.inputs,
        values=values,
        nodes={node.id: node for node in (*graph.nodes.values(), *rebuilt, *backward)},
        outputs=graph.outputs,
        cotangents={name: f"d({name})" for name in cotangents if graph.outputs.get(name) in walk.active},
        gradients={name: total for name, total in totals.items() if total is not None},
        kept=tuple(kept),
    )


def no_gradients(graph: Graph) -> Diagnostic:
    over = next(iter(graph.mutated.values()))
    message = f"{graph.name} writes over {over}, so it has no gradients"
    help = "train with the pipeline of the chunked form, or call under torch.no_grad()"
    return Diagnostic(codes.NO_GRADIENT, message, graph.inputs[over].mark, help=help)


def active_values(graph: Graph, wanted: Collection[str]) -> set[str]:
    """Values through which a gradient flows back to a wanted input."""
    active = {name for name in wanted if name in graph.values}
    for node in graph.nodes.values():
        gives = vjp_stage(node.stage).contract.outputs
        if any(name in active and f"d_{port}" in gives for port, name in node.inputs.items()):
            active |= {name for name in node.outputs.values() if graph.values[name].dtype != "int"}
    return active


class Walk:
    """Visits the nodes from the last to the first and collects what flows into each value."""

    def __init__(self, graph: Graph, wanted: Collection[str], cotangents: Collection[str]):
        self.graph, self.active = graph, active_values(graph, wanted)
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.incoming: dict[str, list[str]] = {}
        self.found: list[Diagnostic] = []
        for output in cotangents:
            source = graph.outputs.get(output)
            if source is not None:
                value = graph.values[source]
                self.values[f"d({output})"] = cotangent_value(value, f"d({output})", None, output)
                self.incoming.setdefault(source, []).append(f"d({output})")

    def visit(self, node: Node) -> None:
        flowing = [name for name in node.outputs.values() if self.incoming.get(name)]
        stage = vjp_stage(node.stage)
        through = {
            port: name
            for port, name in node.inputs.items()
            if name in self.active and f"d_{port}" in stage.contract.outputs
        }
        if not flowing:
            return
        self.found += blocked(node, stage, self.active, self.graph)
        if not through:
            return
        id = f"{node.id}.vjp"
        inputs = {port: self.read(node, port) for port in stage.contract.inputs}
        outputs = {}
        for port, name in through.items():
            outputs[f"d_{port}"] = new = f"{id}.d_{port}"
            self.values[new] = cotangent_value(self.graph.values[name], new, id, f"d_{port}", stage)
            self.incoming.setdefault(name, []).append(new)
        self.nodes.append(
            replace(node, id=id, stage=stage, inputs=inputs, outputs=outputs, phase="backward", recompute=False)
        )

    def read(self, node: Node, port: str) -> str | None:
        """What a vjp's input port is fed with: a cotangent, or a value of the forward pass."""
        if port in node.inputs:
            return node.inputs[port]
        if port in node.outputs:
            return node.outputs[port]
        name = node.outputs[port.removeprefix("d_")]
        return self.total(name, cotangent_dtype(self.graph.values[name].dtype, self.graph.values[name].axes))

    def total(self, name: str, dtype: str) -> str | None:
        """The gradient of a value: its one contribution, or a sum node over all; None when nothing flows in."""
        parts = self.incoming.get(name)
        if not parts:
            return None
        if len(parts) == 1 and self.values[parts[0]].dtype == dtype:
            return parts[0]
        while len(parts) > _gradient_sum.MOST:
            first, parts = parts[: _gradient_sum.MOST], parts[_gradient_sum.MOST :]
            parts.insert(0, self.add_sum(f"d({name})/{len(parts)}", name, first, "f32"))
        return self.add_sum(f"d({name})", name, parts, dtype)

    def add_sum(self, id: str, name: str, parts: list[str], dtype: str) -> str:
        value = self.graph.values[name]
        doc = f"Sum of the {len(parts)} contributions to the gradient of {name}."
        stage = sum_stage(value.axes, [self.values[part].dtype for part in parts], dtype, doc)
        axes = {axis: axis for axis in value.axes if isinstance(axis, str)}
        inputs = {f"x{i}": part for i, part in enumerate(parts)}
        self.values[f"{id}.y"] = replace(cotangent_value(value, f"{id}.y", id, "y"), dtype=dtype)
        self.nodes.append(Node(id, stage, inputs, {"y": f"{id}.y"}, axes, {}, value.mark, phase="backward"))
        return f"{id}.y"


def sum_stage(axes: Sequence[Term], parts: list[str], dtype: str, doc: str) -> Stage:
    """The stage that adds up tensors of these dtypes, in float32, and rounds once."""
    contract = _gradient_sum.contract(" ".join(map(str, axes)), parts, dtype)
    file = str(SHIPPED / "_gradient_sum.py")
    return Stage("gradient_sum", file, doc, contract, _gradient_sum.reference, _gradient_sum.LAUNCHERS)


def blocked(node: Node, stage: Stage, active: set[str], graph: Graph) -> list[Diagnostic]:
    """Errors for gradients that would have to leave a node at a port that its vjp says nothing of."""
    return [
        Diagnostic(
            codes.NO_GRADIENT,
            f"{node.stage.name} has no gradient for its input {port}, and {name} needs one",
            node.mark,
            (Note(f"{name} comes from here", graph.values[name].mark),),
            f"detach {name}, or write that gradient in the stage's vjp",
        )
        for port, name in node.inputs.items()
        if name in active and f"d_{port}" not in stage.contract.outputs
    ]


def cotangent_value(value: Value, name: str, producer: str | None, port: str, stage: Stage | None = None) -> Value:
    """The type of a gradient: the value's axes; float32 where its sum is long."""
    dtype = stage.contract.outputs[port].dtype if stage else cotangent_dtype(value.dtype, value.axes)
    unit = f"cotangent/{value.unit}" if value.unit else None
    return Value(name, value.axes, dtype, unit, (), producer, port, value.mark)


def rebuild(graph: Graph, walk: Walk, marked: set[str]) -> tuple[list[Node], dict[str, str], list[str]]:
    """(rebuild nodes in order, forward value -> its rebuilt name, forward values kept)."""
    needed = {v for node in walk.nodes for v in node.inputs.values() if v in graph.values and graph.values[v].producer}
    nodes, renamed, kept = [], {}, set()
    for node in reversed(list(graph.nodes.values())):
        mine = needed & set(node.outputs.values())
        if mine and node.id in marked:
            nodes.append((node, mine))
            renamed |= {name: f"{node.id}.rebuild.{port}" for port, name in node.outputs.items() if name in mine}
            needed |= {v for v in node.inputs.values() if v and graph.values[v].producer}
        else:
            kept |= mine
    copies = [
        replace(
            node,
            id=f"{node.id}.rebuild",
            inputs={port: renamed.get(v, v) for port, v in node.inputs.items()},
            outputs={port: renamed[v] for port, v in node.outputs.items() if v in mine},
            phase="rebuild",
            recompute=False,
        )
        for node, mine in reversed(nodes)
    ]
    return copies, renamed, [name for name in graph.values if name in kept]


def may_be_kept(graph: Graph) -> list[str]:
    """Forward values that some backward pass of the graph keeps, whichever gradients and outputs it is for."""
    needed, kept = set(), set()
    for node in reversed(graph.nodes.values()):
        ports = vjp_stage(node.stage).contract.inputs
        needed |= {node.inputs.get(port) or node.outputs.get(port) for port in ports}
        mine = needed & set(node.outputs.values())
        if node.recompute:
            needed |= set(node.inputs.values()) if mine else set()
        else:
            kept |= mine
    return [name for name in graph.values if name in kept]
