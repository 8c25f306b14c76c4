"""A call under autograd: one ``autograd.Function`` around the forward and the derived backward plan.

An output that no wanted gradient reaches does not require one; an input that the loss does not depend on has the
gradient None. In-place writes to what backward reads are PyTorch's to detect; an input that is not contiguous is
copied by each pass, and itself kept.
"""

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from .call import Tensors
from .training import Training
from .transforms import refuse_batched


def trained(tensors: Tensors) -> tuple[str, ...]:
    """The inputs whose gradients may be asked for."""
    if not torch.is_grad_enabled():
        return ()
    return tuple([name for name, x in tensors.items() if x is not None and x.requires_grad])


def differentiable(call, tensors: Tensors) -> Tensors:
    """The wanted outputs of a call (call.Call) on its tensors, connected to autograd where a gradient may be asked
    for."""
    wanted = trained(tensors)
    if not wanted:
        return call.run_forward(tensors)
    return dict(zip(call.wanted, apply(call.training(wanted, tensors), tensors, *tensors.values())))


class Pipeline(torch.autograd.Function):
    """Inputs: both passes, the call's tensors by name, and again in their order. Outputs: the wanted ones in order."""

    @staticmethod
    def forward(ctx, training: Training, inputs: Tensors, *tensors):
        call = training.call
        # on many ranks 0 for an output that this one's loss does not depend on: all must run the same exchanges
        ctx.set_materialize_grads(call.op.together)
        results = training.forward(inputs, call.seqs)
        ctx.training = training
        ctx.save_for_backward(*[inputs[name] for name in training.inputs], *[results[name] for name in training.values])
        if training.apart:
            ctx.mark_non_differentiable(*[results[name] for name in training.apart])
        return tuple([results[name] for name in call.wanted])

    @staticmethod
    def backward(ctx, *cotangents):
        training = ctx.training
        call = training.call
        refuse_create_graph(call.graph.name)
        refuse_batched(call.graph.name, cotangents)
        run = training.backward(ctx.needs_input_grad[2:], tuple([d is not None for d in cotangents]))
        gradients = run(dict(zip(training.kept, ctx.saved_tensors)), dict(zip(call.wanted, cotangents)))
        return None, None, *[gradients.get(name) for name in call.tensors]


apply = super(torch.autograd.Function, Pipeline).apply
"""Pipeline.apply without what it does for function transforms, under which calls are refused."""


def refuse_create_graph(name: str) -> None:
    """Grad mode is on in backward only under create_graph=True, and nothing would be recorded."""
    if torch.is_grad_enabled():
        message = f"{name} was asked for the gradient of its gradient, which is not derived"
        raise ChunkwiseError(Diagnostic(codes.DOUBLE_BACKWARD, message, help="call backward without create_graph"))
