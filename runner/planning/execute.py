"""A plan on tensors: allocate, launch, pass on. No decision is taken here."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from ...stages._contract import Launch
from ...stages._seqs import Seqs
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.sizes import node_parameters
from ..reporting.memory import out_of_memory
from ..stage_files.own_code import launcher_code
from ..stage_files.stage_library import keyword_names
from .dtypes import compute_dtype
from .plan import Buffer, Plan, Step
from .references import rounded, run_reference

Values = dict[str, torch.Tensor | None]
Observer = Callable[[Step, Callable[[], None], Mapping[str, torch.Tensor | None]], None]
Maker = Callable[..., torch.Tensor]

ALIGNMENT = 16
"""Bytes: Triton compiles a kernel anew for an address that is no multiple of it, and some would not compile."""


def run_step(step: Step, run: Callable[[], None], outputs: Mapping[str, torch.Tensor | None]) -> None:
    run()


def execute(
    plan: Plan,
    tensors: Mapping[str, torch.Tensor | None],
    params: Mapping[str, float],
    seqs: Seqs,
    observe: Observer = run_step,
    make: Maker = torch.empty,
) -> Values:
    """The plan's results by name. tensors: the graph's inputs, and whatever else the plan was given.

    observe: is handed each step, a function that runs it (any number of times, on the same buffers), and its
    output tensors by port: timing, probes and verification hang in here.
    make: allocates a buffer; verification makes them full of nan.
    """
    values: Values = dict(tensors)
    with on_device(plan.device), as_written(plan.device):
        for step in plan.steps:
            try:
                outputs, run = prepare(step, plan, values, params, seqs, make)
                observe(step, run, outputs)
            except RuntimeError as error:
                if found := memory_error(step, plan, error):
                    raise found from error
                raise
            values.update({name: outputs[port] for port, name in step.node.outputs.items()})
            for name in step.release:
                values.pop(name, None)
        return results_of(plan, values, seqs)


def readable(x: torch.Tensor) -> torch.Tensor:
    """x as kernels read memory: contiguous, its sign not put off by PyTorch, from a multiple of ALIGNMENT on."""
    if not x.is_contiguous():
        x = x.contiguous()
    return x.clone() if x.is_neg() or start_of(x) % ALIGNMENT else x


def start_of(x: torch.Tensor) -> int:
    """Its address; where there is no memory, that in its storage."""
    return x.data_ptr() if has_memory(x) else x.storage_offset() * x.element_size()


def has_memory(x: torch.Tensor) -> bool:
    """Whether there are numbers behind it: the compiler's fake tensors name a device and have a meta storage."""
    return x.untyped_storage().device.type != "meta"


def results_of(plan: Plan, values: Values, seqs: Seqs) -> Values:
    """What leaves the plan, as tensors of its own."""
    results = {name: values[value] for name, value in plan.results.items()}
    for name in plan.copied:
        if results[name] is not None:
            results[name] = results[name].clone(memory_format=torch.contiguous_format)
    if seqs.packed:
        clear_rest(plan, results, seqs)
    return results


def memory_error(step: Step, plan: Plan, error: RuntimeError) -> ChunkwiseError | None:
    """What a CPU's allocator says, which PyTorch raises as any RuntimeError, by the stage's name; a GPU's has a class
    of its own, which callers catch."""
    if plan.device.type != "cpu" or not out_of_memory(error):
        return None
    buffers = [b for b in (*step.outputs.values(), *step.scratch.values()) if b]
    shapes = ", ".join(str(list(b.shape)) for b in buffers)
    message = f"there is no memory for {step.node.id} ({step.node.stage.name}), whose buffers are {shapes}"
    return ChunkwiseError(Diagnostic(codes.OUT_OF_MEMORY, message, step.node.mark, help="take smaller sizes"))


def on_device(device: torch.device):
    """That device as the current one. Switched only where it is another, for that costs microseconds."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


def as_written(device: torch.device):
    """Autocast off: the dtypes are the plan's. Asked for only where it is on, for it costs microseconds."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def allocate(buffers: Mapping[str, Buffer | None], device: torch.device, make: Maker) -> Values:
    return {name: make(b.shape, dtype=b.dtype, device=device) if b else None for name, b in buffers.items()}


def prepare(
    step: Step, plan: Plan, values: Values, params, seqs: Seqs, make: Maker
) -> tuple[Values, Callable[[], None]]:
    """(output tensors by port, a function that fills them)."""
    inputs = {port: values.get(name) if name else None for port, name in step.node.inputs.items()}
    keywords = {**step.axes, **node_parameters(step.node, plan.sizes, params)}
    outputs = allocate(step.outputs, plan.device, make)
    outputs |= {port: inputs[over] for port, over in step.node.stage.contract.mutated.items()}
    if step.launcher is None:
        return outputs, lambda: fill_by_reference(step, plan, inputs, keywords, seqs, outputs)
    scratch = allocate(step.scratch, plan.device, make)
    with launcher_code(step.node.stage, step.launcher, "launch", step.node.id):
        launches = step.launcher.launch(
            *inputs.values(),
            *outputs.values(),
            *scratch.values(),
            **{name: keywords[name] for name in keyword_names(step.launcher.launch)},
            seqs=replace(seqs, lengths=None),  # a launch that looked at them would hold for these lengths alone
            config=step.config,
        )
    return outputs, Kernels(plan.device, launches, inputs, outputs, scratch)


def fill_by_reference(step: Step, plan: Plan, inputs: Values, keywords, seqs: Seqs, outputs: Values) -> None:
    results = run_reference(step.node, inputs, keywords, seqs, compute_dtype(plan.io))
    wanted = {name for name, x in outputs.items() if x is not None}
    for name, x in rounded(step.node, results, plan.io, wanted).items():
        if x is not None:
            outputs[name].copy_(x)
        else:
            outputs[name] = None  # an optional output without its cause is absent, as is what nobody asked for


@dataclass(frozen=True)
class Kernels:
    """Runs a step's kernels in their order on their device, any number of times; whoever looks at one alone finds it in
    launches. inputs, outputs, scratch: by port and name, the tensors that these are about."""

    device: torch.device
    launches: Sequence[Launch]
    inputs: Values
    outputs: Values
    scratch: Values

    def __call__(self) -> None:
        with on_device(self.device):
            for launch in self.launches:
                run_kernel(launch)


def run_kernel(launch: Launch):
    """What Triton returns: the compiled kernel; None where it is interpreted, or where there is nothing to launch."""
    if not all(launch.grid):
        return None
    return launch.kernel[launch.grid](
        **launch.args, **launch.constexprs, num_warps=launch.num_warps, num_stages=launch.num_stages
    )


def clear_rest(plan: Plan, results: Values, seqs: Seqs) -> None:
    """Rows past the last packed sequence and chunk slots not used are exactly 0 in what leaves the plan."""
    tokens = sum(seqs.lengths)
    slots = sum(-(-length // seqs.C) for length in seqs.lengths)
    for name, x in results.items():
        # a result under its own name is a value kept for backward: its rest is nobody's to read
        value = plan.graph.values[plan.results[name]]
        if x is None or (value.producer is not None and name == value.name):
            continue
        axes = value.axes
        for axis, used, size in (("T", tokens, seqs.T), ("NT", slots, seqs.NT)):
            if axis in axes and used < size:
                x.narrow(axes.index(axis), used, size - used).zero_()
