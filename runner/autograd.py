"""A call under autograd: one ``autograd.Function`` around the forward and the derived backward plan."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from . import codes
from .dtypes import port_dtype
from .errors import ChunkwiseError, Diagnostic
from .execute import execute


def differentiable(call) -> dict[str, torch.Tensor]:
    """The wanted outputs of a bound call (function.Call), connected to autograd."""
    names = list(call.wanted)
    outputs = Pipeline.apply(call, *call.tensors.values())
    return dict(zip(names, outputs))


class Pipeline(torch.autograd.Function):
    """Inputs: the call, then its tensors in the order of its inputs. Outputs: the wanted ones in order."""

    @staticmethod
    def forward(ctx, call, *tensors):
        ctx.set_materialize_grads(False)
        wanted = {name for name, x in call.tensors.items() if x is not None and x.requires_grad}
        joint = call.joint(wanted, call.wanted)
        inputs = call.contiguous
        results = execute(call.forward_plan(joint), inputs, call.params, call.seqs)
        read = {value for node in joint.nodes.values() if node.phase != "forward" for value in node.inputs.values()}
        kept = {name: x for name, x in inputs.items() if x is not None and name in read}
        kept |= {name: results[name] for name in joint.kept}
        ctx.call, ctx.kept_names = detached(call), list(kept)
        ctx.save_for_backward(*kept.values())
        return tuple(results[name] for name in call.wanted)

    @staticmethod
    def backward(ctx, *cotangents):
        if torch.is_grad_enabled():
            message = f"{ctx.call.graph.name} was asked for the gradient of its gradient, which is not derived"
            raise ChunkwiseError(Diagnostic(codes.DOUBLE_BACKWARD, message, help="call backward without create_graph"))
        call, names = ctx.call, list(ctx.call.tensors)
        incoming = {name: x for name, x in zip(call.wanted, cotangents) if x is not None}
        wanted = [name for name, needed in zip(names, ctx.needs_input_grad[1:]) if needed]
        joint = call.joint(wanted, incoming)
        values = {name: None for name in names} | dict(zip(ctx.kept_names, ctx.saved_tensors))
        values |= cotangent_values(call, joint, incoming)
        gradients = execute(call.backward_plan(joint), values, call.params, call.seqs)
        return None, *(gradients.get(name) for name in names)


def cotangent_values(call, joint, incoming: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Incoming gradients as the graph takes them: contiguous, in the cotangent's dtype."""
    return {
        joint.cotangents[name]: x.to(port_dtype(joint.values[joint.cotangents[name]].dtype, call.io)).contiguous()
        for name, x in incoming.items()
    }


def detached(call):
    """The call without its tensors, which autograd keeps where they are needed."""
    return replace(call, tensors=dict.fromkeys(call.tensors))
