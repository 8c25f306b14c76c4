"""A call under autograd: one ``autograd.Function`` around the forward and the derived backward plan.

An output that no wanted gradient reaches does not require one; an input that the loss does not depend on has the
gradient None. In-place writes to what backward reads are PyTorch's to detect; an input that is not contiguous is
copied, and its copy kept.
"""

from collections.abc import Collection

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph
from ..planning.dtypes import port_dtype
from ..planning.execute import readable
from .call import Tensors
from .transforms import refuse_batched


def needs_autograd(tensors: Collection[torch.Tensor | None]) -> bool:
    """Whether a derivative may be asked for."""
    return torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors])


def differentiable(call) -> Tensors:
    """The wanted outputs of a bound call (call.Call), connected to autograd."""
    names = list(call.wanted)
    outputs = Pipeline.apply(call, *call.tensors.values())
    return dict(zip(names, outputs))


class Pipeline(torch.autograd.Function):
    """Inputs: the call, then its tensors in the order of its inputs. Outputs: the wanted ones in order."""

    @staticmethod
    def forward(ctx, call, *tensors):
        # on many ranks 0 for an output that this one's loss does not depend on: all must run the same exchanges
        ctx.set_materialize_grads(call.op.together)
        wanted = [name for name, x in call.tensors.items() if x is not None and x.requires_grad]
        joint = call.joint(wanted, call.wanted)
        kept, results = run_forward(call, joint)
        ctx.call, ctx.kept_names = call.detached(), list(kept)
        ctx.save_for_backward(*kept.values())
        ctx.mark_non_differentiable(*(results[name] for name in call.wanted if name not in joint.cotangents))
        return tuple(results[name] for name in call.wanted)

    @staticmethod
    def backward(ctx, *cotangents):
        refuse_create_graph(ctx.call.graph.name)
        refuse_batched(ctx.call.graph.name, cotangents)
        call, names = ctx.call, list(ctx.call.tensors)
        incoming = {name: x for name, x in zip(call.wanted, cotangents) if x is not None}
        wanted = [name for name, needed in zip(names, ctx.needs_input_grad[1:]) if needed]
        kept = dict(zip(ctx.kept_names, ctx.saved_tensors))
        gradients = run_backward(call, call.joint(wanted, incoming), kept, incoming)
        return None, *(gradients.get(name) for name in names)


def run_forward(call, joint: Graph) -> tuple[Tensors, Tensors]:
    """(what the backward phase of joint reads of the inputs and the forward pass by value name, results by name)."""
    inputs = call.contiguous
    results = call.run_forward(inputs, joint)
    kept = {name: x for name, x in inputs.items() if x is not None and name in joint.read_later}
    return kept | {name: results[name] for name in joint.kept}, results


def run_backward(call, joint: Graph, kept: Tensors, incoming: Tensors) -> Tensors:
    """Gradients by input. kept: as run_forward gave it. incoming: cotangents by output, the absent ones left out."""
    values = dict.fromkeys(call.tensors) | {name: readable(x) for name, x in kept.items()}
    values |= cotangent_values(call, joint, incoming)
    return call.run_backward(values, joint)


def cotangent_values(call, joint: Graph, incoming: Tensors) -> Tensors:
    """Incoming gradients as the graph takes them: dense, in the cotangent's dtype."""
    return {
        value: readable(incoming[name].to(port_dtype(joint.values[value].dtype, call.io)))
        for name, value in joint.cotangents.items()
    }


def refuse_create_graph(name: str) -> None:
    """Grad mode is on in backward only under create_graph=True, and nothing would be recorded."""
    if torch.is_grad_enabled():
        message = f"{name} was asked for the gradient of its gradient, which is not derived"
        raise ChunkwiseError(Diagnostic(codes.DOUBLE_BACKWARD, message, help="call backward without create_graph"))
