"""Scans that are handed over from one program to another: nothing is scanned twice, or left out."""

from types import FunctionType, SimpleNamespace

import pytest
import torch
from support.guarded import GUARD, Guarded

from chunkwise.kernels._handover import scanned_part
from chunkwise.runner.compiling.meta_launches import meta_launches
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.stages._handover import LARGEST_TEAM, spread
from chunkwise.stages._pieces import PROGRAMS

BF16 = torch.bfloat16
numbers = SimpleNamespace(where=lambda c, x, y: x if c else y, maximum=max, minimum=min)
part = FunctionType(scanned_part.fn.__code__, {"gl": numbers})
"""The kernel's own function, on numbers."""


def programs(heads, slices, NT):
    """(scan, first chunk, end, place) of each program, and how many begin; None where scans are not handed over."""
    found = spread(heads, slices, NT)
    if found is None:
        return None
    ahead, teams, size = found
    count = ahead + 2 * teams * size
    parts = [part(pid, ahead, teams, size, heads * slices, NT, slices) for pid in range(count)]
    return parts, ahead, teams, size


def walk(heads, slices, NT):
    """Every chunk once, and a state is there, of that scan and chunk, when it is taken over, and then is not: who finds
    a word of an earlier call would go on from whatever the memory holds."""
    parts, ahead, teams, size = programs(heads, slices, NT)
    left, scanned = {}, set()
    for scan, begin, end, place in parts:
        assert 0 <= place < teams * (size - 1)
        if 0 < begin < end:
            assert left.pop(place) == (scan, begin)
        own = {(scan, chunk) for chunk in range(begin, end)}
        assert not own & scanned
        scanned |= own
        if begin < end < NT:
            assert place not in left
            left[place] = (scan, end)
    assert not left
    assert len(scanned) == heads * slices * NT


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("NT", [8, 13, 33, 128])
def test_every_chunk_once(slices, NT):
    spread_out = [heads for heads in range(1, 5 * PROGRAMS // slices) if spread(heads, slices, NT)]
    assert spread_out
    for heads in spread_out:
        walk(heads, slices, NT)


def test_speed_A():
    """96 heads in two slices on 132 multiprocessors: three scans on two programs each."""
    assert spread(96, 2, 128) == (0, 64, 2)
    parts, *_ = programs(96, 2, 128)
    first, second = parts[:128], parts[128:]
    assert {end - begin for _, begin, end, _ in first} == {64, 128}
    steps = [one[2] - one[1] + two[2] - two[1] for one, two in zip(first, sorted_by_end(first, second), strict=True)]
    assert set(steps) == {192}


def sorted_by_end(first, second):
    """The second parts as the card gives them to programs whose first ones end."""
    order = sorted(range(len(first)), key=lambda i: first[i][2] - first[i][1])
    taken = dict(zip(order, second, strict=True))
    return [taken[i] for i in range(len(first))]


def test_slices_of_a_head_side_by_side():
    """They read the same keys: both begin and end with the same chunks, in neighbouring programs."""
    parts, *_ = programs(96, 2, 128)
    for (scan, *one, _), (other, *two, _) in zip(parts[::2], parts[1::2], strict=True):
        assert (scan // 2, one) == (other // 2, two)


@pytest.mark.parametrize(
    "heads, slices, NT", [(66, 2, 128), (132, 1, 128), (264, 1, 128), (131, 2, 128), (96, 2, 7), (1, 1, 64)]
)
def test_whole_rounds_stay(heads, slices, NT):
    """A card that is full, or nearly, a second round that is, and scans that are too short."""
    assert spread(heads, slices, NT) is None


def test_the_largest_team_that_fits():
    assert spread(133, 1, 4096) == (0, 15, LARGEST_TEAM)
    assert spread(133, 1, 16) == (0, 27, 4)


def launches(**axes):
    """Of the reverse scan on Hopper."""
    stage = find_stages()["chunk_delta_reverse"]
    launcher = stage.launchers[0]
    axes = dict(K=128, V=128, C=64, H=axes["HV"]) | axes
    return meta_launches(stage.contract, launcher, False, axes, BF16, axes.pop("form", "plain"),
                         launcher.configs(axes | {"N": axes["B"]}, "sm_90")[0])  # fmt: skip


def test_what_is_handed_over():
    """Heads and batches that are no whole round; the kernel is the same where they are, for it is compiled once."""
    [at_A], [few] = launches(B=1, T=8192, HV=96), launches(B=2, T=1024, HV=4)
    assert at_A.grid == (256,) and few.grid == (16,)
    assert (at_A.args["ahead"], at_A.args["teams"], at_A.args["size"]) == (0, 64, 2) and few.args["ahead"] == 16
    for name, x in at_A.args.items():
        assert (x is None) == (few.args[name] is None), name
    assert at_A.args["entered"].shape == (64, 128, 128) and few.args["entered"].shape == (1, 128, 128)


def test_packed_sequences_stay_whole():
    [packed] = launches(B=1, T=8192, HV=96, form="packed")
    assert packed.args["turns"] is None and packed.grid == (3 * 192,)


@pytest.mark.parametrize("heads", [1, 66, 132])
def test_whole_scans_are_all_ahead(heads):
    parts = [part(pid, heads, 1, 2, heads, 50, 1) for pid in range(heads)]
    assert parts == [(pid, 0, 50, 0) for pid in range(heads)]


def test_guards_of_whole_numbers():
    """The words that say what is there lie between guards too."""
    guarded = Guarded()
    words = guarded((3, 2), dtype=torch.int32)
    words.fill_(1)
    assert guarded.unhurt()
    room, _ = guarded.rooms[0]
    room[GUARD - 1] = 1
    assert not guarded.unhurt()
