"""A call under autograd: one ``autograd.Function`` around the forward and the derived backward plan.

An output that no wanted gradient reaches does not require one; an input that the loss does not depend on has the
gradient None. In-place writes to what backward reads are PyTorch's to detect; an input that is not contiguous is
copied by each pass, and itself kept.
"""

from collections.abc import Collection

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph
from ..launching.program import NOWHERE
from ..planning.dtypes import port_dtype
from .call import Tensors
from .transforms import refuse_batched


def needs_autograd(tensors: Collection[torch.Tensor | None]) -> bool:
    """Whether a derivative may be asked for."""
    return torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors])


def differentiable(call) -> Tensors:
    """The wanted outputs of a bound call (call.Call), connected to autograd."""
    return dict(zip(call.wanted, apply(call, *call.tensors.values())))


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
        if apart := [results[name] for name in call.wanted if name not in joint.cotangents]:
            ctx.mark_non_differentiable(*apart)
        return tuple([results[name] for name in call.wanted])

    @staticmethod
    def backward(ctx, *cotangents):
        call = ctx.call
        refuse_create_graph(call.graph.name)
        refuse_batched(call.graph.name, cotangents)
        incoming = {name: x for name, x in zip(call.wanted, cotangents) if x is not None}
        wanted = [name for name, needed in zip(call.tensors, ctx.needs_input_grad[1:]) if needed]
        kept = dict(zip(ctx.kept_names, ctx.saved_tensors))
        gradients = run_backward(call, call.joint(wanted, incoming), kept, incoming)
        return None, *map(gradients.get, call.tensors)


apply = super(torch.autograd.Function, Pipeline).apply
"""Pipeline.apply without what it does for function transforms, under which calls are refused."""


def run_forward(call, joint: Graph, into: Tensors = NOWHERE) -> tuple[Tensors, Tensors]:
    """(what the backward phase of joint reads of the inputs and the forward pass by value name, results by name).
    into: as a prepared plan has it."""
    run, inputs, seqs = call.forward(joint), call.tensors, call.seqs
    results = run.at_once(inputs, seqs, into)
    if results is None:
        results = run(call.contiguous, seqs, into)
    kept = {name: inputs[name] for name in joint.inputs_read_later}
    for name in joint.kept:
        kept[name] = results[name]
    return kept, results


def run_backward(call, joint: Graph, kept: Tensors, incoming: Tensors, into: Tensors = NOWHERE) -> Tensors:
    """Gradients by input. kept: as run_forward gave it. incoming: cotangents by output, the absent ones left out.
    into: as a prepared plan has it."""
    values = dict.fromkeys(call.tensors)
    values.update(kept)
    for name, value in joint.cotangents.items():
        d, dtype = incoming[name], port_dtype(joint.values[value].dtype, call.io)
        values[value] = d if d.dtype is dtype else d.to(dtype)
    return call.run_backward(values, joint, into)


def refuse_create_graph(name: str) -> None:
    """Grad mode is on in backward only under create_graph=True, and nothing would be recorded."""
    if torch.is_grad_enabled():
        message = f"{name} was asked for the gradient of its gradient, which is not derived"
        raise ChunkwiseError(Diagnostic(codes.DOUBLE_BACKWARD, message, help="call backward without create_graph"))
