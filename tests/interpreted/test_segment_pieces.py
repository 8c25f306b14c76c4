"""Segments of few heads over long sequences, made of pieces: maps, decays, states and cotangents are those of one."""

import importlib
from dataclasses import replace

import pytest
import torch
from support.one_stage import STAGES, stage_inputs, stage_op

from chunkwise.runner.calling.function import Op
from chunkwise.stages._contract import always
from chunkwise.stages._segment_pieces import segment_limits, segment_pieces_limits

SIZES = dict(B=2, T=64, H=1, HV=2, K=12, V=9)
NAMES = [name for name, stage in STAGES.items() if segment_pieces_limits in [each.when for each in stage.launchers]]


def in_pieces(op, name, count, monkeypatch):
    """The op whose segment is cut, at whatever size, in float32: the interpreter has no other dtype."""
    module = importlib.import_module(f"chunkwise.stages.{name}")
    asked = "uncut" if hasattr(module, "uncut") else "whole"
    monkeypatch.setattr(module, asked, lambda k, seqs: seqs.packed)
    cut = STAGES[name].launchers[-1]
    cut = replace(cut, when=always, configs=lambda *at, made=cut.configs: [c | {"PIECES": count} for c in made(*at)])
    return Op(op.spec, {**op.stages, name: replace(STAGES[name], launchers=(cut,))}, op.backend)


def test_which():
    assert len(NAMES) == 7


@pytest.mark.parametrize("count,absent", [(2, ()), (4, ("g", "initial_state", "d_final_state"))])
@pytest.mark.parametrize("name", NAMES)
def test_what_pieces_make_together(tmp_path, name, count, absent, monkeypatch):
    there = STAGES[name].contract.inputs
    absent = [port for port in absent if port in there]
    op = in_pieces(stage_op(tmp_path, name, absent, 16, "interpret"), name, count, monkeypatch)
    inputs = stage_inputs(op, **{axis: SIZES[axis] for axis in op.whole.axis_names if axis in SIZES})
    right = stage_op(tmp_path, name, absent, 16)(**inputs)
    for port, x in op(**inputs)._asdict().items():
        torch.testing.assert_close(x, getattr(right, port), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences_are_not_cut(tmp_path, name, monkeypatch):
    op = in_pieces(stage_op(tmp_path, name, (), 16, "interpret"), name, 4, monkeypatch)
    lengths = (20, 0, 17)
    sizes = {axis: SIZES[axis] for axis in op.whole.axis_names if axis in SIZES} | dict(B=1, T=40)
    inputs = stage_inputs(op, seqlens=lengths, **sizes)
    right = stage_op(tmp_path, name, (), 16)(**inputs, seqlens=lengths)
    for port in STAGES[name].contract.outputs:
        made = op(**inputs, seqlens=lengths, outputs=[port])
        torch.testing.assert_close(getattr(made, port), getattr(right, port), rtol=1e-4, atol=1e-5)


def test_sizes_that_are_cut():
    axes = dict(T=65536, HV=16, K=128, V=128, C=64)
    assert segment_limits(axes, "sm_90") == "T = 65536 and HV = 16: the segment goes in 4 pieces"
    assert segment_pieces_limits(axes, "sm_90") is None
    few = {**axes, "HV": 17}
    assert segment_pieces_limits(few, "sm_90") == "T = 65536 and HV = 17 make 2 pieces: they pay from 4 on"
    assert segment_limits(few, "sm_90") is None
