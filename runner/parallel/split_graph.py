"""The rewrite: a graph whose scans are seeded with the state that the ranks before leave. See the package's docstring.

It works on the forward graph and on one with its backward pass, as the file has them or with stages fused. The scan and
its vjp keep their ids and values, so that tables, pictures and errors keep speaking of the file; what is new stands
around them, ``scan.segment`` and so on, by the scan's name in the file whoever does its work.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...stages import _laws
from ...stages._units import UNITS
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note
from ..graphs.build_graph import term
from ..graphs.graph import Graph, Node, Value
from ..rewriting.replace_part import in_order
from ..stage_files.stage_library import Stage
from .cut import Cut
from .exchange_stage import Ranks, exchange_stage
from .gather_graph import gather_graph, gathered_axes, gathering, place_numbers
from .gather_stage import Rows, rows_of_all
from .kept import keep_what_is_read

MAPS = {"map": "maps", "decay": "decays"}
"""An output of a segment stage that is its map -> the port that takes those of all ranks."""
PIECE = "cotangent/state/segment_start"
REVERSED = ("initial_state", "d_final_state", "d_initial_state")
"""The ports with a state of each sequence that a stage of a backward pass may have."""
FORWARD, REVERSE = "merge_segments", "merge_cotangents"
START = {"first": "_first_before", "count": "_count_before"}
END = {"last": "_last_after", "count": "_count_after"}
"""Params of the merging stages -> names that each call gives its numbers by (``numbers_of``)."""


NEXT, STATES, MAPS_TOO = "next", "states", "maps"


def reach_of(spans: int, ranks: int) -> str:
    """What is exchanged, by the most ranks that a sequence lies on. Three or more: the maps and states of all, for they
    pass through. Else states alone, and of more than two ranks only the next one wants one: 1 / (ranks - 1) of the
    bytes."""
    return MAPS_TOO if spans > 2 else STATES if ranks == 2 else NEXT


def sizes_of(graph: Graph, reach: str, ranks: int, lanes: int, rows: int) -> dict[str, int]:
    """The axes of what is exchanged: one rank's states come in, or those of all; or the rows of all, so many."""
    whole = {rows_of_all(axis): rows for axis in gathered_axes(graph)}
    return whole or {"RANKS": 1 if reach == NEXT else ranks, "LANES": lanes}


def numbers_of(reach: str, cut: Cut) -> dict[str, int]:
    """The numbers of one call: the ranks before, nearest last, and after, nearest first; the one next to this, if its
    states are all that comes in."""
    before, after = cut.before, cut.after
    if cut.rows:
        return place_numbers(cut.rows, len(before))
    first, last = (0, 0) if reach == NEXT else (before.start, after.stop - 1)
    return {"_first_before": first, "_count_before": len(before), "_last_after": last, "_count_after": len(after)}


def split_graph(graph: Graph, stages: Mapping[str, Stage], ranks: Ranks, reach: str, rows: Rows = None) -> Graph:
    """reach: what is exchanged (``reach_of``). rows: of each rank, where some stage needs those of all. Raises
    ChunkwiseError for a graph that cannot be cut."""
    if found := cut_errors(graph, stages):
        raise ChunkwiseError(*found)
    if gathering(graph):
        return gather_graph(graph, ranks, rows)
    split = Split(graph, stages, ranks, reach)
    for node in graph.nodes.values():
        split.add(node)
    return split.whole()


def cut_errors(graph: Graph, stages: Mapping[str, Stage]) -> list[Diagnostic]:
    """What stands against cutting sequences: a state that nothing says the map of; or there is no scan at all."""
    forward = [node for node in graph.nodes.values() if node.phase == "forward"]
    if gathering(graph):
        return [gather_error(node, axis) for axis in gathered_axes(graph) for node in forward if mixes(node, axis)]
    found = [chunk_error(value) for value in graph.inputs.values() if counts_by_chunk(value)]
    found += [state_error(node) for node in forward if holds_states(node) and not node.stage.segment]
    found += [error for node in forward if node.stage.segment for error in segment_errors(node, stages)]
    if not found and not any(node.stage.segment for node in forward):
        message = f"{graph.name} has no scan whose state could cross a cut, nor a stage that gathers rows"
        found.append(Diagnostic(codes.NOT_CUT, message, graph.spec.mark))
    return found


def mixes(node: Node, axis: str) -> bool:
    """Whether a stage that does not gather rows along an axis, or that holds states, makes something else of them."""
    contract = node.stage.contract
    reads, gives = (
        any(node.axes.get(each) == axis for port in ports.values() for each in port.axes)
        for ports in (contract.inputs, contract.outputs)
    )
    return node.stage.gathered is None and (reads and not gives or holds_states(node))


def gather_error(node: Node, axis: str) -> Diagnostic:
    message = (
        f"{node.id} ({node.stage.name}) reads rows along {axis}, and does not say that it needs those of all ranks"
    )
    help = f'a stage names the axis of what it needs whole in its file: GATHERED = "{axis}"'
    return Diagnostic(codes.NOT_CUT, message, node.mark, help=help)


def holds_states(node: Node) -> bool:
    """Whether a stage takes or gives something of each sequence."""
    return bool(node.stage.contract.mutated or state_ports(node))


def state_ports(node: Node) -> list[str]:
    contract = node.stage.contract
    ports = [*contract.inputs.items(), *contract.outputs.items()]
    return [name for name, port in ports if any(node.axes.get(axis, axis) == "N" for axis in port.axes)]


def against_cut(graph: Graph, node: Node) -> str | None:
    """Why a graph could not be cut with a stage in it that fusion would bring in; None where it could."""
    if any(mixes(node, axis) for axis in gathered_axes(graph)):
        return "it does not say that it needs the rows of all ranks"
    if node.stage.segment or {*state_ports(node)} <= {*(REVERSED if node.phase == "backward" else ())}:
        return None
    return "it does not say how its state crosses a cut"


def state_error(node: Node) -> Diagnostic:
    message = f"{node.id} ({node.stage.name}) holds a state of each sequence, and does not say how it crosses a cut"
    help = 'a scan names the stage that gives a piece\'s map in its file: SEGMENT = "..."'
    return Diagnostic(codes.NOT_CUT, message, node.mark, help=help)


def counts_by_chunk(value: Value) -> bool:
    """Whether it means something else where other chunks begin, as they do after a cut inside one."""
    return "chunk" in UNITS.get(value.unit, "") or bool({"C", "NT"} & {*value.axes})


def chunk_error(value: Value) -> Diagnostic:
    message = f"the input {value.name} is made chunk by chunk, and a cut may lie inside a chunk"
    return Diagnostic(codes.NOT_CUT, message, value.mark, help="let a stage of the pipeline make it from what has none")


def segment_errors(node: Node, stages: Mapping[str, Stage]) -> list[Diagnostic]:
    """A segment stage reads what its scan reads, and gives a state, and a map or a decay."""
    name, contract = node.stage.segment, node.stage.contract
    stage = stages.get(name)
    gives = set(stage.contract.outputs) if stage else set()
    fits = stage and stage.contract.inputs.keys() <= contract.inputs.keys() and "state" in gives and gives & {*MAPS}
    if fits and "initial_state" in contract.inputs and "final_state" in contract.outputs:
        return []
    why = "there is no such stage" if stage is None else "their ports do not go together"
    note = Note("the segment stage reads inputs of the scan and gives state, and map or decay")
    message = f"{node.stage.name} names {name} as its SEGMENT, and {why}"
    return [Diagnostic(codes.NOT_CUT, message, node.mark, (note,))]


class Split:
    """Copies a graph node by node, with what the cut needs around each scan and its vjp. file: the graph before stages
    were fused. scans: those in it. around: new node -> the scan or vjp there that it stands before."""

    def __init__(self, graph: Graph, stages: Mapping[str, Stage], ranks: Ranks, reach: str):
        self.graph, self.stages, self.ranks, self.reach = graph, stages, ranks, reach
        self.file = graph.file or graph
        self.scans = {id for id, node in self.file.nodes.items() if node.phase == "forward" and node.stage.segment}
        self.values, self.nodes = dict(graph.values), {}
        self.starts: dict[str, str] = {}
        self.around: dict[str, str] = {}
        self.passed: dict[str, dict[str, str]] = {}

    def scan_of(self, node: Node) -> str | None:
        """The scan whose work a node does, or part of its gradient."""
        ids = (id.removesuffix(".vjp").removesuffix(".rebuild") for id in (*node.replaces, node.id))
        return next((id for id in ids if id in self.scans), None)

    def add(self, node: Node) -> None:
        scan, ports = self.scan_of(node), node.stage.contract.inputs
        if scan and node.phase == "forward":
            self.enter(node, scan)
        if scan and "initial_state" in ports:
            node = replace(node, inputs={**node.inputs, "initial_state": self.starts[scan]})
        if scan and node.phase == "backward" and "d_final_state" in ports:
            end = self.enter_backward(node, scan)
            node = replace(node, inputs={**node.inputs, "d_final_state": end})
        self.nodes[node.id] = node

    def enter(self, node: Node, scan: str) -> None:
        """The state that a scan starts from: its own, and what the ranks before leave."""
        stage = self.stages[node.stage.segment]
        wanted = [port for port in stage.contract.outputs if port == "state" or self.reach == MAPS_TOO]
        inputs = {port: node.inputs[port] for port in stage.contract.inputs}
        segment = self.place(scan, "segment", stage, inputs, wanted, node, node.params)
        all_of = self.exchange(scan, segment.outputs, node, last=True)
        self.passed[scan] = {MAPS[port]: all_of[f"{port}s"] for port in MAPS if f"{port}s" in all_of}
        given = {**self.passed[scan], "states": all_of["states"], "initial_state": node.inputs["initial_state"]}
        merged = self.place(scan, "enter", self.stages[FORWARD], given, ["start"], node, START)
        self.starts[scan] = merged.outputs["start"]

    def enter_backward(self, node: Node, scan: str) -> str:
        """The cotangent of the state that a scan ends with: its own, and what the ranks after give back."""
        vjp, stage = f"{scan}.vjp", self.stages.get(node.stage.segment, node.stage)
        wanted = {"d_initial_state"}.union(*(launcher.always for launcher in stage.launchers))
        segment = self.place(vjp, "segment", stage, node.inputs, sorted(wanted), node, node.params)
        sent = {"cotangent": segment.outputs["d_initial_state"]}
        # what the node calls the gradient of an initial state is that of the piece alone
        self.values[sent["cotangent"]] = replace(self.values[sent["cotangent"]], unit=PIECE)
        all_of = self.exchange(vjp, sent, node, last=False)
        given = {**self.passed[scan], **all_of, "d_final_state": node.inputs["d_final_state"]}
        return self.place(vjp, "enter", self.stages[REVERSE], given, ["end"], node, END).outputs["end"]

    def exchange(self, scan: str, sent: Mapping[str, str], like: Node, last: bool) -> Mapping[str, str]:
        """What the ranks send, by port -> what has come in, by port."""
        near, values = self.reach == NEXT, {port: self.values[name] for port, name in sent.items()}
        role = "pass" if near else "gather"
        stage = exchange_stage(f"{scan}.{role}", values, self.ranks, last, near)
        return self.place(scan, role, stage, sent, list(stage.contract.outputs), like, {}).outputs

    def place(self, scan: str, role: str, stage: Stage, inputs: Mapping, wanted, like: Node, params: Mapping) -> Node:
        """A new node before a scan or its vjp, in the phase of another one, whose axes and place in the file it has."""
        id, contract, axes = f"{scan}.{role}", stage.contract, {a: like.axes.get(a, a) for a in stage.axis_names}
        outputs = {port: f"{id}.{port}" for port in wanted}
        inputs = {port: inputs.get(port) for port in contract.inputs}
        params = {name: value for name, value in params.items() if name in contract.params}
        node = Node(id, stage, inputs, outputs, axes, params, like.mark, phase=like.phase)
        for port, name in outputs.items():
            declared = contract.outputs[port]
            terms = tuple(axes.get(axis, term(axis)) for axis in declared.axes)
            laws = (_laws.parse(declared.where),) if declared.where else ()
            self.values[name] = Value(name, terms, declared.dtype, declared.unit, laws, id, port, like.mark)
        self.nodes[id], self.around[id] = node, scan
        return node

    def whole(self) -> Graph:
        nodes = in_order(self.nodes, self.values, self.places())
        return keep_what_is_read(replace(self.graph, values=self.values, nodes=nodes, file=self.file))

    def places(self) -> list[str]:
        """The nodes as they come where the edges leave it open: what stands around a scan where the file has the scan,
        whoever does its work. Ranks with other sizes may fuse other stages, and all exchange in the same order."""
        file, here = list(self.file.nodes), list(self.nodes)

        def place(id: str) -> tuple[int, int]:
            stands = (self.around.get(id), id, *self.nodes[id].replaces)
            return next(file.index(each) for each in stands if each in self.file.nodes), here.index(id)

        return sorted(here, key=place)
