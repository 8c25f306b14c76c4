"""What is measured: an op at one workload, and input tensors for it that take turns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from ..calling.call import Call
from ..calling.function import Op
from ..graphs.sizes import complete
from ..planning.dtypes import name_of
from ..planning.plan import buffer_of, bytes_of
from ..verification.generate import make_cotangents, make_inputs
from ..verification.head_subset import free_bytes
from .record import Workload

SETS = 3
"""Input tensors that take turns, so that no run finds those of the one before it at the same address."""
SHARE = 4
"""Of the free memory, one part in so many for what all the sets and their intermediate values take."""


@dataclass(frozen=True)
class Case:
    """op: in its mode, with its fixed axes set. sizes: of every axis. asked: the axes that the user gave. name: of a
    named workload whose sizes these are. absent: optional inputs, and outputs, that are left out."""

    op: Op
    name: str | None
    sizes: Mapping[str, int]
    asked: frozenset[str]
    seqlens: tuple[int, ...] | None
    io: torch.dtype
    device: torch.device
    backward: bool
    seed: int = 0
    absent: tuple[str, ...] = ()

    @property
    def outputs(self) -> list[str]:
        """What is asked for."""
        return [name for name in self.op.spec.outputs if name not in self.absent]

    @property
    def title(self) -> str:
        axes = " ".join(f"{axis}{size}" for axis, size in self.sizes.items() if axis not in ("N", "NT"))
        packed = f" packed in {len(self.seqlens)}" if self.seqlens else ""
        way = " forward and backward" if self.backward else ""
        without = f" without {','.join(self.absent)}" if self.absent else ""
        return f"{self.op.spec.name} {name_of(self.io)} {axes}{packed}{without}{way}"

    def at(self, tokens: int) -> "Case":
        """The same with fewer tokens, of a plain batch."""
        sizes = {axis: size for axis, size in self.sizes.items() if axis not in ("N", "NT")}
        return replace(self, sizes=complete(self.op.whole, sizes | {"T": tokens}))


@dataclass(frozen=True)
class InputSet:
    """One set of tensors. call: of ours on them, bound. inputs: by name; those of trainable require gradients.
    cotangents: output -> the gradient that flows into it."""

    call: Call
    inputs: Mapping[str, torch.Tensor | None]
    trainable: tuple[str, ...] = ()
    cotangents: Mapping[str, torch.Tensor] | None = None


def tensors(case: Case, sizes: Mapping[str, int], number: int = 0) -> dict[str, torch.Tensor | None]:
    """The case's inputs by name, at sizes that may be others than its own; None for what it leaves out."""
    made = make_inputs(case.op.whole, sizes, case.io, case.device, case.seed + number)
    return {name: None if name in case.absent else x for name, x in made.items()}


def input_set(case: Case, number: int = 0) -> InputSet:
    inputs = tensors(case, case.sizes, number)
    call = case.op.bind(inputs, seqlens=case.seqlens, outputs=case.outputs)
    if not case.backward:
        return InputSet(call, inputs)
    trainable = call.trainable()
    joint = call.joint(trainable, call.wanted)
    made = make_cotangents(joint, call.sizes, call.io, call.device, case.seed + number)
    leaves = {name: x.detach().requires_grad_() if name in trainable else x for name, x in inputs.items()}
    cotangents = {output: made[value] for output, value in joint.cotangents.items()}
    return InputSet(call, leaves, tuple(trainable), cotangents)


def input_sets(case: Case) -> list[InputSet]:
    """As many as memory allows, SETS at most; one always."""
    first = input_set(case)
    graph = first.call.joint(first.trainable, first.call.wanted) if case.backward else first.call.graph
    one = sum(bytes_of(buffer_of(value, first.call.sizes, case.io)) for value in graph.values.values())
    count = max(1, min(SETS, free_bytes(case.device) // SHARE // max(one, 1)))
    return [first, *(input_set(case, number) for number in range(1, count))]


def workload_of(case: Case, call: Call) -> Workload:
    """call: what the case's tensors are bound to, with every axis and the mode that was taken."""
    lengths = call.packing.on_host() if call.packing else None
    mode = "chunk" if case.backward else call.mode
    return Workload(case.name, dict(call.sizes), name_of(call.io), mode, lengths, case.backward, case.absent)
