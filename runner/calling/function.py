"""A pipeline as a Python function: ``op = load("gated_delta"); out = op(q=..., k=..., ...)``."""

import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ...stages._seqs import Seqs
from ..backward import derive
from ..backward.keep import choose_recompute
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.hints import nearest
from ..graphs.build_graph import build_graph, check_graphs
from ..graphs.graph import Graph, Value
from ..graphs.sizes import complete, parameters
from ..graphs.wire import did_you_mean
from ..loading.load_spec import read_spec
from ..loading.pipelines import find_pipeline
from ..loading.variants import until, with_axes, with_given
from ..planning.dtypes import IO_DTYPES, name_of, port_dtype
from ..planning.execute import execute, readable
from ..planning.plan import Plan, make_plan, resolve_backend
from ..planning.sequences import Packing, read_packing, seqs_of
from ..stage_files.stage_library import find_stages
from .autograd import differentiable, needs_autograd
from .library_op import library_op


class LeastRecent:
    """A thread-safe cache that forgets what was not used for longest."""

    def __init__(self, limit: int):
        self.limit, self.items, self.lock = limit, OrderedDict(), threading.Lock()

    def get(self, key, make: Callable):
        with self.lock:
            if key in self.items:
                self.items.move_to_end(key)
                return self.items[key]
        value = make()
        with self.lock:
            self.items[key] = value
            while len(self.items) > self.limit:
                self.items.popitem(last=False)
        return value


def load(
    pipeline: str | Path, *, backend: str = "auto", stages: Sequence[str | Path] = (), memory_budget: int | None = None
) -> "Op":
    """The op that a pipeline file describes.

    pipeline: a name or file name in ``pipelines/``, or a path. backend: auto (triton on a GPU, reference
    without), triton, reference or interpret. stages: folders with stages of your own. memory_budget: bytes that
    a call may keep for its backward pass, in place of the file's ``recompute`` marks; under torch.compile, where sizes
    have no numbers, any budget means that everything is rebuilt.
    Raises ChunkwiseError, with every error of the file.
    """
    if torch.compiler.is_dynamo_compiling():
        raise RuntimeError("error[CW601]: load inside compiled code: load the op before, and call it inside")
    return Op(read_spec(find_pipeline(pipeline)), find_stages(stages), backend, memory_budget)


class Op:
    """Callable with the pipeline's inputs and params by name, plus:

    cu_seqlens: [N + 1] int32 or int64, on the tensors' device, for packed sequences (B = 1).
    seqlens: the same lengths on the host; given, nothing waits for the device.
    outputs: names of the outputs wanted (all by default); the others are neither computed nor stored.

    Returns a named tuple of the outputs; None where not wanted or where a missing input leaves nothing to say.
    Inputs are never written. Runs on the tensors' device and current stream.
    """

    def __init__(self, spec, stages, backend: str = "auto", memory_budget: int | None = None):
        self.spec, self.stages, self.backend, self.memory_budget = spec, stages, backend, memory_budget
        self.whole = check_graphs(spec, stages)
        self.result = namedtuple(f"{spec.name}_outputs", spec.outputs)
        self.graphs, self.plans = LeastRecent(64), LeastRecent(256)
        self.library = library_op(self)

    def __repr__(self) -> str:
        names = ", ".join([*self.spec.inputs, *self.spec.params, "cu_seqlens", "seqlens", "outputs"])
        return f"<chunkwise op {self.spec.name}({names}) -> {', '.join(self.spec.outputs)}>"

    def __deepcopy__(self, memo) -> "Op":
        """Itself: an op has no state of its own, and models that hold one are copied."""
        return self

    def __reduce__(self):
        used = {entry.use: self.stages[entry.use] for entry in self.spec.stages.values()}
        return Op, (self.spec, used, self.backend, self.memory_budget)

    def __call__(self, *, cu_seqlens=None, seqlens=None, outputs=None, **given):
        if torch.compiler.is_compiling():
            results = self.library.traced(given, cu_seqlens, seqlens, outputs)
            return self.result(**{name: results.get(name) for name in self.spec.outputs})
        call = self.bind(given, cu_seqlens, seqlens, outputs)
        if needs_autograd(call.tensors.values()):
            results = differentiable(call)
        else:
            results = call.run()
        return self.result(**{name: results.get(name) for name in self.spec.outputs})

    def with_axes(self, sizes: Mapping[str, int]) -> "Op":
        """The same op with other sizes for the axes that its file fixes, e.g. ``{"C": 32}``."""
        return Op(with_axes(self.spec, sizes), self.stages, self.backend, self.memory_budget)

    def until(self, stage: str) -> "Op":
        """The part of the op up to one stage; that stage's outputs are its outputs."""
        return Op(until(self.spec, self.stages, stage), self.stages, self.backend, self.memory_budget)

    def given(self, names: Mapping[str, str]) -> "Op":
        """The op with what some of its stages make as inputs. names: stage, of one output -> the input's name."""
        return Op(with_given(self.spec, self.whole, names), self.stages, self.backend, self.memory_budget)

    def graph(self, absent: frozenset[str] = frozenset()) -> Graph:
        return self.graphs.get(absent, lambda: build_graph(self.spec, self.stages, absent))

    def joint_graph(
        self,
        absent: frozenset[str],
        wanted: frozenset[str],
        cotangents: frozenset[str],
        recompute: frozenset[str] | None = None,
    ) -> Graph:
        """Forward, rebuild and backward in one graph; wanted: inputs, cotangents: outputs, recompute: stages."""
        key = (absent, wanted, cotangents, recompute)
        return self.graphs.get(key, lambda: derive(self.graph(absent), sorted(wanted), sorted(cotangents), recompute))

    def recompute_choice(self, call: "Call") -> frozenset[str]:
        """The stages to rebuild so that what a call keeps fits the memory budget, whatever gradients are asked for."""
        absent, outputs = call.graph.absent, frozenset(self.whole.outputs)
        able = frozenset(name for name in call.graph.inputs if name not in absent and self.has_gradient(name, absent))

        def graph_with(recompute):
            return self.joint_graph(absent, able, outputs, frozenset(recompute))

        key = ("recompute", absent, tuple(call.sizes.items()), call.io)
        return self.graphs.get(key, lambda: choose_recompute(graph_with, call.sizes, call.io, self.memory_budget))

    def trainable_graph(self) -> Graph:
        """The graph with everything present and the gradients of every input that has one."""
        able = [name for name, value in self.whole.inputs.items() if value.dtype != "int" and self.has_gradient(name)]
        return self.joint_graph(frozenset(), frozenset(able), frozenset(self.whole.outputs))

    def has_gradient(self, name: str, absent: frozenset[str] = frozenset()) -> bool:
        """Whether every stage on the way gives a gradient for an input; fixed slopes, say, have none."""
        try:
            self.joint_graph(absent, frozenset([name]), frozenset(self.whole.outputs))
        except ChunkwiseError as error:
            if all(each.code == codes.NO_GRADIENT for each in error.diagnostics):
                return False
            raise
        return True

    def bind(self, given: Mapping, cu_seqlens=None, seqlens=None, outputs=None) -> "Call":
        """One call with everything checked, before anything is launched."""
        tensors, params = self.split(given)
        graph, io, device, sizes = self.read(tensors)
        wanted = {name: value for name, value in graph.outputs.items() if value and name in self.wanted(outputs)}
        call = self.call(graph, tensors, params, sizes, cu_seqlens, seqlens, io, device, wanted)
        check_state_count(graph, tensors, call.sizes)
        return call

    def read(self, tensors: Mapping) -> tuple[Graph, torch.dtype, torch.device, dict[str, int]]:
        """(graph, IO dtype, device, sizes of the inputs' axes) by what tensors are, not what they hold."""
        graph = self.graph(frozenset(name for name, x in tensors.items() if x is None))
        return graph, *check_tensors(graph, tensors), read_sizes(graph, tensors)

    def call(self, graph, tensors, params, sizes, cu_seqlens, seqlens, io, device, wanted) -> "Call":
        """A call by the sizes of its inputs' axes; tensors may be None where only the backward pass is to run."""
        packing = read_packing(cu_seqlens, seqlens, sizes, device)
        sizes = complete(graph, sizes, packing.N if packing else None)
        backend = resolve_backend(self.backend, device, io)
        return Call(self, graph, tensors, parameters(graph, sizes, params), sizes, packing, io, device, backend, wanted)

    def split(self, given: Mapping) -> tuple[dict[str, torch.Tensor | None], dict[str, float]]:
        """Tensors and params of a call; unknown names and missing inputs are refused."""
        found, meant = [], set()
        for name in given:
            if name not in self.spec.inputs and name not in self.spec.params:
                known = [*self.spec.inputs, *self.spec.params, "cu_seqlens", "seqlens", "outputs"]
                close = nearest(name, [each for each in known if each not in given])
                meant.add(close)
                help = f"did you mean {close}?" if close else f"it takes {', '.join(known)}"
                found.append(Diagnostic(codes.TENSOR, f"{self.spec.name} takes no {name}", help=help))
        for name, entry in self.spec.inputs.items():
            if given.get(name) is None and not entry.optional and name not in meant:
                message = f"the input {name} [{' '.join(entry.shape)}] is missing"
                found.append(Diagnostic(codes.TENSOR, message, entry.mark, help=entry.doc or None))
        for name, written in self.spec.params.items():
            x = given.get(name)
            if x is not None and (isinstance(x, bool) or not isinstance(x, (int, float))):
                message = f"the param {name} must be a number, it is {type(x).__name__}"
                found.append(Diagnostic(codes.TENSOR, message, written.key_mark))
        if found:
            raise ChunkwiseError(*found)
        return (
            {name: given.get(name) for name in self.spec.inputs},
            {name: given[name] for name in self.spec.params if given.get(name) is not None},
        )

    def wanted(self, outputs: Sequence[str] | None) -> frozenset[str]:
        if outputs is None:
            return frozenset(self.spec.outputs)
        if isinstance(outputs, str):
            help = f"write outputs=[{outputs!r}]"
            raise ChunkwiseError(Diagnostic(codes.TENSOR, "outputs must be a list of names, it is a text", help=help))
        unknown = [name for name in outputs if name not in self.spec.outputs]
        if unknown:
            help = did_you_mean(unknown[0], self.spec.outputs) or f"it has {', '.join(self.spec.outputs)}"
            raise ChunkwiseError(Diagnostic(codes.TENSOR, f"{self.spec.name} has no output {unknown[0]}", help=help))
        return frozenset(outputs)


@dataclass(frozen=True)
class Call:
    """One call of an op: checked tensors and numbers, and the plans that fit them. wanted: output -> value."""

    op: Op
    graph: Graph
    tensors: Mapping[str, torch.Tensor | None]
    params: Mapping[str, float]
    sizes: Mapping[str, int]
    packing: Packing | None
    io: torch.dtype
    device: torch.device
    backend: str
    wanted: Mapping[str, str]

    @property
    def seqs(self) -> Seqs:
        return seqs_of(self.packing, self.sizes)

    @property
    def contiguous(self) -> dict[str, torch.Tensor | None]:
        return {name: readable(x) if x is not None else None for name, x in self.tensors.items()}

    def run(self) -> dict[str, torch.Tensor]:
        return execute(self.forward_plan(), self.contiguous, self.params, self.seqs)

    def plan(self, graph: Graph, results: Mapping[str, str], given=()) -> Plan:
        """The plan for some results of a graph; made once per signature."""
        key = (
            id(graph), tuple(results.items()), tuple(self.sizes.items()), self.io, self.device,
            self.packing is not None, self.backend,
        )  # fmt: skip
        make = lambda: make_plan(graph, self.sizes, self.io, self.backend, self.device, results, given)  # noqa: E731
        return self.op.plans.get(key, make)

    def forward_plan(self, joint: Graph | None = None) -> Plan:
        """The forward pass; with a joint graph, what backward keeps too, under the values' own names."""
        kept = {name: name for name in joint.kept} if joint else {}
        return self.plan(joint or self.graph, {**self.wanted, **kept})

    def backward_plan(self, joint: Graph) -> Plan:
        return self.plan(joint, joint.gradients, (*joint.kept, *joint.cotangents.values()))

    def trainable(self) -> list[str]:
        """The floating-point inputs of this call that gradients can be asked for."""
        present = {name: x for name, x in self.tensors.items() if x is not None and x.is_floating_point()}
        return [name for name in present if self.op.has_gradient(name, self.graph.absent)]

    def joint(self, wanted: Collection[str], cotangents: Collection[str]) -> Graph:
        """The graph with its backward pass; under a memory budget, with what must be rebuilt to keep to it.

        The choice is made for all gradients at once, so that backward finds what forward kept.
        """

        def with_rebuilt(recompute=None):
            return self.op.joint_graph(self.graph.absent, frozenset(wanted), frozenset(cotangents), recompute)

        if self.op.memory_budget is None:
            return with_rebuilt()
        return with_rebuilt(self.op.recompute_choice(self))


def check_tensors(graph: Graph, tensors: Mapping[str, torch.Tensor | None]) -> tuple[torch.dtype, torch.device]:
    """(IO dtype, device) of a call; wrong kinds, ranks, dtypes and devices are refused by name."""
    present = {name: x for name, x in tensors.items() if x is not None}
    found = []
    for name, x in present.items():
        value = graph.inputs[name]
        if not isinstance(x, torch.Tensor):
            found.append(wrong(value, f"must be a tensor, it is {type(x).__name__}"))
        elif x.dim() != len(value.axes):
            found.append(wrong(value, f"must have {len(value.axes)} axes, it has the shape {list(x.shape)}"))
    if found:
        raise ChunkwiseError(*found)
    io = io_dtype(graph, present)
    device = next(iter(present.values())).device
    for name, x in present.items():
        value = graph.inputs[name]
        found += dtype_errors(value, x, io)
        if x.device != device:
            first = next(iter(present))
            found.append(wrong(value, f"is on {x.device}, {first} is on {device}"))
    if found:
        raise ChunkwiseError(*found)
    return io, device


def wrong(value: Value, message: str, help: str | None = None) -> Diagnostic:
    axes = " ".join(map(str, value.axes))
    return Diagnostic(codes.TENSOR, f"{value.name} [{axes}] {message}", value.mark, help=help)


def io_dtype(graph: Graph, present: Mapping[str, torch.Tensor]) -> torch.dtype:
    """The one dtype of the inputs that name none."""
    dtypes = {name: x.dtype for name, x in present.items() if graph.inputs[name].dtype == "io"}
    if not dtypes:
        return torch.float32
    first = next(iter(dtypes.values()))
    if len(set(dtypes.values())) > 1:
        have = ", ".join(f"{name} is {name_of(dtype)}" for name, dtype in dtypes.items())
        message = f"the inputs of {graph.name} must share one dtype: {have}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help=f"cast them to one of {', '.join(IO_DTYPES)}"))
    if first not in IO_DTYPES.values():
        name = next(iter(dtypes))
        raise ChunkwiseError(wrong(graph.inputs[name], f"is {name_of(first)}; dtypes are {', '.join(IO_DTYPES)}"))
    return first


def dtype_errors(value: Value, x: torch.Tensor, io: torch.dtype) -> list[Diagnostic]:
    if value.dtype == "int":
        ok = x.dtype in (torch.int32, torch.int64)
        return [] if ok else [wrong(value, f"must be int32 or int64, it is {name_of(x.dtype)}")]
    wanted = port_dtype(value.dtype, io)
    if x.dtype == wanted:
        return []
    return [wrong(value, f"must be {name_of(wanted)}, it is {name_of(x.dtype)}", f"pass {value.name}.to({wanted})")]


def read_sizes(graph: Graph, tensors: Mapping[str, torch.Tensor | None]) -> dict[str, int]:
    """Every axis of the inputs as a number; two tensors that disagree are an error that names both."""
    fixed = {name: written.value for name, written in graph.spec.axes.items()}
    sizes, first, found = {}, {}, []
    for name, x in tensors.items():
        if x is None:
            continue
        value = graph.inputs[name]
        for axis, length in zip(value.axes, x.shape):
            wanted = axis if isinstance(axis, int) else fixed.get(axis, sizes.get(axis, length))
            if length != wanted:
                by = f"{first[axis]} has {wanted}" if axis in first else f"the file says {wanted}"
                have = f"the size {length}" if isinstance(axis, int) else f"{axis} = {length}"
                found.append(wrong(value, f"has {have}, {by}"))
            elif axis not in sizes:
                sizes[axis], first[axis] = length, name
    if found:
        raise ChunkwiseError(*found)
    return sizes


def check_state_count(graph: Graph, tensors, sizes: Mapping[str, int]) -> None:
    """States have one entry per sequence."""
    for name, x in tensors.items():
        axes = graph.inputs[name].axes
        if x is not None and "N" in axes and x.shape[axes.index("N")] != sizes["N"]:
            message = f"has {x.shape[axes.index('N')]} states, and the number of sequences is {sizes['N']}"
            raise ChunkwiseError(wrong(graph.inputs[name], message))
