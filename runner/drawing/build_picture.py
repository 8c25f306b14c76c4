"""From a graph to a picture: which boxes, labels and arrows there are, and what they say."""

import math
from collections.abc import Mapping

from ...stages._laws import Law
from ..graphs.graph import Graph, Node, Term, Value
from ..loading.spec import StageSpec
from ..planning.dtypes import IO_DTYPES, name_of, port_dtype
from .picture import (
    ABSENT,
    INPUT,
    OPTIONAL,
    OUTPUT,
    PLAIN,
    STAGE,
    VALUE,
    Arrow,
    Picture,
    Place,
    StageBox,
    Tensor,
    TensorBox,
)
from .picture_text import bytes_text, docstring, duration, one_line, printable, source_line, tooltip


def build_picture(
    graph: Graph,
    sizes: Mapping[str, int] | None = None,
    times: Mapping[str, float] | None = None,
    io_dtype: str | None = None,
    backends: Mapping[str, str] | None = None,
) -> Picture:
    """What there is to draw.

    sizes: axis -> number, N and NT included where they are known. times: node id -> latency in ms.
    io_dtype: a key of dtypes.IO_DTYPES. backends: node id -> what runs it.
    """
    return Builder(graph, sizes or {}, times or {}, io_dtype, backends or {}).picture()


class Builder:
    """Collects boxes and arrows in the order of the graph."""

    def __init__(self, graph: Graph, sizes, times, io_dtype, backends):
        self.graph, self.sizes, self.times, self.io_dtype, self.backends = graph, sizes, times, io_dtype, backends
        self.tensors: list[TensorBox] = []
        self.stages: list[StageBox] = []
        self.arrows: list[Arrow] = []
        self.read = {name for node in graph.nodes.values() for name in node.inputs.values()}
        self.read |= set(graph.outputs.values())
        self.total = sum(times[name] for name in graph.nodes if name in times)

    def picture(self) -> Picture:
        self.add_inputs()
        for node in self.graph.nodes.values():
            self.add_stage(node)
            for port, name in node.outputs.items():
                self.add_value(node, port, name)
        self.add_skipped()
        self.add_absent_outputs()
        spec = self.graph.spec
        return Picture(
            spec.name,
            printable(spec.summary),
            self.facts(),
            tuple(self.tensors),
            tuple(self.stages),
            tuple(self.arrows),
        )

    def facts(self) -> tuple[str, ...]:
        known = [f"{axis}={self.sizes[axis]}" for axis in self.graph.axis_names if axis in self.sizes]
        sizes = [" ".join(known), self.io_dtype]
        measured = [
            f"sum of stages {duration(self.total)} (bar: share)" if self.times else "",
            "line width: log of bytes" if known else "",
        ]
        lines = (" · ".join(part for part in parts if part) for parts in (sizes, measured))
        return tuple(line for line in lines if line)

    # --- boxes

    def add_inputs(self) -> None:
        for name, value in self.graph.inputs.items():
            entry = self.graph.spec.inputs.get(name)
            state = PLAIN if entry is None or not entry.optional else OPTIONAL
            if name in self.graph.absent:
                state = ABSENT
            tensor = self.tensor(value)
            tip = tooltip(type_text(name, tensor), source_line(value.mark), printable(entry.doc) if entry else "")
            self.tensors.append(TensorBox(INPUT, name, tensor, state, "", tip))
            for node in self.graph.nodes.values():
                for port in self.ports_reading(node, name):
                    tail, head = (INPUT, name, None), (STAGE, node.id, port)
                    self.arrows.append(Arrow(tail, head, state, tensor.bytes, arrow_tip(name, head, tensor)))

    def ports_reading(self, node: Node, source: str) -> list[str]:
        """Ports of a node that read a value, or that the file binds to it while it is absent."""
        if source in self.graph.values:
            return [port for port, name in node.inputs.items() if name == source]
        entry = self.graph.spec.stages.get(node.id)
        return [edge.port for edge in entry.edges if edge.source == source] if entry else []

    def add_stage(self, node: Node) -> None:
        latency = self.times.get(node.id)
        share = latency / self.total if latency is not None and self.total > 0 else None
        title = f"{node.id}: {node.stage.name}"
        self.stages.append(
            StageBox(
                id=node.id,
                stage=node.stage.name,
                inputs={port: self.input_state(node, port) for port in node.inputs},
                outputs={port: PLAIN if name in self.read else ABSENT for port, name in node.outputs.items()},
                phase=node.phase,
                tip=tooltip(title, source_line(node.mark), docstring(node.stage.doc)),
                backend=one_line(self.backends.get(node.id, "")),
                latency_ms=latency,
                share=share,
                remarks=(f"in place of {', '.join(node.replaces)}",) if node.replaces else (),
            )
        )

    def input_state(self, node: Node, port: str) -> str:
        if node.inputs[port] is None:
            return ABSENT
        contract = node.stage.contract.inputs.get(port)
        return OPTIONAL if contract and contract.optional else PLAIN

    def add_value(self, node: Node, port: str, name: str) -> None:
        """The label of a produced value and its arrows; with an output as its only reader, the output says it."""
        value = self.graph.values[name]
        tensor = self.tensor(value)
        readers = [(STAGE, reader, reader_port) for reader, reader_port in self.graph.consumers(name)]
        outputs = [(OUTPUT, output, None) for output, source in self.graph.outputs.items() if source == name]
        tail, tip = (STAGE, node.id, port), tooltip(type_text(name, tensor), law_words(value.laws))
        merged = len(outputs) == 1 and not readers
        for _, output, _ in outputs:
            self.tensors.append(TensorBox(OUTPUT, output, tensor if merged else None, PLAIN, "", tip))
        if not merged and readers + outputs:
            self.tensors.append(TensorBox(VALUE, name, tensor, PLAIN, node.phase, tip))
            stem = (VALUE, name, None)
            self.arrows.append(Arrow(tail, stem, PLAIN, tensor.bytes, type_text(name, tensor)))
            tail = stem
        for head in readers + outputs:
            self.arrows.append(Arrow(tail, head, PLAIN, tensor.bytes, arrow_tip(name, head, tensor)))

    def add_skipped(self) -> None:
        """Stages of the file that are not in the graph, because an input that they require is absent. Not those whose
        work another one does."""
        replaced = {id for node in self.graph.nodes.values() for id in node.replaces}
        for entry in self.graph.spec.stages.values():
            if entry.id in self.graph.nodes or entry.id in replaced or self.computed_elsewhere(entry):
                continue
            tip = tooltip(f"{entry.id}: {entry.use}, skipped", source_line(entry.mark))
            self.stages.append(StageBox(entry.id, entry.use, {}, {}, "forward", tip, skipped=True))
            for source in dict.fromkeys(edge.source for edge in entry.edges):
                self.add_absent_arrow(source, (STAGE, entry.id, None))

    def computed_elsewhere(self, entry: StageSpec) -> bool:
        """Whether an expression of the file is there under the name of an equal one."""
        return entry.formula is not None and all(edge.source in self.graph.values for edge in entry.edges)

    def add_absent_outputs(self) -> None:
        for name, source in self.graph.outputs.items():
            if source is None:
                self.tensors.append(TensorBox(OUTPUT, name, None, ABSENT, "", f"{name} is absent"))
                self.add_absent_arrow(self.graph.spec.outputs[name].source, (OUTPUT, name, None))

    def add_absent_arrow(self, source: str, head: Place) -> None:
        node, _, port = source.partition(".")
        if not port:
            tail = (INPUT, source, None)
        elif any(box.kind == VALUE and box.name == source for box in self.tensors):
            tail = (VALUE, source, None)
        elif source in self.graph.values:
            tail = (STAGE, node, port)
        else:
            tail = (STAGE, node, None)
        self.arrows.append(Arrow(tail, head, ABSENT, None, f"{source}, absent"))

    # --- types

    def tensor(self, value: Value) -> Tensor:
        dims, size = None, None
        if any(axis in self.sizes for axis in value.axes):
            numbers = [self.number(axis) for axis in value.axes]
            dims = f"[{', '.join(map(str, numbers))}]"
            if all(isinstance(number, int) for number in numbers):
                size = math.prod(numbers) * self.element_size(value.dtype)
        laws = ", ".join(law.text for law in value.laws)
        return Tensor(" ".join(map(str, value.axes)), dims, self.dtype(value.dtype), value.unit, laws, size)

    def number(self, axis: Term) -> Term:
        return axis if isinstance(axis, int) else self.sizes.get(axis, axis)

    def dtype(self, port: str) -> str:
        return name_of(port_dtype(port, IO_DTYPES[self.io_dtype])) if self.io_dtype else port

    def element_size(self, port: str) -> int:
        """Bytes. While no IO dtype is chosen, bf16 stands in: only the width of a line depends on it."""
        return port_dtype(port, IO_DTYPES[self.io_dtype or "bf16"]).itemsize


def type_text(name: str, tensor: Tensor) -> str:
    """The whole type in a line of text."""
    size = bytes_text(tensor.bytes) if tensor.bytes is not None else None
    parts = [tensor.shape, tensor.dims, tensor.dtype, tensor.unit, tensor.laws, size]
    return f"{name}: " + ", ".join(part for part in parts if part)


def arrow_tip(name: str, head: Place, tensor: Tensor) -> str:
    target = f"{head[1]}.{head[2]}" if head[2] else head[1]
    return f"{name} -> {target}\n{type_text(name, tensor)}"


def law_words(laws: tuple[Law, ...]) -> str:
    return "\n".join(law.words for law in laws)
