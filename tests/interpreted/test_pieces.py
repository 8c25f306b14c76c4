"""A long sequence of few heads, scanned in pieces: states, values and gradients are those of one scan."""

from dataclasses import replace

import pytest
from support.one_stage import stage_inputs, stage_op
from support.ops import check

from chunkwise.runner.calling.function import Op
from chunkwise.stages import chunk_delta_h
from chunkwise.stages._contract import always
from chunkwise.stages._pieces import chain, piece_limits, pieces

SIZES = dict(B=2, T=64, H=1, HV=2, K=24, V=20)


@pytest.fixture(autouse=True)
def float32_too(monkeypatch):
    """The interpreter has no other dtype."""
    monkeypatch.setattr(chunk_delta_h, "whole", lambda k, seqs: seqs.packed)


def in_pieces(op, count):
    """The op whose scan is cut, at whatever size."""
    stage = op.stages["chunk_delta_h"]

    def forced(launchers):
        cut = launchers[-1]
        return (replace(cut, when=always, configs=lambda *at: [c | {"PIECES": count} for c in cut.configs(*at)]),)

    stage = replace(stage, launchers=forced(stage.launchers), vjp_launchers=forced(stage.vjp_launchers))
    return Op(op.spec, {**op.stages, "chunk_delta_h": stage}, op.backend)


@pytest.mark.parametrize("count,absent", [(2, ()), (4, ("g",)), (4, ("initial_state",))])
def test_the_scan_and_its_gradient(tmp_path, count, absent, monkeypatch):
    chained = []
    monkeypatch.setattr(chunk_delta_h, "chain", lambda *a, **k: chained.append(a) or chain(*a, **k))
    op = in_pieces(stage_op(tmp_path, "chunk_delta_h", absent, 16, "interpret"), count)
    sizes = {axis: SIZES[axis] for axis in op.whole.axis_names if axis in SIZES}
    check(op, stage_inputs(op, **sizes), backward=True)
    assert chained


def test_packed_sequences_are_not_cut(tmp_path):
    op = in_pieces(stage_op(tmp_path, "chunk_delta_h", (), 16, "interpret"), 4)
    sizes = {axis: SIZES[axis] for axis in op.whole.axis_names if axis in SIZES} | dict(B=1, T=40)
    check(op, stage_inputs(op, seqlens=(20, 0, 17), **sizes), seqlens=(20, 0, 17), backward=True)


@pytest.mark.parametrize(
    "T,HV,count", [(32768, 4, 16), (65536, 2, 32), (8192, 1, 8), (32768, 32, 2), (32768 + 1, 4, 1), (4096, 1, 4)]
)
def test_how_many_pieces(T, HV, count):
    axes = dict(T=T, C=64, HV=HV, V=128, K=128)
    assert pieces(axes) == pieces({**axes, "B": 8}) == count
    assert (piece_limits(axes, "sm_90") is None) == (count >= 8)
