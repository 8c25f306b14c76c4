"""What cutting sequences over many ranks would cost: the split graph's own stages, on a machine given in numbers.

A stage takes what its arithmetic or its memory traffic needs, whichever is longer, times a factor: 1 on paper, or what
a measured report of one device says that this stage takes beside that. A stage of communication takes the bytes that
come in from the other ranks over the link, and one latency. Merging is serial in the ranks, one map after the other.
The slowest rank counts, and nothing overlaps. Stages are fused as the op says, auto as on the machine's device. A
segment counts in full, though gates that forget leave little of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ...stages._contract import HELD
from ..calling.function import Op
from ..graphs.flops import flops
from ..graphs.graph import Graph
from ..graphs.sizes import complete
from ..planning.plan import Plan, Step, absent_gpu, make_plan
from ..reporting.timing import moved_bytes
from ..rewriting.fusion import AUTO, NONE, check_fuse
from .cut import ROWS, tokens_of
from .exchange_stage import ranks_on_paper
from .gather_graph import gathering
from .split_graph import reach_of, sizes_of
from .split_op import SplitOp

MERGES = ("merge_segments", "merge_cotangents")


@dataclass(frozen=True)
class Machine:
    """tflops: peak of one device. gbps: its memory. link_gbps: what a rank takes in over its link. link_us: what a
    collective takes whatever its size. device: its class, by which stages are fused."""

    tflops: float = 989
    gbps: float = 4800
    link_gbps: float = 450
    link_us: float = 20
    device: str = "sm_90"


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one call on some ranks, the slowest of them. rows: tokens of a rank. bytes: what comes in from
    the other ranks. depth: maps that are applied one after the other. notes: of the plans, on what was fused."""

    ranks: int
    rows: int
    compute_ms: float
    link_ms: float
    merge_ms: float
    bytes: int
    depth: int
    notes: tuple[str, ...] = ()

    @property
    def total_ms(self) -> float:
        return self.compute_ms + self.link_ms + self.merge_ms


def cost(
    op: Op, sizes: Mapping[str, int], io: torch.dtype, ranks: int, machine: Machine, backward: bool, factors: Mapping
) -> Cost:
    """sizes: of the inputs' axes, T of all ranks together. factors: stage id -> how much longer than on paper."""
    rows = -(-tokens_of(sizes) // ranks)
    here = complete(op.whole, {**sizes, **{axis: rows for axis in ROWS if axis in sizes}})
    here |= sizes_of(op.whole, reach_of(ranks, ranks), ranks, here.get("N", 0), rows * ranks)
    times = {"compute": 0.0, "link": 0.0, "merge": 0.0}
    sent, made = 0, plans(op, here, io, ranks, backward, machine.device)
    for plan in made:
        for step in plan.steps:
            kind = kind_of(step)
            moved = moved_bytes(plan, step)
            if kind == "link":
                sent += moved
                times[kind] += moved / machine.link_gbps / 1e6 + machine.link_us / 1e3
            else:
                times[kind] += on_paper(plan, step, machine) * factor(step.node.id, factors)
    merged = (1 + backward) * (ranks - 1) if ranks > 2 and not gathering(op.whole) else 0
    notes = tuple(dict.fromkeys(note for plan in made for note in plan.notes))
    return Cost(ranks, rows, times["compute"], times["link"], times["merge"], sent, merged, notes)


def kind_of(step: Step) -> str:
    if step.node.stage.transport:
        return "link"
    return "merge" if step.node.stage.name in MERGES else "compute"


def on_paper(plan: Plan, step: Step, machine: Machine) -> float:
    """Milliseconds by arithmetic or by traffic."""
    return max(flops(step.node, plan.sizes) / machine.tflops / 1e9, moved_bytes(plan, step) / machine.gbps / 1e6)


def factor(id: str, factors: Mapping[str, float]) -> float:
    """A stage's own; of one that the cut brings in, its scan's: scan.segment takes what scan takes."""
    return factors.get(id, factors.get(id.rpartition(".")[0], 1.0))


def factors_of(op: Op, report: Mapping, machine: Machine, io: torch.dtype) -> dict[str, float]:
    """How much longer than on paper each stage of a report of ``run`` took, at the report's own sizes; what a stage
    stands for takes as much longer. op: as ``as_reported`` gives it."""
    measured = {stage["id"]: stage["latency_ms"] for stage in report["stages"]}
    backward = any(stage["phase"] == "backward" for stage in report["stages"])
    found: dict[str, float] = {}
    for plan in plans(op, dict(report["axes"]), io, 1, backward, machine.device):
        for step in plan.steps:
            if step.node.id in measured:
                longer = measured[step.node.id] / on_paper(plan, step, machine)
                found = dict.fromkeys(step.node.replaces, longer) | found | {step.node.id: longer}
    return found


def as_reported(op: Op, report: Mapping) -> Op:
    """The op with the fusions that a report of ``run`` has."""
    used = {stage["stage"] for stage in report["stages"]}
    fused = [name for name in check_fuse(AUTO, op.stages) if name in used]
    return op.with_fusions(",".join(fused) or NONE)


def device_of(report: Mapping) -> str:
    """The class of the device that a report of ``run`` was made on."""
    capability = report["environment"].get("compute_capability")
    return f"sm_{capability.replace('.', '')}" if capability else "cpu"


def plans(op: Op, sizes: Mapping[str, int], io: torch.dtype, ranks: int, backward: bool, device: str) -> list[Plan]:
    """The forward plan of one rank, and the backward plan, over the references: nothing runs."""
    absent = frozenset(name for name, entry in op.spec.inputs.items() if entry.optional and "N" in entry.shape)
    view = op if ranks == 1 else SplitOp(op, ranks_on_paper(ranks), reach_of(ranks, ranks))
    with absent_gpu(device):
        graph = view.fused(graph_of(view, op, absent, backward), sizes, torch.device("cuda"), io)
    wanted = {name: value for name, value in graph.outputs.items() if value}
    given = (*graph.kept, *graph.cotangents.values())
    cpu, kept = torch.device("cpu"), {name: name for name in graph.kept}
    forward = make_plan(graph, sizes, io, "reference", cpu, {**wanted, **kept})
    return [forward, make_plan(graph, sizes, io, "reference", cpu, graph.gradients, given)] if backward else [forward]


def graph_of(view: Op | SplitOp, op: Op, absent: frozenset[str], backward: bool) -> Graph:
    if not backward:
        return view.graph(absent)
    present = [name for name, value in op.whole.inputs.items() if name not in absent and value.dtype not in HELD]
    able = frozenset(name for name in present if op.has_gradient(name, absent))
    return view.joint_graph(absent, able, frozenset(op.whole.outputs))
