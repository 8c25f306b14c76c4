"""Tests side by side on one GPU take turns where its memory does not hold them all."""

import torch
from filelock import FileLock
from support.gpu_room import SMALL, op_bytes, taken
from support.ops import op, sizes_for


def test_a_second_one_waits_for_the_first(tmp_path):
    place, lock = tmp_path / "room", FileLock(tmp_path / "lock")
    assert taken(place, lock, 60, shared=100)
    assert not taken(place, lock, 60, shared=100) and taken(place, lock, 40, shared=100)
    taken(place, lock, -60, shared=100)
    assert taken(place, lock, 60, shared=100)


def test_an_op_needs_its_values():
    graph, sizes = op("gated_delta").trainable_graph(), dict(B=8, T=2048, H=32, HV=32, K=256, V=256)
    found = {io: op_bytes(graph, sizes_for(op("gated_delta"), **sizes), io) for io in (torch.bfloat16, torch.float32)}
    assert 20e9 < found[torch.float32] < 60e9 and SMALL < found[torch.bfloat16] < found[torch.float32]
