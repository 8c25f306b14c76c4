"""A graph with numbers and a device: which implementation runs each node, with which configuration and buffers."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from ...stages._contract import Config, Launcher
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.marks import Mark
from ..graphs.graph import Graph, Node, Value
from ..graphs.sizes import local_sizes, shape, size_errors
from ..stage_files.own_code import configurations, refusal
from ..stage_files.stage_source import StageSource
from .dtypes import CLASSES, name_of, port_dtype
from .least_recent import LeastRecent
from .tuned import chosen, config_text, kernel_key, other_machine

ABSENT_GPU: ContextVar[str | None] = ContextVar("class of a GPU that is not here", default=None)
"""What cuda devices are taken for: ``absent_gpu`` sets it."""
BACKENDS = ("auto", "triton", "reference", "interpret")


@dataclass(frozen=True)
class Buffer:
    """A tensor that the runner allocates."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Step:
    """One node, ready to run. launcher None means the reference; why says why when a kernel was asked for.

    outputs: port -> buffer; None when nobody reads it, or when it is written over an input. scratch: name -> buffer.
    release: values that are not read after this step. backend: the launcher's name, interpret where it is interpreted,
    or reference. tuned: the configuration is one that chunkwise tune found (tuned.py), not the first that ships.
    """

    node: Node
    launcher: Launcher | None
    config: Config
    axes: Mapping[str, int]
    outputs: Mapping[str, Buffer | None]
    scratch: Mapping[str, Buffer]
    release: tuple[str, ...]
    backend: str
    why: str = ""
    tuned: bool = False


@dataclass(frozen=True)
class Plan:
    """steps in running order. backend: triton, reference or interpret. io: the IO dtype.

    results: result name -> the value it is. notes: what a user should know. prepared: what launching/ keeps of it.
    """

    graph: Graph
    sizes: Mapping[str, int]
    io: torch.dtype
    backend: str
    device: torch.device
    results: Mapping[str, str]
    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    prepared: LeastRecent = field(default_factory=lambda: LeastRecent(8), init=False, compare=False, repr=False)

    @cached_property
    def of_either_dtype(self) -> tuple[str, ...]:
        """The inputs that may be int32 or int64, or int8 or fp8."""
        there = [name for name in self.graph.inputs if name not in self.graph.absent]
        return tuple(name for name in there if self.graph.inputs[name].dtype in CLASSES)

    @cached_property
    def copied(self) -> tuple[str, ...]:
        """The results that are copies, because an output or a gradient may be what came in, unchanged, or what another
        one is. A value kept for backward, a result under its own name, is nobody's to write to."""
        came_in = {name for name, value in self.results.items() if self.graph.values[value].producer is None}
        first = {value: name for name, value in reversed(self.results.items())}
        return tuple(n for n, value in self.results.items() if n in came_in or n not in (value, first[value]))


@contextmanager
def absent_gpu(name: str) -> Iterator[None]:
    """While it lasts, cuda devices are of this class (sm_90)."""
    token = ABSENT_GPU.set(name)
    try:
        yield
    finally:
        ABSENT_GPU.reset(token)


def device_class(device: torch.device) -> str:
    """sm_90 and the like for a GPU, cpu otherwise: all that a configuration may depend on."""
    if device.type != "cuda":
        return device.type
    if absent := ABSENT_GPU.get():
        return absent
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def make_plan(
    graph: Graph,
    sizes: Mapping[str, int],
    io: torch.dtype,
    backend: str,
    device: torch.device,
    results: Mapping[str, str],
    given: Collection[str] = (),
) -> Plan:
    """The steps that make some values of a graph out of others.

    results: name -> value to make. given: values that are there already, besides the graph's inputs.
    Raises ChunkwiseError when a constraint is broken or a kernel was asked for that refuses these sizes.
    """
    found = size_errors(graph.file or graph, sizes)
    if found:
        raise ChunkwiseError(*found)
    needed = needed_values(graph, {*results.values(), *graph.mutated}, set(given))
    nodes = [node for node in graph.nodes.values() if needed & (set(node.outputs.values()) - set(given))]
    last_reader = {name: node.id for node in nodes for name in node.inputs.values() if name}
    steps, kept = [], set(results.values())
    for node in nodes:
        release = tuple(
            n for n in dict.fromkeys(node.inputs.values()) if n and last_reader[n] == node.id and n not in kept
        )
        try:
            steps.append(make_step(graph, node, sizes, io, backend, device, needed - set(given), release))
        except ChunkwiseError as error:
            found += error.diagnostics
    if found:
        raise ChunkwiseError(*found)
    notes = (*tuning_notes(steps, device), *notes_of(steps), *graph.notes)
    return Plan(graph, dict(sizes), io, backend, device, dict(results), tuple(steps), notes)


def tuning_notes(steps: Collection[Step], device: torch.device) -> list[str]:
    """What the file of tuned configurations does here, if there is one."""
    if ABSENT_GPU.get() or not any(step.launcher for step in steps):
        return []
    ours = [f"{step.node.id}: tuned, {config_text(step.config)}" for step in steps if step.tuned]
    return [*filter(None, [other_machine(device)]), *ours]


def notes_of(steps: Collection[Step]) -> tuple[str, ...]:
    refused = [f"{step.node.id}: {step.why}" for step in steps if step.why]
    rewritten: dict[tuple[str, ...], list[Node]] = {}
    for step in steps:
        if step.node.replaces:
            rewritten.setdefault(step.node.replaces, []).append(step.node)
    return (*refused, *(rewrite_note(nodes) for nodes in rewritten.values()))


def rewrite_note(nodes: Collection[Node]) -> str:
    """What a rewrite put there, one node or several, and what for."""
    ids, names = ", ".join(node.id for node in nodes), ", ".join(node.stage.name for node in nodes)
    return f"{ids}: {names} in place of {', '.join(nodes[0].replaces)}"


def needed_values(graph: Graph, wanted: set[str], given: set[str]) -> set[str]:
    """Values that the wanted ones depend on, going no further back than what is given."""
    needed = set(wanted)
    for node in reversed(graph.nodes.values()):
        if (needed - given) & set(node.outputs.values()):
            needed |= {name for name in node.inputs.values() if name}
    return needed


def make_step(graph: Graph, node: Node, sizes, io, backend, device, needed: set[str], release) -> Step:
    axes = local_sizes(node, sizes)
    launcher, why = choose(node, axes, backend, device, io)
    config, tuned, stale = configuration(node, launcher, axes, io, device) if launcher else ({}, False, "")
    always = {node.outputs.get(port) for port in launcher.always} if launcher else set()
    outputs = {
        port: buffer_of(graph.values[node.outputs[port]], sizes, io)
        if node.outputs.get(port) in needed | always and not declared.mutates
        else None
        for port, declared in node.stage.contract.outputs.items()
    }
    ports = launcher.scratch if launcher else {}
    scratch = {name: scratch_buffer(node, launcher, name, {**axes, **config}, io) for name in ports}
    runs = ("interpret" if backend == "interpret" else launcher.name) if launcher else "reference"
    runs = node.stage.transport or runs
    why = "; ".join(filter(None, [why, stale]))
    return Step(node, launcher, config, axes, outputs, scratch, release, runs, why, tuned)


def buffer_of(value: Value, sizes: Mapping[str, int], io: torch.dtype) -> Buffer:
    return Buffer(shape(value.axes, sizes), port_dtype(value.dtype, io))


def bytes_of(buffer: Buffer) -> int:
    return math.prod(buffer.shape) * buffer.dtype.itemsize


def configuration(
    node: Node, launcher: Launcher, axes: Mapping[str, int], io: torch.dtype, device: torch.device
) -> tuple[Config, bool, str]:
    """As tuned.chosen has it."""
    shipped = shipped_configs(node, launcher, axes, device)
    if ABSENT_GPU.get():
        return shipped[0], False, ""
    return chosen(node.stage, kernel_key(node.stage, launcher.name, axes, io), shipped, device)


def shipped_configs(node: Node, launcher: Launcher, axes: Mapping[str, int], device: torch.device) -> list[Config]:
    """What ships for these sizes and device, the best first."""
    shipped = configurations(node.stage, launcher, axes, device_class(device), node.id)
    if not shipped:
        at = ", ".join(f"{axis} = {length}" for axis, length in axes.items())
        message = f"{launcher.name} of {node.stage.name} ships no configuration for {at}"
        help = "a launcher without one refuses the sizes in when"
        raise ChunkwiseError(Diagnostic(codes.STAGE_CONTRACT, message, launchers_mark(node), help=help))
    return shipped


def scratch_buffer(node: Node, launcher: Launcher, name: str, sizes: Mapping[str, int], io: torch.dtype) -> Buffer:
    """sizes: of the stage's axes, and the values of the configuration."""
    port = launcher.scratch[name]
    terms = [int(axis) if axis.isdigit() else axis for axis in port.axes]
    unknown = [term for term in terms if isinstance(term, str) and term not in sizes]
    if unknown:
        message = f"scratch {name} [{port.shape}] of {node.stage.name}: {unknown[0]} has no number"
        help = f"axes and configuration have {', '.join(sizes)}"
        raise ChunkwiseError(Diagnostic(codes.STAGE_CONTRACT, message, launchers_mark(node), help=help))
    return Buffer(shape(terms, sizes), port_dtype(port.dtype, io))


def launchers_mark(node: Node) -> Mark:
    """Where the stage's file lists the launchers of a node."""
    return StageSource(Path(node.stage.file)).assignment("VJP_LAUNCHERS" if node.stage.is_vjp else "LAUNCHERS")


def choose(node: Node, axes, backend: str, device: torch.device, io: torch.dtype) -> tuple[Launcher | None, str]:
    """The first launcher that takes io and these sizes; the reference only where it was asked for or no kernel is."""
    if backend == "reference" or node.stage.transport:
        return None, ""
    if not node.stage.launchers:
        return None, f"{node.stage.name} has no kernel: its reference runs in PyTorch"
    tried = offers(node, axes, device_class(device), io)
    if tried[-1][1] is None:
        return tried[-1][0], refusals(tried[:-1])
    message = f"{node.id} ({node.stage.name}) has no kernel for these sizes: {refusals(tried)}"
    help = "--backend reference (backend='reference') runs any size in PyTorch"
    raise ChunkwiseError(Diagnostic(codes.SIZE, message, node.mark, help=help))


def refusals(tried: list[tuple[Launcher, str | None]]) -> str:
    """Who refused, by reason."""
    names: dict[str, list[str]] = {}
    for launcher, reason in tried:
        names.setdefault(reason, []).append(launcher.name)
    return "; ".join(f"{', '.join(who)} refused: {reason}" for reason, who in names.items())


def offers(
    node: Node, axes: Mapping[str, int], device: str, io: torch.dtype | None
) -> list[tuple[Launcher, str | None]]:
    """The stage's launchers up to the first that takes this dtype and these sizes, each with its reason to refuse."""
    tried = []
    for launcher in node.stage.launchers:
        why = io and launcher.not_in.get(name_of(io))
        why = f"{name_of(io)}: {why}" if why else refusal(node.stage, launcher, axes, device, node.id)
        tried.append((launcher, why))
        if tried[-1][1] is None:
            break
    return tried


def check_backend(asked: str) -> None:
    if asked not in BACKENDS:
        message = f"there is no back end {asked}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"back ends are {', '.join(BACKENDS)}"))


def resolve_backend(asked: str, device: torch.device, io: torch.dtype) -> str:
    """auto is triton on a GPU and the reference without; anything else is what was asked for, or an error."""
    check_backend(asked)
    backend = asked if asked != "auto" else ("triton" if device.type == "cuda" else "reference")
    if backend == "triton" and device.type != "cuda":
        message = f"the triton back end needs a GPU, the tensors are on {device.type}"
        help = "use backend reference, or interpret (Triton kernels on the CPU, in float32)"
        raise ChunkwiseError(Diagnostic(codes.NO_GPU, message, help=help))
    if backend == "interpret" and device.type != "cpu":
        raise ChunkwiseError(Diagnostic(codes.BACKEND, f"the interpreter runs on the CPU, the tensors are on {device}"))
    if backend != "reference" and io == torch.float64:
        message = f"float64 runs on the reference back end only, not on {backend}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help="pass backend='reference'"))
    if backend == "interpret" and io != torch.float32:
        message = f"the interpreter computes in float32, the tensors are {name_of(io)}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help="convert the inputs to float32"))
    if backend != "reference":
        require_triton(backend)
    return backend


def require_triton(backend: str) -> None:
    """Triton is there, and interpreted exactly when interpretation is meant: the two do not mix in one process."""
    try:
        import triton
    except ImportError:
        message = f"the {backend} back end needs triton, which is not installed"
        raise ChunkwiseError(Diagnostic(codes.BACKEND, message, help="pip install triton (Linux only)")) from None
    interpreting = bool(triton.knobs.runtime.interpret)
    if interpreting and backend == "triton":
        message = "TRITON_INTERPRET is set in this process, so its kernels are interpreted"
        raise ChunkwiseError(
            Diagnostic(codes.BACKEND, message, help="unset TRITON_INTERPRET, or pass backend='interpret'")
        )
    if not interpreting and backend == "interpret":
        message = "the interpreter needs a process of its own, started with TRITON_INTERPRET=1"
        help = "set it before Python starts; the command line does so by itself"
        raise ChunkwiseError(Diagnostic(codes.BACKEND, message, help=help))
