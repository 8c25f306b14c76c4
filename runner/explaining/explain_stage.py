"""A stage entry: its edges, what they fix, what it gives, what runs for it."""

from ..backward.vjp_stage import gradient_spec
from ..graphs.graph import Node
from .answer import Answer, Line
from .chain import Chain, details
from .explain_value import fits
from .facts import Facts
from .machine import back_end, fusion
from .uses import kept, readers


def explain_stage(facts: Facts, id: str) -> Answer:
    node = facts.graph.nodes[id]
    values = [facts.graph.values[name] for name in node.outputs.values()]
    sections = {
        "inference": inference(facts, node),
        "read by": [line for value in values for line in readers(facts, value.name)],
        "backward": [*(line for value in values for line in kept(facts, value)), *gradient(node)],
        "back end": back_end(facts, node),
        "fusion": fusion(facts, node),
    }
    return Answer(id, "a stage entry", f"{node.stage.name} in the {node.phase} pass", sections)


def inference(facts: Facts, node: Node) -> list[Line]:
    """Every edge with what it fixes, then the axes and units of the entry, then its outputs."""
    chain = Chain(facts)
    for name in node.outputs.values():
        chain.want(name)
        chain.want_unit(name)
    edges = [
        line
        for port, name in node.inputs.items()
        for line in (fits(facts, node.id, port)[:1] if name else [absent(node, port)])
    ]
    types = [line for name in node.outputs.values() for line in details(facts, facts.graph.values[name])]
    return [*edges, *chain.lines(), *types]


def absent(node: Node, port: str) -> Line:
    return Line(f"{node.id}.{port} is bound to nothing: it is optional", node.mark, f"{node.id}.{port}")


def gradient(node: Node) -> list[Line]:
    """Where the gradient of a forward stage comes from."""
    if node.phase != "forward":
        return []
    stage, fact = node.stage, f"gradient of {node.id}"
    if stage.vjp is None:
        text = f"the gradient of {node.id} ({stage.name}) is autograd through its reference"
    elif stage.vjp_stages:
        uses = ", ".join(entry.use for entry in gradient_spec(stage).stages.values())
        text = f"the gradient of {node.id} ({stage.name}) is made by {uses}"
    else:
        kernels = ", ".join(launcher.name for launcher in stage.vjp_launchers) or "none"
        text = f"the gradient of {node.id} ({stage.name}) is the vjp in its file, kernels: {kernels}"
    return [Line(text, node.mark, fact)]
