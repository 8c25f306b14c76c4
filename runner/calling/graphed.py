"""A call of an op as a CUDA graph: its launches are captured once, and replayed at the cost of one."""

from collections.abc import Mapping

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph
from ..graphs.wire import did_you_mean
from ..launching.prepared import seen_as_written
from ..planning.dtypes import name_of
from ..planning.execute import on_device
from .autograd import differentiable, trained
from .check_call import wrong

WARM_UPS = 2
"""The first compiles and copies the tables of the lengths, the second takes the way that is captured."""


def graphed(call, result: type) -> "Graphed | GraphedTraining":
    """A bound call (call.Call) as a graph; with its backward pass where a gradient may be asked for."""
    if call.backend != "triton":
        message = f"a CUDA graph of {call.graph.name} needs its kernels on a GPU, and the back end is {call.backend}"
        raise ChunkwiseError(Diagnostic(codes.NO_GPU, message, help="pass tensors that are on a GPU"))
    return (GraphedTraining if trained(call.tensors) else Graphed)(call, result)


class Graphed:
    """``replay = op.graphed(q=q, k=k, ...)``, then ``out = replay()`` or ``out = replay(q=other_q)``.

    inputs: name -> the tensor that the graph reads, which is the one that was given: fill it in place between replays,
    or pass another of its shape, dtype and device, which is copied into it. What a replay returns is written by the
    next one. Params and lengths are those of the capture; states that a call writes over go on from replay to replay.
    """

    def __init__(self, call, result: type):
        self.graph, self.device, self.cuda_graph = call.graph, call.device, torch.cuda.CUDAGraph()
        self.inputs = {name: x for name, x in call.tensors.items() if x is not None}
        self.buffers = {name: x.detach() for name, x in self.inputs.items()}
        with on_device(self.device):
            warm_up(call.on(spare(call)).run)
            with torch.cuda.graph(self.cuda_graph):
                found = call.run()
        self.outputs = result._make([found.get(name) for name in result._fields])
        self.written = [self.inputs[name] for name in dict.fromkeys(call.graph.mutated.values()) if name in self.inputs]

    def __call__(self, /, **given):
        for name, x in given.items():
            if x is not self.inputs.get(name):
                check(self.graph, self.inputs, name, x)
                self.buffers[name].copy_(x)
        with on_device(self.device):
            self.cuda_graph.replay()
        for x in self.written:
            seen_as_written(x)
        return self.outputs


class GraphedTraining:
    """Both passes as graphs: ``step = op.graphed(q=q, ...)`` with inputs that require gradients, then
    ``out = step(q=q, ...)`` with all of them, each copied into the graph's own, and ``backward`` as ever."""

    def __init__(self, call, result: type):
        self.graph, self.device, self.result = call.graph, call.device, result
        self.inputs = {
            name: x.detach().clone().requires_grad_(x.requires_grad)
            for name, x in call.tensors.items() if x is not None
        }  # fmt: skip
        self.names = [name for name in result._fields if name in call.wanted]

        def run(*tensors):
            found = differentiable(call, call.tensors | dict(zip(self.inputs, tensors)))
            return tuple(found[name] for name in self.names)

        with on_device(self.device):
            self.run = torch.cuda.make_graphed_callables(run, tuple(self.inputs.values()), allow_unused_input=True)

    def __call__(self, /, **given):
        for name, x in given.items():
            check(self.graph, self.inputs, name, x)
        if missing := [name for name in self.inputs if name not in given]:
            message = f"the input {missing[0]} is missing: a graph of both passes takes all that it was captured with"
            raise ChunkwiseError(Diagnostic(codes.TENSOR, message, self.graph.inputs[missing[0]].mark))
        with on_device(self.device):
            found = self.run(*[given[name] for name in self.inputs])
        return self.result(**dict.fromkeys(self.result._fields) | dict(zip(self.names, found)))


def check(graph: Graph, inputs: Mapping[str, torch.Tensor], name: str, x) -> None:
    """Whether a tensor can be copied into one of the graph's own."""
    if name not in inputs:
        help = did_you_mean(name, inputs) or f"the graph reads {', '.join(inputs)}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, f"this graph of {graph.name} reads no {name}", help=help))
    value, own = graph.inputs[name], inputs[name]
    if name in graph.mutated.values():
        message = "is written over by every replay, in the tensor that was captured"
        raise ChunkwiseError(wrong(value, message, f"fill that one in place: replay.inputs[{name!r}]"))
    if not isinstance(x, torch.Tensor) or (x.shape, x.dtype, x.device) != (own.shape, own.dtype, own.device):
        got = words(x) if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"
        message = f"was captured as {words(own)}, and this is {got}"
        raise ChunkwiseError(wrong(value, message, "a graph holds for one signature: make another for this one"))


def words(x: torch.Tensor) -> str:
    return f"{name_of(x.dtype)} {list(x.shape)} on {x.device}"


def spare(call) -> Mapping[str, torch.Tensor | None]:
    """The call's tensors, with copies of those that it writes over: a warm-up must not move a state on."""
    written = set(call.graph.mutated.values())
    return {name: x.clone() if name in written else x for name, x in call.tensors.items()}


def warm_up(run) -> None:
    """On a stream of its own, as captures ask for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            run()
    torch.cuda.current_stream().wait_stream(stream)
