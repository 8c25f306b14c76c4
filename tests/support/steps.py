"""The ops without chunks: the four teaching steps, and gla as a serial scan."""

import torch

from .channel_stages import cut
from .ops import same_bits

STEPS = ["gla_step", "lightning_step", "kda_step", "mamba2_step"]
SERIAL = [*STEPS, "gla_serial"]


def tokens(an_op, given) -> int:
    return next(x.shape[1] for name, x in given.items() if "T" in an_op.whole.inputs[name].axes)


def one_by_one(an_op, given):
    """(o, final state) of a call for each token, the state handed on."""
    outputs, state = [], given["initial_state"]
    for t in range(tokens(an_op, given)):
        out = an_op(**{**cut(an_op, given, t, t + 1), "initial_state": state})
        outputs.append(out.o)
        state = out.final_state
    return torch.cat(outputs, dim=1), state


def check_steps(an_op, given) -> None:
    """T tokens at once are T steps of one token, bit for bit."""
    o, state = one_by_one(an_op, given)
    whole = an_op(**given)
    assert same_bits(o, whole.o) and same_bits(state, whole.final_state)
