"""Which implementation runs a stage, and why."""

from ..graphs.graph import Node
from ..graphs.sizes import local_sizes
from ..planning.plan import offers
from ..stage_files.own_code import configurations
from .answer import Line
from .facts import Facts


def back_end(facts: Facts, node: Node) -> list[Line]:
    """The back end, then every launcher that was asked: refused, or taken with its configuration."""
    fact, name = f"back end of {node.id}", f"{node.id} ({node.stage.name})"
    lines = [Line(f"{node.id} runs on {reason(facts)}", node.mark, fact)]
    kernels = [launcher.name for launcher in node.stage.launchers]
    if not kernels:
        text = f"{name} has no kernel: its reference runs in PyTorch{autograd(node)}"
        return [*lines, Line(text, node.mark, fact)]
    if facts.backend == "reference":
        text = f"{name} runs its reference in PyTorch; its kernels ({', '.join(kernels)}) are not asked"
        return [*lines, Line(text, node.mark, fact)]
    tried = offers(node, local_sizes(node, facts.sizes), facts.device, facts.io)
    lines += [Line(offer(facts, node, launcher, refusal), node.mark, fact) for launcher, refusal in tried]
    if tried[-1][1] is not None:
        lines.append(Line(f"{name} has no kernel for these sizes, and a run refuses them", node.mark, fact))
    return lines


def reason(facts: Facts) -> str:
    if facts.asked != "auto":
        return f"{facts.backend}, as --backend asks"
    return f"{facts.backend}: auto is triton on a GPU and the reference without, and the device is {facts.device}"


def autograd(node: Node) -> str:
    return ", differentiated by autograd" if node.stage.is_vjp and node.stage.name.endswith("(autograd)") else ""


def offer(facts: Facts, node: Node, launcher, refusal: str | None) -> str:
    axes = local_sizes(node, facts.sizes)
    who = f"{node.id} ({node.stage.name}): its launcher {launcher.name}"
    if refusal is not None:
        return f"{who} refuses: {refusal}"
    first = configurations(node.stage, launcher, axes, facts.device, node.id)[0]
    config = " ".join(f"{name}={value}" for name, value in first.items())
    return f"{who} takes these sizes on {facts.device}, with {config}"


def fusion(facts: Facts, node: Node) -> list[Line]:
    """The planner's reason to join a node with others, or not to; without one it is as it is with no --fuse."""
    alone = "not fused: it is a step of its own unless --fuse names a stage that stands for it"
    text = f"{node.id} ({node.stage.name}) is {facts.fused.get(node.id, alone)}"
    return [Line(text, node.mark, f"fusion of {node.id}")]
