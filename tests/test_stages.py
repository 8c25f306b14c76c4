"""Every stage in stages/ alone: its contract as a pipeline of one stage, its reference against float64."""

import pytest
import torch
from support.one_stage import ATTENTION, BY_TOKEN, STAGES, optional_inputs, stage_inputs, stage_op
from support.ops import RAGGED, check

from chunkwise.runner.expression import evaluate_number, parse_expression

SIZES = dict(B=2, T=37, H=1, HV=2, K=24, V=40, SLOTS=9, W=4, D=24, DI=40, NS=24, RANKS=3, LANES=2, N=2) | ATTENTION
PACKED = SIZES | dict(B=1, T=sum(RAGGED) + 5)
ABSENT = [(name, absent) for name in BY_TOKEN for absent in [(), *((port,) for port in optional_inputs(name))]]


def dtypes(name):
    """A stage whose inputs are all float32 has nothing to tell it that it stands in a float64 pipeline."""
    io = [port for port in STAGES[name].contract.inputs.values() if port.dtype == "io"]
    return [torch.bfloat16, torch.float16, torch.float32, torch.float64] if io else [torch.float32]


def sizes_of(op, sizes):
    return {axis: sizes[axis] for axis in op.whole.axis_names if axis in sizes}


@pytest.mark.parametrize("name,io", [(name, io) for name in STAGES for io in dtypes(name)])
def test_dtypes(tmp_path, name, io):
    op = stage_op(tmp_path, name, C=16)
    check(op, stage_inputs(op, io, **sizes_of(op, SIZES)))


@pytest.mark.parametrize("name,absent", ABSENT)
def test_packed_with_absent_inputs(tmp_path, name, absent):
    """The reference maps over sequences; five rows past the last one are nan on the way in and 0 on the way out."""
    op = stage_op(tmp_path, name, absent, C=32)
    seqlens = RAGGED if "T" in op.whole.axis_names else None
    given = stage_inputs(op, torch.bfloat16, seqlens=seqlens, **sizes_of(op, PACKED))
    check(op, given, seqlens=seqlens)


@pytest.mark.parametrize("name", STAGES)
def test_says_what_it_is_and_what_it_costs(name):
    sizes = SIZES | dict(C=16, N=2, NT=3)
    assert STAGES[name].doc.endswith("."), STAGES[name].doc
    assert evaluate_number(parse_expression(STAGES[name].contract.flops), sizes) > 0


@pytest.mark.parametrize("name", STAGES)
def test_empty(tmp_path, name):
    """E10: no tokens, no batch."""
    for empty in (dict(T=0), dict(B=0, N=0, LANES=0)):
        op = stage_op(tmp_path, name, C=16)
        check(op, stage_inputs(op, **sizes_of(op, SIZES | empty)))
