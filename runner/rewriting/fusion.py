"""Parts of the chunked form that one kernel can do, where the call's sizes allow it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph, Node
from ..graphs.sizes import local_sizes
from ..graphs.wire import did_you_mean
from ..planning.plan import device_class, offers
from ..stage_files.stage_library import Stage
from .apply import with_gradients_replaced, with_replaced
from .gradient_pattern import gradient_uses

NONE, AUTO = "none", "auto"


def fusions(fuse: str, stages: Mapping[str, Stage], device: torch.device, io: torch.dtype | None = None) -> list[Stage]:
    """The stages that ``none``, ``auto`` or ``NAME,...`` allows to stand for others; auto: those that were timed faster
    than what they stand for on this class of device. That was in 16 bits: none of them for a wider io."""
    able = check_fuse(fuse, stages)
    if fuse in (NONE, AUTO):
        auto = fuse == AUTO and (io is None or io.itemsize <= 2)
        return [stage for stage in able.values() if auto and device_class(device) in stage.faster_on]
    return [able[name] for name in fuse.split(",")]


def check_fuse(fuse: str, stages: Mapping[str, Stage]) -> dict[str, Stage]:
    """The stages that can stand for others, by name; raises ChunkwiseError where one is named that cannot."""
    able = {name: stage for name, stage in stages.items() if stage.fuses}
    if not isinstance(fuse, str):
        message = f"fuse is a text, not a {type(fuse).__name__}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f'fuse="none", "auto" or "{",".join(able)}"'))
    for name in fuse.split(",") if fuse not in (NONE, AUTO) else ():
        if name not in able:
            message, help = f"{name} stands for no other stages", f"fusions are none, auto, {', '.join(able)}"
            if name not in stages:
                message = f"there is no fusion {name}" if name else f"one of the fusions in {fuse!r} has no name"
                help = did_you_mean(name, able) or help
            if name in (NONE, AUTO):
                message, help = f"{name} is among other fusions", f"{NONE} and {AUTO} stand alone"
            raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))
    return able


def fused_graph(
    graph: Graph,
    allowed: list[Stage],
    stages: Mapping[str, Stage],
    sizes: Mapping[str, int],
    device: torch.device,
    io: torch.dtype | None = None,
    against: Callable[[Node], str | None] = lambda node: None,
    named: bool = False,
) -> Graph:
    """The graph with parts of each phase replaced, the last phase first: what is rebuilt, and whether it can be rebuilt
    in one kernel, is what the backward pass reads. What was refused, and why, is among its notes. against: what stands
    against a node beside its sizes. named: somebody asked for each of the allowed, and is told where one has no
    place."""
    refused: list[str] = []
    tried: set[str] = set()

    def takes(node: Node) -> bool:
        tried.add(node.stage.name)
        why = against(node) or refusal(node, sizes, device, io)
        if why:
            refused.append(f"{node.id}: {node.stage.name} not in place of {', '.join(node.replaces)}: {why}")
        return not why

    found = in_all_phases(graph, allowed, stages, takes)
    if named:
        refused += [no_place(stage, graph) for stage in allowed if not tried & {stage.name, *gradient_uses(stage)}]
    return replace(found, notes=(*graph.notes, *dict.fromkeys(refused))) if refused else found


def in_all_phases(
    graph: Graph, allowed: list[Stage], stages: Mapping[str, Stage], takes: Callable[[Node], bool]
) -> Graph:
    found = with_gradients_replaced(graph, [stage for stage in allowed if stage.gradient_of], stages, takes)
    for phase in ("rebuild", "forward"):
        found = with_replaced(found, [stage for stage in allowed if stage.pattern], stages, takes, phase)
    if not found.kept:
        return found
    # what only the stages replaced have read is not made any more
    return replace(found, kept=tuple(name for name in found.kept if name in found.read_later))


def as_ran(graph: Graph, stages: Mapping[str, Stage], uses: Mapping[str, str]) -> Graph:
    """The graph with those parts replaced that a run elsewhere says it had. uses: node id -> the stage that ran."""
    allowed = [stage for stage in stages.values() if stage.fuses]
    return in_all_phases(graph, allowed, stages, lambda node: uses.get(node.id) == node.stage.name)


def no_place(stage: Stage, graph: Graph) -> str:
    """What is said of a fusion that was asked for, and that nothing here is."""
    if stage.gradient_of and not graph.cotangents:
        return f"{stage.name} not used: it stands for gradients, and none are asked for"
    if by_token := [node.stage.name for node in graph.nodes.values() if node.stage.pattern and not node.stage.fuses]:
        return f"{stage.name} not used: {', '.join(by_token)} goes token by token here; mode chunk runs other stages"
    return f"{stage.name} not used: no part of {graph.name}, by itself, is what it stands for"


def refusal(node: Node, sizes: Mapping[str, int], device: torch.device, io: torch.dtype | None) -> str | None:
    """Why no launcher takes this dtype and these sizes; None where one does."""
    reasons = [why for _, why in offers(node, local_sizes(node, sizes), device_class(device), io)]
    return None if None in reasons else "; ".join(dict.fromkeys(reasons))
