"""The op as torch.compile and torch.export see it: two raw ``torch.library`` ops for each pipeline.

    chunkwise::<name>_<hash>(inputs, params, _cu_seqlens, _lengths, _seqlens, _outputs, _gradients) -> (values)
    chunkwise::<name>_<hash>_backward(cotangents, inputs, values, ...) -> (gradients)

Values are the outputs' sources, then what backward may read of the forward pass. _outputs and _gradients name the
outputs wanted and the inputs whose gradients may be asked for; _lengths and _seqlens are ``seqlens``, given as a tensor
(any count without a new compilation) or as numbers. A value that this call does not have comes back as an
empty tensor with one axis too many, which ``traced`` turns into None. Own arguments begin with ``_``: no name of a
pipeline does. The compiler sees shapes; the plan, the tables and the launches stay behind the op.
"""

import threading
from collections.abc import Mapping

import torch

from ...stages._contract import HELD
from ..backward import may_be_kept
from ..graphs.graph import Graph, Value
from ..graphs.sizes import complete, shape
from ..planning.dtypes import port_dtype
from ..rewriting.fusion import NONE
from .autograd import refuse_create_graph
from .call import Call
from .fingerprint import fingerprint
from .training import BackwardPass

_library = torch.library.Library("chunkwise", "FRAGMENT")
_registered: dict[str, "LibraryOp"] = {}
_lock = threading.Lock()
LENGTHS = ("Tensor? _cu_seqlens", "Tensor? _lengths", "SymInt[]? _seqlens")


def library_op(op) -> "LibraryOp":
    """The registered op of a function.Op; made once for each pipeline, its stages and its back end."""
    written = op.spec.axes.get("C")
    if written is not None and written.least is not None:
        return op.with_axes({"C": written.value}).library  # no chunk length follows what is a symbol here
    name = f"{op.spec.name}_{fingerprint(op)}"
    with _lock:
        if name not in _registered:
            _registered[name] = LibraryOp(name, op)
        return _registered[name]


class LibraryOp:
    """One registration. values: graph value of each result. sources: (output, its place in values, its rank).
    first: source -> the first output that it is. lengths: the arguments that say how sequences are packed; their
    values together are ``packing``."""

    lengths = LENGTHS

    def __init__(self, name: str, op):
        self.name, self.op = name, op
        self.inputs, self.params = tuple(op.spec.inputs), tuple(op.spec.params)
        self.required = tuple(each for each, entry in op.spec.inputs.items() if not entry.optional)
        self.trained = tuple(each for each in self.inputs if op.whole.inputs[each].dtype not in HELD)
        self.mutated = {name: op.whole.mutated[v] for name, v in op.whole.outputs.items() if v in op.whole.mutated}
        outputs = {name: value for name, value in op.whole.outputs.items() if name not in self.mutated}
        kept = [] if self.mutated else self.may_be_kept()
        self.values = tuple(dict.fromkeys([*outputs.values(), *kept]))
        self.first = {source: next(o for o in outputs if outputs[o] == source) for source in outputs.values()}
        self.sources = tuple(
            (output, self.values.index(source), len(op.whole.values[source].axes)) for output, source in outputs.items()
        )
        self.forward = define(name, self.schema(), self.run, self.fake)
        if self.mutated:
            return  # PyTorch takes no derivative of an op that writes over its inputs, and neither do we
        self.backward = define(f"{name}_backward", self.backward_schema(), self.run_backward, self.fake_backward)
        torch.library.register_autograd(f"chunkwise::{name}", self.derivative, setup_context=self.keep, lib=_library)

    def schema(self) -> str:
        tensors = [f"{self.argument(name)} {name}" for name in self.inputs]
        params = [f"float? {name}" for name in self.params]
        rest = ["str[] _outputs", "str[] _gradients"]
        return f"({', '.join([*tensors, *params, *self.lengths, *rest])}) -> {returns(len(self.values))}"

    def argument(self, name: str) -> str:
        """An input's type in the schema; the mark says that the op writes over it."""
        if name in self.mutated.values():
            return f"Tensor(a{self.inputs.index(name)}!)"
        return "Tensor" if name in self.required else "Tensor?"

    def backward_schema(self) -> str:
        cotangents = [f"Tensor? _d_{output}" for output in self.first.values()]
        inputs = [f"Tensor? {name}" for name in self.inputs]
        values = [f"Tensor? _value_{i}" for i in range(len(self.values))]
        params = [f"float? {name}" for name in self.params]
        rest = ["SymInt[] _sizes", "ScalarType _io", "str[] _absent", "str[] _gradients"]
        arguments = ", ".join([*cotangents, *inputs, *values, *params, *self.lengths, *rest])
        return f"({arguments}) -> {returns(len(self.trained))}"

    def may_be_kept(self) -> list[str]:
        return may_be_kept(self.op.whole) if self.op.memory_budget is None else []

    def described(self, name: str) -> Value:
        return self.op.whole.values[name]

    def traced(self, given: Mapping, cu_seqlens, seqlens, outputs, *rest) -> dict[str, torch.Tensor | None]:
        """A call inside compiled code; the compiler reads this function, and it does little. Outputs by name. rest: of
        the packing, beyond lengths."""
        self.check_names(given, outputs)
        names = [name for name, _, _ in self.sources if outputs is None or name in outputs]
        tensors = [given.get(name) for name in self.inputs]
        params = [None if given.get(name) is None else float(given[name]) for name in self.params]
        lengths, seqlens = (seqlens, None) if isinstance(seqlens, torch.Tensor) else (None, seqlens)
        gradients = []
        if torch.is_grad_enabled():
            gradients = [name for name, x in zip(self.inputs, tensors) if x is not None and x.requires_grad]
        found = self.forward(*tensors, *params, cu_seqlens, lengths, seqlens, *rest, names, gradients)
        found = found if len(self.values) > 1 else (found,)
        there = {name: found[at] for name, at, rank in self.sources if name in names and found[at].dim() == rank}
        first = {at: name for name, at, _ in reversed(self.sources) if name in there}
        results = {name: x if name in first.values() else x.clone() for name, x in there.items()}
        return results | {name: given[over] for name, over in self.mutated.items()}

    def check_names(self, given: Mapping, outputs) -> None:
        """The mistakes that no op could be called with; the compiler shows a TypeError's text, but not our errors."""
        for each in given:
            if each not in self.inputs and each not in self.params:
                raise TypeError(f"error[CW604]: {self.op.spec.name} takes no {each}")
        for each in self.required:
            if given.get(each) is None:
                raise TypeError(f"error[CW604]: the input {each} is missing")
        for each in self.params:
            if given.get(each) is not None and not is_number(given[each]):
                raise TypeError(f"error[CW604]: the param {each} must be a number")
        if isinstance(outputs, str):
            raise TypeError("error[CW604]: outputs must be a list of names, it is a text")
        for each in outputs or ():
            if each not in self.op.result._fields:
                raise TypeError(f"error[CW604]: {self.op.spec.name} has no output {each}")

    def run(self, *args):
        tensors, params, packing, outputs, gradients = self.read(args)
        call = self.op.bind({**tensors, **params}, *lengths_of(packing), outputs)
        joint = self.fused(call, self.joint(call.graph, gradients, outputs))
        results = call.run_forward(call.tensors, joint)
        found = {value: results[name] for name, value in call.wanted.items()}
        found |= {name: results[name] for name in joint.kept}
        like = next(x for x in tensors.values() if x is not None)
        return packed(found[name] if name in found else self.nothing(name, like, call.io) for name in self.values)

    def fake(self, *args):
        tensors, _, packing, outputs, gradients = self.read(args)
        graph, io, _, sizes = self.op.read(tensors)
        sizes, joint = self.sizes(graph, sizes, packing), self.joint(graph, gradients, outputs)
        found = ({graph.outputs[name] for name in outputs} | set(joint.kept)) - set(graph.mutated)
        like = next(x for x in tensors.values() if x is not None)
        return packed(
            like.new_empty(shape(joint.values[name].axes, sizes), dtype=port_dtype(joint.values[name].dtype, io))
            if name in found
            else self.nothing(name, like, io)
            for name in self.values
        )

    def sizes(self, graph: Graph, sizes: Mapping[str, int], packing) -> dict[str, int]:
        """Of every axis of a value, by those of the inputs."""
        return complete(graph, sizes, count(packing))

    def nothing(self, name: str, like: torch.Tensor, io: torch.dtype) -> torch.Tensor:
        """What stands for a value that is not there: empty, of a rank that the value never has."""
        value = self.described(name)
        return like.new_empty((0,) * (len(value.axes) + 1), dtype=port_dtype(value.dtype, io))

    def read(self, args) -> tuple:
        """(tensors, params, packing, outputs, gradients) of the forward op's arguments."""
        n = len(self.inputs)
        return dict(zip(self.inputs, args)), *self.read_rest(args[n:])

    def read_rest(self, args) -> tuple:
        """(params, packing, what comes after) of arguments from the params on."""
        n, m = len(self.params), len(self.lengths)
        return dict(zip(self.params, args)), args[n : n + m], *args[n + m :]

    def joint(self, graph: Graph, gradients, outputs, view=None) -> Graph:
        """Which stages a memory budget would have rebuilt depends on sizes, and those are symbols here: all of them.
        view: whose graphs they are, the op's own if None."""
        if self.mutated:
            return graph
        if self.op.mode == "recurrent" and not gradients:
            return self.op.in_mode(graph, 0)
        there = [name for name in outputs if graph.outputs[name]]
        rebuilt = None if self.op.memory_budget is None else frozenset(self.op.whole.nodes)
        return (view or self.op).joint_graph(graph.absent, frozenset(gradients), frozenset(there), rebuilt)

    def fused(self, call: Call, joint: Graph) -> Graph:
        """What an eager call of these sizes runs. What is kept is what the compiler was told."""
        found = call.op.fused(joint, call.sizes, call.device, call.io)
        return found if set(found.kept) == set(joint.kept) else joint

    def keep(self, ctx, inputs, output) -> None:
        """What autograd keeps of a forward call: the arguments of the backward op."""
        tensors, params, packing, outputs, gradients = self.read(inputs)
        graph, io, _, sizes = self.op.read(tensors)
        joint = self.joint(graph, gradients, outputs)
        results = output if isinstance(output, tuple) else (output,)
        ctx.set_materialize_grads(False)
        flowing = {graph.outputs[name] for name in joint.cotangents}
        ctx.mark_non_differentiable(*(x for name, x in zip(self.values, results) if name not in flowing))
        read = joint.read_later if self.op.fuse == NONE else tensors  # fused stages may read more, by sizes
        ctx.save_for_backward(
            *(x if name in read else None for name, x in tensors.items()),
            *(x if name in joint.kept else None for name, x in zip(self.values, results)),
            *packing[:2],
        )
        ctx.packing, ctx.outputs = packing[2:], outputs
        ctx.numbers, ctx.io, ctx.absent = list(params.values()), io, sorted(graph.absent)
        ctx.sizes = [sizes[axis] for axis in axes_of(graph)]

    def derivative(self, ctx, *cotangents):
        refuse_create_graph(self.op.spec.name)
        needed = [name for name, needs in zip(self.inputs, ctx.needs_input_grad) if needs]
        *saved, cu_seqlens, lengths = ctx.saved_tensors
        packing = (cu_seqlens, lengths, *ctx.packing)
        incoming = self.incoming(ctx, packing, cotangents[: len(self.first)])
        found = self.backward(*incoming, *saved, *ctx.numbers, *packing, ctx.sizes, ctx.io, ctx.absent, needed)
        graph = self.op.graph(frozenset(ctx.absent))
        joint = self.joint(graph, needed, self.flowing(incoming))
        found = dict(zip(self.trained, found if isinstance(found, tuple) else (found,)))
        gradients = [found[name] if name in joint.gradients else None for name in self.inputs]
        return *gradients, *(None for _ in range(len(self.params) + len(self.lengths) + 2))

    def incoming(self, ctx, packing, cotangents: tuple) -> tuple:
        """The cotangents of the outputs that backward runs with; None where the loss does not depend on one."""
        return cotangents

    def flowing(self, cotangents) -> list[str]:
        """Outputs that a gradient comes in by."""
        return [name for name, d in zip(self.first.values(), cotangents) if d is not None]

    def read_backward(self, args) -> tuple:
        """(cotangents by output, tensors kept by value, params, packing, the others) of the backward op's arguments."""
        outputs, names = tuple(self.first.values()), (*self.inputs, *self.values)
        n = len(outputs) + len(names)
        cotangents = {name: d for name, d in zip(outputs, args) if d is not None}
        kept = {name: x for name, x in zip(names, args[len(outputs) : n]) if x is not None}
        return cotangents, kept, *self.read_rest(args[n:])

    def run_backward(self, *args):
        cotangents, kept, params, packing, sizes, io, absent, gradients = self.read_backward(args)
        graph, like = self.op.graph(frozenset(absent)), next(iter(cotangents.values()))
        sizes, nothing = dict(zip(axes_of(graph), sizes)), dict.fromkeys(self.inputs)
        call = self.op.call(graph, nothing, params, sizes, *lengths_of(packing), io, like.device, {})
        joint = self.fused(call, self.joint(graph, gradients, cotangents))
        found = BackwardPass(call, joint)(kept, cotangents)
        return packed(
            found[name] if found.get(name) is not None else self.nothing(name, like, io) for name in self.trained
        )

    def fake_backward(self, *args):
        cotangents, _, _, packing, sizes, io, absent, gradients = self.read_backward(args)
        graph = self.op.graph(frozenset(absent))
        sizes = complete(graph, dict(zip(axes_of(graph), sizes)), count(packing))
        joint, like = self.joint(graph, gradients, cotangents), next(iter(cotangents.values()))
        return packed(
            like.new_empty(shape(graph.inputs[name].axes, sizes), dtype=port_dtype(graph.inputs[name].dtype, io))
            if name in joint.gradients
            else self.nothing(name, like, io)
            for name in self.trained
        )


def define(name: str, schema: str, run, fake):
    """Register one op; its implementation serves every device."""
    _library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"chunkwise::{name}", fake, lib=_library)
    return getattr(torch.ops.chunkwise, name).default


def returns(count: int) -> str:
    return f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"


def packed(tensors):
    """Results as the schema has them: one tensor, or a tuple."""
    tensors = tuple(tensors)
    return tensors if len(tensors) > 1 else tensors[0]


def lengths_of(packing) -> tuple:
    """(cu_seqlens, seqlens) of the arguments LENGTHS."""
    cu_seqlens, lengths, seqlens, *_ = packing
    return cu_seqlens, seqlens if lengths is None else lengths


def count(packing) -> int | None:
    """The number of packed sequences; None for a plain batch."""
    cu_seqlens, seqlens = lengths_of(packing)
    if seqlens is not None:
        return seqlens.shape[0] if isinstance(seqlens, torch.Tensor) else len(seqlens)
    return None if cu_seqlens is None else cu_seqlens.shape[0] - 1


def axes_of(graph: Graph) -> list[str]:
    """The axes that the inputs of a graph fix, in order of appearance."""
    present = [value for name, value in graph.inputs.items() if name not in graph.absent]
    return list(dict.fromkeys(axis for value in present for axis in value.axes if isinstance(axis, str)))


def is_number(x) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)
