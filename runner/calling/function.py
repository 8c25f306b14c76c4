"""A pipeline as a Python function: ``op = load("gated_delta"); out = op(q=..., k=..., ...)``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from ...stages._contract import HELD
from ..backward import derive, with_gradient_stages
from ..backward.keep import choose_recompute
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.hints import nearest
from ..graphs.build_graph import build_graph, check_graphs
from ..graphs.graph import Graph
from ..graphs.sizes import complete, parameters
from ..loading.load_spec import read_spec
from ..loading.pipelines import find_pipeline
from ..loading.spec_keys import OWN
from ..loading.variants import until, with_axes, with_given
from ..planning.least_recent import LeastRecent
from ..planning.plan import resolve_backend
from ..planning.sequences import read_packing
from ..rewriting.fusion import AUTO, NONE, check_fuse, fused_graph, fusions
from ..rewriting.gradient_pattern import gradient_uses
from ..rewriting.recurrent import check_mode, goes_by_token, no_recurrent_form, recurrent_graph
from ..stage_files.stage_library import SHIPPED, find_stages
from .autograd import differentiable
from .call import Call, Tensors
from .call_help import call_help, call_signature
from .check_call import check_tensors, read_sizes
from .check_states import check_rows, check_state_count, check_written
from .graphed import graphed
from .library_op import library_op
from .load_arguments import check_load
from .read_arguments import read_params, wanted_outputs
from .result import result_type
from .signature import signature
from .transforms import refuse_transforms


def load(
    pipeline: str | Path,
    *,
    backend: str = "auto",
    stages: Sequence[str | Path] = (),
    memory_budget: int | None = None,
    mode: str = "auto",
    fuse: str = AUTO,
) -> "Op":
    """The op that a pipeline file describes.

    pipeline: a name or file name in ``pipelines/``, or a path. backend: auto (triton on a GPU, reference
    without), triton, reference or interpret. stages: folders with stages of your own. memory_budget: bytes that
    a call may keep for its backward pass, in place of the file's ``recompute`` marks; under torch.compile, where sizes
    have no numbers, any budget means that everything is rebuilt. Sizes of axes that the file fixes: ``op.with_axes``.
    mode: what a call without gradients runs: auto (one kernel, token by token, for sequences of at most 16 tokens, else
    the chunked form), chunk or recurrent; compiled code, where lengths have no numbers, runs the chunked form unless
    mode is recurrent. fuse: auto: stages that stand for several others in one kernel where that was timed
    faster on this class of device; NAME,...: these; none.
    Raises ChunkwiseError, with every error of the file.
    """
    if torch.compiler.is_dynamo_compiling():
        raise RuntimeError("error[CW601]: load inside compiled code: load the op before, and call it inside")
    check_load(pipeline, backend, stages, memory_budget)
    return Op(read_spec(find_pipeline(pipeline)), find_stages(stages), backend, memory_budget, check_mode(mode), fuse)


class Op:
    """A pipeline as a function. ``help(op)`` and ``inspect.signature(op)`` say what this one takes and gives."""

    together = False
    """Whether its stages run on several ranks at once."""

    def __init__(
        self, spec, stages, backend: str = "auto", memory_budget: int | None = None, mode: str = "auto",
        fuse: str = AUTO,
    ):  # fmt: skip
        self.spec, self.stages, self.backend, self.memory_budget = spec, stages, backend, memory_budget
        self.mode, self.fuse = mode, fuse
        check_fuse(fuse, stages)
        self.whole = check_graphs(spec, stages)
        self.result = result_type(f"{spec.name}_outputs", tuple(spec.outputs))
        self.graphs, self.plans, self.known = LeastRecent(64), LeastRecent(256), LeastRecent(256)
        self.library = library_op(self)
        self.__signature__ = call_signature(self.whole, self.result)
        self.__doc__ = call_help(self.whole, Op.__call__.__doc__)

    def __repr__(self) -> str:
        names = ", ".join([*self.spec.inputs, *self.spec.params, *OWN])
        return f"<chunkwise op {self.spec.name}({names}) -> {', '.join(self.spec.outputs)}>"

    def __deepcopy__(self, memo) -> "Op":
        """Itself: an op has no state of its own, and models that hold one are copied."""
        return self

    def __reduce__(self):
        """With the stages that it uses, and those that ship: a copy can be cut, derived and fused as it can."""
        uses = {entry.use for entry in self.spec.stages.values()}.union(*map(gradient_uses, self.stages.values()))
        used = {
            name: stage
            for name, stage in self.stages.items()
            if name in uses or stage.pattern or Path(stage.file).parent == SHIPPED
        }
        return Op, (self.spec, used, self.backend, self.memory_budget, self.mode, self.fuse)

    def of(self, spec) -> "Op":
        """Another pipeline under the same choices."""
        return Op(spec, self.stages, self.backend, self.memory_budget, self.mode, self.fuse)

    def __call__(self, /, *positional, cu_seqlens=None, seqlens=None, outputs=None, **given):
        """The op on tensors and numbers, all by name. io is one dtype for all the tensors that say so. Beside them:

        cu_seqlens: [N + 1] int32 or int64, on the tensors' device, for packed sequences (B = 1).
        seqlens: the same lengths on the host; given, nothing waits for the device.
        outputs: names of the outputs wanted (all by default); the others are neither computed nor stored.

        Returns a named tuple of the outputs; None where not wanted or where a missing input leaves nothing to say.
        Inputs are never written, but for those that the file marks mutates; no other input may share memory with
        those, and no two sequences a row of them. Rows named on a GPU are not read back: there one outside of the
        states counts as -1, and what two sequences leave in one row is undefined. Runs on the tensors' device and
        current stream. What does not fit is a ChunkwiseError that names it, raised before anything is launched; from
        torch.compile comes a TypeError, or an error of PyTorch's own, with that text in it.

        Other ops made of it: until(stage), given({stage: name}), with_axes({"C": 32}), with_mode("recurrent"),
        with_fusions("none"), in_segments(chunks=32), context_parallel(mesh). One call as a CUDA graph: graphed(...).
        help(type(op)) says what each of them is.
        """
        if positional:
            refuse_positional(self.spec)
        if torch.compiler.is_compiling():
            results = self.library.traced(given, cu_seqlens, seqlens, outputs)
            return self.result(**{name: results.get(name) for name in self.spec.outputs})
        refuse_transforms(self.spec.name, given.values())
        call, tensors = self.checked(given, cu_seqlens, seqlens, outputs)
        results = differentiable(call, tensors)
        return self.result._make([results.get(name) for name in self.spec.outputs])

    def with_axes(self, sizes: Mapping[str, int]) -> "Op":
        """The same op with other sizes for the axes that its file fixes, e.g. ``{"C": 32}``."""
        return self.of(with_axes(self.spec, sizes))

    def with_mode(self, mode: str) -> "Op":
        """The same op in another mode; see load."""
        return Op(self.spec, self.stages, self.backend, self.memory_budget, check_mode(mode), self.fuse)

    def with_fusions(self, fuse: str) -> "Op":
        """The same op with other fusions; see load."""
        return Op(self.spec, self.stages, self.backend, self.memory_budget, self.mode, fuse)

    def until(self, stage: str) -> "Op":
        """The part of the op up to one stage; that stage's outputs are its outputs."""
        return self.of(until(self.spec, self.stages, stage))

    def given(self, names: Mapping[str, str]) -> "Op":
        """The op with what some of its stages make as inputs. names: stage, of one output -> the input's name."""
        return self.of(with_given(self.spec, self.whole, names))

    def graphed(self, /, *, cu_seqlens=None, seqlens=None, outputs=None, **given):
        """This call as a CUDA graph, to be replayed at the cost of one launch; with its backward pass where inputs
        require gradients. help() of what it returns says how it is called."""
        return graphed(self.bind(given, cu_seqlens, seqlens, outputs), self.result)

    def context_parallel(self, mesh=None):
        """The op on sequences that are cut across ranks. mesh: a DeviceMesh of one dimension or a process group; None
        for all processes. help() of what it returns says what each rank passes."""
        from ..parallel.parallel_op import ParallelOp

        return ParallelOp(self, mesh)

    def in_segments(self, chunks: int):
        """The op on this many chunks of the rows at a time, for a backward pass in less memory: of the chunk states
        each chunks-th is kept, the others are rebuilt. What it returns is called as the op is."""
        from ..parallel.segmented_op import SegmentedOp

        return SegmentedOp(self, chunks)

    def graph(self, absent: frozenset[str] = frozenset()) -> Graph:
        return self.graphs.get(absent, lambda: build_graph(self.spec, self.stages, absent))

    def recurrent(self, absent: frozenset[str]) -> Graph | None:
        """The graph in its recurrent form, or None where no stage can stand for its scan."""
        return self.graphs.get(("recurrent", absent), lambda: recurrent_graph(self.graph(absent), self.stages))

    def in_mode(self, graph: Graph, longest: int | None) -> Graph:
        """What a call without gradients runs; longest: tokens of its longest sequence, None where it has none."""
        if graph.mutated or not goes_by_token(self.mode, longest):
            return graph
        found = self.recurrent(graph.absent)
        if found is None and self.mode == "recurrent":
            raise no_recurrent_form(graph)
        return found or graph

    def fused(
        self, graph: Graph, sizes: Mapping[str, int], device: torch.device, io: torch.dtype | None = None
    ) -> Graph:
        """The graph with what this op's fusions can do in one kernel of these sizes."""
        if self.fuse == NONE:
            return graph

        def make():
            allowed = fusions(self.fuse, self.stages, device, io)
            return graph, fused_graph(graph, allowed, self.stages, sizes, device, io, named=self.fuse != AUTO)

        key = ("fused", id(graph), tuple(sizes.items()), device, io)
        return self.graphs.get(key, make)[1]  # beside the graph itself, which keeps its id from being another's

    def for_length(self, longest: int | None) -> "Op":
        """The op with the chunk length for its longest sequence, where the file lets it follow; it never depends on the
        batch, so that a batch keeps its members' bits."""
        written = self.spec.axes.get("C")
        if longest is None or written is None or written.least is None:
            return self
        C = max(written.least, min(written.value, 1 << max(longest - 1, 0).bit_length()))
        return self if C == written.value else self.graphs.get(("C", C), lambda: self.with_axes({"C": C}))

    def joint_graph(
        self,
        absent: frozenset[str],
        wanted: frozenset[str],
        cotangents: frozenset[str],
        recompute: frozenset[str] | None = None,
    ) -> Graph:
        """Forward, rebuild and backward in one graph; wanted: inputs, cotangents: outputs, recompute: stages."""
        key = (absent, wanted, cotangents, recompute)

        def make():
            derived = derive(self.graph(absent), sorted(wanted), sorted(cotangents), recompute)
            return with_gradient_stages(derived, self.stages)

        return self.graphs.get(key, make)

    def recompute_choice(self, call: "Call") -> frozenset[str]:
        """The stages to rebuild so that what a call keeps fits the memory budget, whatever gradients are asked for."""
        absent, outputs = call.graph.absent, frozenset(self.whole.outputs)
        able = frozenset(name for name in call.graph.inputs if name not in absent and self.has_gradient(name, absent))

        def graph_with(recompute):
            return self.joint_graph(absent, able, outputs, frozenset(recompute))

        key = ("recompute", absent, tuple(call.sizes.items()), call.io)
        return self.graphs.get(key, lambda: choose_recompute(graph_with, call.sizes, call.io, self.memory_budget))

    def trainable_graph(
        self, recompute: frozenset[str] | None = None, absent: frozenset[str] = frozenset()
    ) -> Graph:
        """The graph with the gradients of every input that is present and has one; recompute: as in derive."""
        inputs = {name: value for name, value in self.whole.inputs.items() if name not in absent}
        able = [name for name, value in inputs.items() if value.dtype not in HELD and self.has_gradient(name, absent)]
        return self.joint_graph(absent, frozenset(able), frozenset(self.graph(absent).outputs), recompute)

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
        """One call on its tensors, with everything checked, before anything is launched."""
        call, tensors = self.checked(given, cu_seqlens, seqlens, outputs)
        return call.on(tensors)

    def checked(self, given: Mapping, cu_seqlens, seqlens, outputs) -> "tuple[Call, Tensors]":
        """(the call without its tensors, those by input); what was checked for another call with the same signature is
        not looked at again."""
        key = signature(given, cu_seqlens, seqlens, outputs)
        call = self.known.find(key) if key is not None else None
        known = call is not None
        if not known:
            call = self.allowed(given, cu_seqlens, seqlens, outputs).detached()
        tensors = {name: given.get(name) for name in self.spec.inputs}
        check_written(call.graph, tensors, call.sizes)
        if call.device.type == "cpu":
            check_rows(call.graph, tensors)
        if not known and key is not None:
            self.known.put(key, call)
        return call, tensors

    def allowed(self, given: Mapping, cu_seqlens, seqlens, outputs) -> "Call":
        """A call as its signature allows; where its tensors lie is left to check_written."""
        tensors, params = self.split(given)
        graph, io, device, sizes = self.read(tensors)
        asked = wanted_outputs(self.spec, outputs)
        wanted = {
            name: value for name, value in graph.outputs.items() if value and (name in asked or value in graph.mutated)
        }
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
        longest = max(packing.lengths, default=0) if packing else sizes.get("T")
        op = self.for_length(longest)
        if op is not self:
            lengths = packing.lengths if packing else None
            return op.call(op.graph(graph.absent), tensors, params, sizes, None, lengths, io, device, wanted)
        sizes = complete(graph, sizes, packing.N if packing else None)
        backend = resolve_backend(self.backend, device, io)
        numbers = parameters(graph, sizes, params)
        graph = self.fused(self.in_mode(graph, longest), sizes, device, io)
        return Call(self, graph, tensors, numbers, sizes, packing, io, device, backend, wanted)

    def split(self, given: Mapping) -> tuple[dict[str, torch.Tensor | None], dict[str, float]]:
        """Tensors and params of a call; unknown names and missing inputs are refused."""
        found, meant = [], set()
        for name in given:
            if name not in self.spec.inputs and name not in self.spec.params:
                known = [*self.spec.inputs, *self.spec.params, *OWN]
                close = nearest(name, [each for each in known if each not in given])
                meant.add(close)
                help = f"did you mean {close}?" if close else f"it takes {', '.join(known)}"
                found.append(Diagnostic(codes.TENSOR, f"{self.spec.name} takes no {name}", help=help))
        for name, entry in self.spec.inputs.items():
            if given.get(name) is None and not entry.optional and name not in meant:
                message = f"the input {name} [{' '.join(entry.shape)}] is missing"
                found.append(Diagnostic(codes.TENSOR, message, entry.mark, help=entry.doc or None))
        params, wrong = read_params(self.spec, given)
        if found or wrong:
            raise ChunkwiseError(*found, *wrong)
        return {name: given.get(name) for name in self.spec.inputs}, params


def refuse_positional(spec) -> None:
    message = f"{spec.name} takes its inputs by name"
    if torch.compiler.is_compiling():
        raise TypeError(f"error[CW604]: {message}")
    help = f"op({', '.join(f'{name}=...' for name, entry in spec.inputs.items() if not entry.optional)})"
    raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help=help))
