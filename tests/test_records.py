"""Records: one line each, the same after reading, never edited unseen."""

import json
from dataclasses import replace

import pytest

from chunkwise.runner import ChunkwiseError
from chunkwise.runner.benching.record import (
    STAGE_ALONE,
    Clock,
    Edge,
    Error,
    Kernel,
    Limits,
    Record,
    Source,
    Timing,
    What,
    Workload,
    line,
    read_records,
)

FULL = Record(
    What("gdn", "scan", "chunk_delta_h", "forward", "chunkwise triton", ("a", "b"), Source("x.yaml", 24), "c0de"),
    Workload("tiny", {"B": 1, "T": 256}, "bf16", "chunk", (100, 0, 156), True),
    Clock(STAGE_ALONE, "CUDA events", "cold"),
    Timing(0.5, 0.4, 0.7, 50, 1.5),
    {"gpu": "H200", "cpu_threads": 2},
    "machine",
    "2026-11-30T02:00:00Z",
    Limits(1e9, 10**6, 2.0, 2.0, 0.2, "memory", 40.0),
    (Kernel("k", 0.5, 255, 16, 65536, 12.5, "wgmma"), Kernel("other")),
    (Edge("scan.h", "scan", "out", 4096),),
    Error("op.o", 3e-3, 8e-3, "definition"),
    10.5,
    60.0,
    "verified",
    "",
    ("a note",),
)
BARE = Record(
    What("kda", "end to end", "", "", "fla 0.6.0"), Workload(None, {}, "fp32", "chunk", None, False),
    Clock("op eager", "wall clock", "warm"), None, {}, "machine", "2026-11-30T02:00:00Z", why="fla is not installed",
)  # fmt: skip


def written(tmp_path, *texts):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(texts))
    return path


def test_a_record_is_the_same_after_reading(tmp_path):
    assert read_records(written(tmp_path, line(FULL), "\n", line(BARE))) == [FULL, BARE]


def test_what_is_no_number_in_json_comes_back(tmp_path):
    off = replace(FULL, error=Error("op.o", float("inf"), 1.0, "definition"))
    (found,) = read_records(written(tmp_path, line(off)))
    assert found.error.rel_l2_err == float("inf")


def test_the_last_line_of_an_interrupted_run_is_passed_over(tmp_path):
    assert read_records(written(tmp_path, line(FULL), line(BARE)[:50])) == [FULL]


@pytest.mark.parametrize("change", [
    lambda d: d.update(schema="record/v2"), lambda d: d["timing"].update(median_ms=0.1), lambda d: d.pop("what"),
    lambda d: d["limits"].update(tflops_=1.0), lambda d: d.update(what=None),
])  # fmt: skip
def test_what_is_no_record_or_was_edited_is_refused_with_its_line(tmp_path, change):
    document = json.loads(line(FULL))
    change(document)
    with pytest.raises(ChunkwiseError, match=r"CW612(.|\n)*line 2, is no record"):
        read_records(written(tmp_path, line(BARE), json.dumps(document) + "\n"))


def test_the_key_tells_what_was_measured_from_how_it_came_out():
    again = replace(FULL, timing=None, why="out of memory", time="later", error=None)
    assert again.key == FULL.key and again.id != FULL.id
    others = [
        replace(FULL, environment_id="another"), replace(FULL, clock=Clock("stage inside", "CUDA events", "warm")),
        replace(FULL, what=replace(FULL.what, code="other")), replace(FULL, workload=replace(FULL.workload, name=None)),
    ]  # fmt: skip
    assert len({each.key for each in [FULL, *others]}) == 5
