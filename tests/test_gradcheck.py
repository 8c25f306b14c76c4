"""torch.autograd.gradcheck of every pipeline in float64, on the reference back end."""

import pytest
import torch
from support.ops import PIPELINES, STEPS, inputs, op

TINY = dict(B=1, T=5, H=1, HV=2, K=3, V=2, D=3, DI=3, NS=2)
CASES = {
    "ragged": dict(T=19),
    "packed": dict(seqlens=(3, 0, 17, 1), T=23),
    "no state": dict(T=17, absent=("initial_state",)),
    "batch": dict(B=2, T=3),
}


def checked(name, fast, **how):
    """The op with 16 tokens a chunk, as a function of the inputs that have gradients."""
    an_op, seqlens = op(name, 16), how.get("seqlens")
    given = inputs(an_op, torch.float64, **{**TINY, **how})
    absent = frozenset(each for each, x in given.items() if x is None)
    names = [each for each, x in given.items() if x is not None and an_op.has_gradient(each, absent)]

    def function(*tensors):
        out = an_op(**{**given, **dict(zip(names, tensors))}, seqlens=seqlens)
        return tuple(x for x in out if x is not None)

    tensors = [given[each].requires_grad_() for each in names]
    assert torch.autograd.gradcheck(function, tensors, fast_mode=fast)


@pytest.mark.parametrize("how", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", [*PIPELINES, *STEPS])
def test_gradcheck(name, how):
    """One random direction of every Jacobian."""
    checked(name, True, **how)


@pytest.mark.parametrize("name", PIPELINES)
def test_gradcheck_of_every_entry(name):
    checked(name, False)
