"""Both passes of a call for one choice of gradients: what calls of a signature would look up again, found once."""

from itertools import compress

from ..graphs.graph import Graph
from ..launching.prepared import PreparedPlan
from ..launching.program import NOWHERE
from ..planning.dtypes import port_dtype
from ..planning.execute import Values
from ..planning.least_recent import LeastRecent


class Training:
    """call: without its tensors. forward: what gives the outputs, and what is kept.

    inputs, values: names of what autograd keeps for the backward pass: inputs, and values that forward made.
    apart: the outputs that no gradient comes in by.
    """

    def __init__(self, call, joint: Graph, forward: PreparedPlan):
        """joint: both passes in one graph."""
        self.call, self.forward = call, forward
        self.inputs, self.values = joint.inputs_read_later, joint.kept
        self.kept = (*self.inputs, *self.values)
        self.apart = tuple(name for name in call.wanted if name not in joint.cotangents)
        self.backwards = LeastRecent(8)

    def backward(self, needed: tuple[bool, ...], there: tuple[bool, ...]) -> "BackwardPass":
        """needed: of the inputs in order, whether their gradients are. there: of the outputs, whether one comes in."""
        key = (needed, there)
        return self.backwards.find(key) or self.backwards.put(key, self.made_backward(needed, there))

    def made_backward(self, needed: tuple[bool, ...], there: tuple[bool, ...]) -> "BackwardPass":
        wanted, incoming = compress(self.call.tensors, needed), compress(self.call.wanted, there)
        return BackwardPass(self.call, self.call.joint(tuple(wanted), tuple(incoming)))


class BackwardPass:
    """cotangents: of each output that one comes in by, its value and the dtype that it is read in."""

    def __init__(self, call, joint: Graph):
        self.call, self.joint = call, joint
        values = joint.cotangents.items()
        self.cotangents = {name: (value, port_dtype(joint.values[value].dtype, call.io)) for name, value in values}

    def __call__(self, kept: Values, incoming: Values, into: Values = NOWHERE) -> Values:
        """Gradients by input. kept: the inputs and values that autograd kept. incoming: cotangents by output. into: as
        a prepared plan has it."""
        values = dict(kept)
        for name, (value, dtype) in self.cotangents.items():
            d = incoming[name]
            values[value] = d if d.dtype is dtype else d.to(dtype)
        return self.call.run_backward(values, self.joint, into)
