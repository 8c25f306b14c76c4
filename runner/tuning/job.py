"""What is tuned: an op at sizes on a device, as a child process can be told."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from ..calling.call import Call
from ..calling.function import Op, load
from ..graphs.sizes import shape
from ..launching.compile_ahead import bare_buffer
from ..planning.dtypes import port_dtype
from ..planning.plan import Plan, Step
from ..planning.tuned import kernel_key


@dataclass(frozen=True)
class Job:
    """fixed: sizes of axes that the file fixes, where they are others. sizes: of every axis. seqlens: lengths of packed
    sequences. params: numbers of the call, over its defaults."""

    pipeline: str
    stages: tuple[str, ...]
    fixed: Mapping[str, int]
    sizes: Mapping[str, int]
    seqlens: tuple[int, ...] | None
    params: Mapping[str, float]
    io: torch.dtype
    device: torch.device
    backend: str
    mode: str
    fuse: str
    backward: bool
    memory_budget: int | None

    def op(self) -> Op:
        op = load(
            self.pipeline, backend=self.backend, stages=self.stages, memory_budget=self.memory_budget, mode=self.mode,
            fuse=self.fuse,
        )  # fmt: skip
        return op.with_axes(self.fixed) if self.fixed else op

    def bare(self) -> Call:
        """The call on tensors without memory."""
        op = self.op()
        tensors = {
            name: bare_buffer(shape(value.axes, self.sizes), port_dtype(value.dtype, self.io))
            for name, value in op.whole.inputs.items()
        }
        wanted = {name: value for name, value in op.whole.outputs.items() if value}
        return op.call(op.whole, tensors, self.params, self.sizes, None, self.seqlens, self.io, self.device, wanted)


def plans_of(call: Call, backward: bool) -> list[Plan]:
    if not backward:
        return [call.forward_plan()]
    joint = call.joint(call.trainable(), call.wanted)
    return [call.forward_plan(joint), call.backward_plan(joint)]


def kernels_of(plan: Plan) -> Iterator[tuple[str, Step]]:
    """The steps that have a configuration of a stage's, each with what that is kept under. An expression's kernel is
    written out for each expression, and is not tuned."""
    for step in plan.steps:
        if step.launcher and not step.node.stage.name.startswith("("):
            yield kernel_key(step.node.stage, step.launcher.name, step.axes, plan.io), step
