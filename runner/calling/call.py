"""One call of an op, checked: its tensors and numbers, and the plans that fit them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from ...stages._contract import HELD
from ...stages._seqs import Seqs
from ..graphs.graph import Graph
from ..launching.prepared import PreparedPlan, prepared
from ..launching.program import NOWHERE
from ..planning.execute import readable
from ..planning.least_recent import LeastRecent
from ..planning.plan import Plan, make_plan
from ..planning.sequences import Packing, seqs_of
from .training import Training

if TYPE_CHECKING:
    from .function import Op


Tensors = dict[str, torch.Tensor | None]
DETACHED = "detached"
"""What a call without its tensors is found under."""


@dataclass(frozen=True)
class Call:
    """One call of an op: checked tensors and numbers, and the plans that fit them. wanted: output -> value.

    found: the graphs with gradients and the prepared plans that calls of this signature asked for. trainings: what
    those of them run that autograd asked for.
    """

    op: "Op"
    graph: Graph
    tensors: Mapping[str, torch.Tensor | None]
    params: Mapping[str, float]
    sizes: Mapping[str, int]
    packing: Packing | None
    io: torch.dtype
    device: torch.device
    backend: str
    wanted: Mapping[str, str]
    found: LeastRecent = field(default_factory=lambda: LeastRecent(32), init=False, compare=False, repr=False)
    trainings: LeastRecent = field(default_factory=lambda: LeastRecent(8), init=False, compare=False, repr=False)

    def on(self, tensors: Mapping[str, torch.Tensor | None]) -> "Call":
        """The same call on other tensors of its signature; found and trainings are shared."""
        other = object.__new__(Call)
        vars(other).update(vars(self), tensors=tensors)
        return other

    def detached(self) -> "Call":
        """The call without its tensors, which autograd keeps where they are needed: one for all of its signature."""
        found = self.found.find(DETACHED)
        return found or self.found.put(DETACHED, self.on(dict.fromkeys(self.tensors)))

    @property
    def mode(self) -> str:
        """What a call without gradients runs: chunk or recurrent."""
        replaced = [node for node in self.graph.nodes.values() if node.replaces]
        by_token = any(node.stage.pattern and not node.stage.fuses for node in replaced)
        return "recurrent" if by_token else "chunk"

    @property
    def seqs(self) -> Seqs:
        return self.plain_seqs if self.packing is None else seqs_of(self.packing, self.sizes)

    @cached_property
    def plain_seqs(self) -> Seqs:
        """Of a batch that is not packed: no tables, which are on a device and of a stream."""
        return seqs_of(None, self.sizes)

    @property
    def contiguous(self) -> Tensors:
        return {name: readable(x) if x is not None else None for name, x in self.tensors.items()}

    def run(self) -> Tensors:
        return self.run_forward(self.tensors)

    def forward(self, inputs: Tensors, joint: Graph | None = None) -> PreparedPlan:
        """Gives what forward_plan does, for such inputs as these."""
        key = ("forward", id(joint))
        found = self.found.find(key)
        return found or self.found.put(key, prepared(self.forward_plan(joint), inputs, self.params))

    def run_forward(self, inputs: Tensors, joint: Graph | None = None, into: Tensors = NOWHERE) -> Tensors:
        """inputs: the call's, or others of its signature. into: as a prepared plan has it."""
        return self.forward(inputs, joint)(inputs, self.seqs, into)

    def training(self, wanted: tuple[str, ...], inputs: Tensors) -> Training:
        """wanted: the inputs whose gradients are."""
        return self.trainings.find(wanted) or self.made_training(wanted, inputs)

    def made_training(self, wanted: tuple[str, ...], inputs: Tensors) -> Training:
        joint = self.joint(wanted, self.wanted)
        return self.trainings.put(wanted, Training(self.detached(), joint, self.forward(inputs, joint)))

    def run_backward(self, values: Tensors, joint: Graph, into: Tensors = NOWHERE) -> Tensors:
        """What backward_plan gives. values: what it takes as given, and the inputs that are read again; others may be
        left out. into: as a prepared plan has it."""
        key = ("backward", id(joint))
        found = self.found.find(key)
        found = found or self.found.put(key, prepared(self.backward_plan(joint), values, self.params))
        return found(values, self.seqs, into)

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
        dtypes = {name: value.dtype for name, value in self.graph.inputs.items()}
        present = [name for name, x in self.tensors.items() if x is not None and dtypes[name] not in HELD]
        return [name for name in present if self.op.has_gradient(name, self.graph.absent)]

    def joint(self, wanted: Collection[str], cotangents: Collection[str]) -> Graph:
        """The graph with its backward pass; under a memory budget, with what must be rebuilt to keep to it.

        The choice is made for all gradients at once, so that backward finds what forward kept.
        """
        key = (tuple(wanted), tuple(cotangents))
        return self.found.find(key) or self.found.put(key, self.made_joint(frozenset(wanted), frozenset(cotangents)))

    def made_joint(self, wanted: frozenset[str], cotangents: frozenset[str]) -> Graph:
        rebuilt = None if self.op.memory_budget is None else self.op.recompute_choice(self)
        joint = self.op.joint_graph(self.graph.absent, wanted, cotangents, rebuilt)
        return self.op.fused(joint, self.sizes, self.device, self.io)
