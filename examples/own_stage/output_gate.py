"""Output gate: what an attention layer gives, let through by a swish of another projection of its input.

    y = x z sigmoid(z)

This is a stage of one file. Its name is the file's; ``--stages examples/own_stage`` finds it.
"""

import torch

from chunkwise.stages._contract import Contract, Port

# The types of everything that goes in and out. Axes are names; a dtype that is not given is the pipeline's.
CONTRACT = Contract(
    inputs={"x": Port("B T HV V"), "z": Port("B T HV V", doc="gate before the swish")},
    outputs={"y": Port("B T HV V")},
    flops="6 * B * T * HV * V",
)


def reference(x, z):
    """x, z, y [B, T, HV, V]. The definition of the stage: plain PyTorch, inputs in the contract's order."""
    return {"y": x * z * torch.sigmoid(z)}


def vjp(d_y, x, z, *, needs):
    """dx = dy z s;  dz = dy x s (1 + z (1 - s)), s = sigmoid(z).

    Optional: without it, autograd through the reference serves. Named here is what backward keeps or rebuilds; needs
    names the gradients that are wanted.
    """
    s = torch.sigmoid(z)
    gradients = {"x": d_y * z * s, "z": d_y * x * s * (1 + z * torch.sigmoid(-z))}
    return {name: gradients[name] for name in gradients if name in needs}
