"""Every stage's kernel alone in the interpreter, with each optional input absent, plain and packed."""

import pytest
from support.one_stage import ATTENTION, BY_TOKEN, STAGES, optional_inputs, stage_inputs, stage_op
from support.ops import check

KERNELS = [name for name, stage in STAGES.items() if stage.launchers]
SEQLENS = (0, 17, 1, 0)
PLAIN = dict(B=2, T=19, H=1, HV=2, K=24, V=20, SLOTS=5, W=3, D=24, DI=40, NS=24, RANKS=3, LANES=2, N=2) | ATTENTION
PACKED = PLAIN | dict(B=1)


def chunked(name):
    return bool({"C", "NT"} & set(STAGES[name].axis_names))


def chunk_lengths(name):
    """For a stage that has no chunks a few tokens are enough."""
    return (32, 64, 128) if chunked(name) else (8,)


def verified(tmp_path, name, absent, seqlens, sizes, C):
    op = stage_op(tmp_path, name, absent, C, "interpret")
    seqlens = seqlens if name in BY_TOKEN else None
    sizes = {axis: sizes[axis] for axis in op.whole.axis_names if axis in sizes}
    result = check(op, stage_inputs(op, seqlens=seqlens, **sizes), seqlens=seqlens)
    assert {row.backend for row in result.rows if row.id == "stage"} == {"interpret"}


@pytest.mark.parametrize("name,absent", [(name, (port,)) for name in KERNELS for port in optional_inputs(name)])
def test_absent_inputs(tmp_path, name, absent):
    lengths = SEQLENS if chunked(name) else (0, 4, 1, 0)
    verified(tmp_path, name, absent, lengths, PACKED | dict(T=sum(lengths) + 5), 16)


@pytest.mark.parametrize("name", KERNELS)
def test_absent_altogether(tmp_path, name):
    verified(tmp_path, name, tuple(optional_inputs(name)), None, PLAIN if chunked(name) else PLAIN | dict(T=6), 16)


def heads_taken(name, C):
    """Value heads that share a key head where one of the stage's kernels takes them, else with keys of their own."""
    shared = dict(H=1, HV=2)
    axes = PACKED | shared | dict(T=C + 6, C=C)
    limited = {"K", "V"} <= set(STAGES[name].axis_names)
    return dict(H=1, HV=1) if limited and all(each.when(axes, "cpu") for each in STAGES[name].launchers) else shared


@pytest.mark.parametrize("name,C", [(name, C) for name in KERNELS for C in chunk_lengths(name)])
def test_chunk_lengths(tmp_path, name, C):
    verified(tmp_path, name, (), (C + 3, 1), PACKED | dict(T=C + 6) | heads_taken(name, C), C)
