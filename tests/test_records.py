"""Records: one line each, the same after reading, never edited unseen."""

import json
from dataclasses import replace

import pytest
from support.records import BARE, FULL

from chunkwise.runner import ChunkwiseError
from chunkwise.runner.benching.record import Clock, Error, content_id, line, read_records


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


@pytest.mark.parametrize("written_of_it", [0, 5, 50, -1])
def test_the_last_line_of_an_interrupted_run_is_passed_over(tmp_path, written_of_it):
    assert read_records(written(tmp_path, line(FULL), line(BARE)[:written_of_it])) == [FULL]


def test_a_file_of_something_else_is_no_interrupted_run(tmp_path):
    with pytest.raises(ChunkwiseError, match="CW612"):
        read_records(written(tmp_path, "something else, without the end of a line"))


@pytest.mark.parametrize("change", [
    lambda d: d.update(schema="record/v2"), lambda d: d["timing"].update(median_ms=0.1), lambda d: d.pop("what"),
    lambda d: d["limits"].update(tflops_=1.0), lambda d: d.update(what=None),
])  # fmt: skip
def test_what_is_no_record_or_was_edited_is_refused_with_its_line(tmp_path, change):
    document = json.loads(line(FULL))
    change(document)
    with pytest.raises(ChunkwiseError, match=r"CW612(.|\n)*line 2, is no record"):
        read_records(written(tmp_path, line(BARE), json.dumps(document) + "\n"))


def with_id(document):
    """As someone would write it who knows how ids come about."""
    content = {name: each for name, each in document.items() if name not in ("schema", "id")}
    return json.dumps({**document, "id": content_id(content)}) + "\n"


@pytest.mark.parametrize("change, why", [
    (lambda d: d["timing"].update(median_ms="nan"), "timing: median_ms is nan"),
    (lambda d: d["timing"].update(p20_ms=-1.0), "timing: p20_ms is -1.0"),
    (lambda d: d["what"].update(implementation=" "), "what: implementation is empty"),
    (lambda d: d["timing"].update(median_ms="fast"), "'fast' stands where a number belongs"),
    (lambda d: d["timing"].update(runs=True), "True stands where int belongs"),
    (lambda d: d["clock"].update(scope="stage within"), "there is no scope 'stage within'"),
    (lambda d: d["workload"].update(axes={"T": "64"}), "'64' stands where int belongs"),
    (lambda d: d["workload"].update(axes=[]), r"\[\] stands where dict belongs"),
    (lambda d: d.update(kernels="k"), "'k' stands where list belongs"),
    (lambda d: d.update(gate=None), "None stands where str belongs"),
    (lambda d: d.update(what=[]), r"\[\] stands where dict belongs"),
])  # fmt: skip
def test_what_no_clock_and_no_bench_writes_is_refused_with_its_line(tmp_path, change, why):
    document = json.loads(line(FULL))
    change(document)
    with pytest.raises(ChunkwiseError, match=rf"CW612(.|\n)*line 2, is no record \(\w+: {why}\)"):
        read_records(written(tmp_path, line(BARE), with_id(document)))


def test_the_key_tells_what_was_measured_from_how_it_came_out():
    again = replace(FULL, timing=None, why="out of memory", time="later", error=None)
    assert again.key == FULL.key and again.id != FULL.id
    others = [
        replace(FULL, environment_id="another"), replace(FULL, clock=Clock("stage inside", "CUDA events", "warm")),
        replace(FULL, what=replace(FULL.what, code="other")), replace(FULL, workload=replace(FULL.workload, name=None)),
    ]  # fmt: skip
    assert len({each.key for each in [FULL, *others]}) == 5
