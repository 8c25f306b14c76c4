"""The rewrite for stages that read the rows of all ranks, as attention reads all keys and values.

    forward    attend.gather       keys and values of all ranks, on all ranks
               mask, attend        as before, over those; a query's place among all rows is counted from this rank's
    backward   attend.vjp.dkdv     as before: of this rank's queries, the gradients of all keys and values
               attend.vjp.dkdv.scatter  added over the ranks in float32, each rank its own rows
               attend.vjp.dq       as before, over the keys and values of all ranks

A stage says so by ``GATHERED = "Sk"`` in its file: the axis, among its inputs', along which it needs all rows. What it
calls before and after are the rows of the ranks before and after this one.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...stages._contract import F32
from ..graphs.graph import Graph, Node, Value
from .cut import PLACE
from .exchange_stage import Ranks
from .gather_stage import Rows, rows_of_all, rows_stage
from .kept import keep_what_is_read


def place_numbers(rows: tuple[int, ...], rank: int) -> dict[str, int]:
    return {"_rows_before": sum(rows[:rank]), "_rows_after": sum(rows[rank + 1 :])}


def gathering(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes.values() if node.phase == "forward" and node.stage.gathered]


def gathered_axes(graph: Graph) -> tuple[str, ...]:
    """The pipeline's axes along which some stage needs the rows of all ranks."""
    return tuple(dict.fromkeys(str(node.axes[node.stage.gathered]) for node in gathering(graph)))


def gather_graph(graph: Graph, ranks: Ranks, rows: Rows) -> Graph:
    gather = Gather(graph, ranks, rows)
    for node in graph.nodes.values():
        gather.add(node)
    return gather.whole()


class Gather:
    """Copies a graph node by node. whole_of: value -> the one with the rows of all ranks. renamed: a gradient that was
    of all rows -> that of the rows here."""

    def __init__(self, graph: Graph, ranks: Ranks, rows: Rows):
        self.graph, self.ranks, self.rows = graph, ranks, rows
        self.values, self.nodes = dict(graph.values), {}
        self.whole_of: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self.readers = {node.id: node for node in gathering(graph)}

    def add(self, node: Node) -> None:
        node = replace(node, inputs={port: self.renamed.get(name, name) for port, name in node.inputs.items()})
        reader = self.readers.get(node.id.partition(".vjp")[0].removesuffix(".rebuild"))
        if reader is None:
            self.nodes[node.id] = node
            return
        if node.phase == "forward":
            self.gather(reader)
        ports = [port for port in gathered_ports(reader) if port in node.inputs]
        # a rebuilt value is gathered no second time: the rows of all ranks are kept
        inputs = {**node.inputs, **{port: self.whole_of[reader.inputs[port]] for port in ports}}
        axis = str(reader.axes[reader.stage.gathered])
        axes = {**node.axes, reader.stage.gathered: rows_of_all(axis)}
        params = {**node.params, **{name: PLACE[name] for name in PLACE if name in node.stage.contract.params}}
        node = replace(node, inputs=inputs, axes=axes, params=params)
        if node.phase == "backward":
            self.scatter(node, [f"d_{port}" for port in ports if f"d_{port}" in node.outputs], axis)
        else:
            self.nodes[node.id] = node

    def gather(self, node: Node) -> None:
        """The rows of all ranks of what a node reads and, in the same stage, of what later ones read and is there."""
        wanted: dict[str, Value] = {}
        last, axis = node, str(node.axes[node.stage.gathered])
        for reader in self.readers.values():
            for port in gathered_ports(reader):
                value = self.values[reader.inputs[port]]
                there = value.producer is None or value.producer in self.nodes
                if there and value.name not in self.whole_of and value not in wanted.values():
                    wanted[port if port not in wanted else f"{reader.id}_{port}"], last = value, reader
        if wanted:
            made = self.place(f"{last.id}.gather", wanted, {p: x.name for p, x in wanted.items()}, axis, last, False)
            self.whole_of |= {value.name: made[f"{port}s"] for port, value in wanted.items()}

    def scatter(self, vjp: Node, ports: list[str], axis: str) -> None:
        """A vjp, or a stage of one, that gives gradients of all rows, in float32, and their sum over the ranks."""
        shares = {port: self.values.pop(vjp.outputs[port]) for port in ports}
        sent = {f"{port}s": f"{vjp.id}.{port}s" for port in ports}
        for port, value in shares.items():
            axes = tuple(rows_of_all(axis) if each == axis else each for each in value.axes)
            name = sent[f"{port}s"]
            self.values[name] = replace(value, name=name, axes=axes, dtype=F32)
        contract = vjp.stage.contract
        precise = {port: replace(contract.outputs[port], dtype=F32) for port in ports}
        stage = replace(vjp.stage, contract=replace(contract, outputs={**contract.outputs, **precise}))
        outputs = {**vjp.outputs, **{port: sent[f"{port}s"] for port in ports}}
        self.nodes[vjp.id] = replace(vjp, stage=stage, outputs=outputs)
        if ports:
            here = self.place(f"{vjp.id}.scatter", shares, sent, axis, vjp, True)
            self.renamed |= {shares[port].name: here[port] for port in ports}

    def place(self, id: str, values: Mapping[str, Value], inputs, axis: str, like: Node, scatter: bool):
        """A stage of communication in the phase of another; values: by port, with the rows of this rank. Its outputs by
        port."""
        stage = rows_stage(id, values, axis, self.ranks, self.rows, scatter)
        outputs = {port: f"{id}.{port}" for port in stage.contract.outputs}
        axes = {name: name for name in stage.axis_names}
        for port, value in zip(outputs, values.values()):
            shape = tuple(int(each) if each.isdigit() else each for each in stage.contract.outputs[port].axes)
            self.values[outputs[port]] = replace(value, name=outputs[port], axes=shape, producer=id, port=port)
        self.nodes[id] = Node(id, stage, inputs, outputs, axes, {}, like.mark, phase=like.phase)
        return outputs

    def whole(self) -> Graph:
        gradients = {name: self.renamed.get(value, value) for name, value in self.graph.gradients.items()}
        graph = replace(self.graph, values=self.values, nodes=self.nodes, gradients=gradients, file=self.graph)
        return keep_what_is_read(graph)


def gathered_ports(node: Node) -> list[str]:
    """The ports of a forward node whose rows it needs of all ranks."""
    ports = node.stage.contract.inputs
    return [port for port in ports if node.stage.gathered in ports[port].axes and node.inputs.get(port)]
