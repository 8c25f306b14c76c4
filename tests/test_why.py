"""``why``: exact answers for every kind of subject, and the place of every line of every answer."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.explaining.answer import Line
from chunkwise.runner.explaining.facts import Facts
from chunkwise.runner.explaining.subjects import explain, subjects
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.loading.pipelines import names
from chunkwise.runner.main import main

FOLDER = Path(__file__).parent / "why"
PIPELINES = [*names(), *sorted(str(path) for path in FOLDER.glob("*.yaml"))]
SIZES = dict(B=2, T=130, H=2, HV=4, K=32, V=48, SLOTS=5)


def golden() -> list:
    """(command, what it prints) of every command in tests/why/*.txt; each begins with ``$ chunkwise why``."""
    parts = [
        part.partition("\n")
        for path in sorted(FOLDER.glob("*.txt"))
        for part in path.read_text(encoding="utf-8").split("$ chunkwise ")[1:]
    ]
    return [pytest.param(command, text.strip("\n"), id=command.removeprefix("why ")) for command, _, text in parts]


@pytest.mark.parametrize("command, text", golden())
def test_the_exact_answer(command, text, monkeypatch, capsys):
    monkeypatch.chdir(FOLDER.parents[1])
    code = main(command.split())
    shown = capsys.readouterr()
    assert (shown.out + shown.err).strip("\n") == text
    assert code == (2 if shown.err else 0)


@cache
def facts(pipeline, budget=None, device="cpu", packed=False):
    op = load(pipeline)
    sizes = complete(op.whole, SIZES, 3 if packed else None)
    backend = "reference" if device == "cpu" else "triton"
    return Facts(op, sizes, torch.float32, device, "auto", backend, packed, True, budget)


def lines(facts):
    """Every line of every answer to every subject, the subject beside it."""
    for name in dict.fromkeys(name for name, _ in subjects(facts)):
        for answer in explain(facts, name):
            for section in answer.sections.values():
                yield from ((name, line) for line in section)


@cache
def lines_of(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").split("\n")


def word_at(line: Line) -> str:
    """The marked word, as it stands in the file on disk."""
    mark = line.mark
    source = lines_of(mark.file)[mark.line - 1]
    assert mark.line == mark.end_line
    return source[mark.column - 1 : mark.end_column - 1]


def asked():
    """Every pipeline as its file has it; a few more under a budget, on a GPU's class, with packed sequences."""
    for pipeline in PIPELINES:
        yield pytest.param(pipeline, {}, id=Path(pipeline).stem)
        if pipeline not in names() or pipeline == "mamba2":
            yield pytest.param(pipeline, dict(budget=0, device="sm_90"), id=f"{Path(pipeline).stem}, all rebuilt")
            yield pytest.param(pipeline, dict(budget=10**5, packed=True), id=f"{Path(pipeline).stem}, packed")


@pytest.mark.parametrize("pipeline, options", list(asked()))
def test_the_named_line_holds_the_named_word(pipeline, options):
    found = list(lines(facts(pipeline, **options)))
    assert len(found) > 100
    for subject, line in found:
        assert line.mark is not None, (subject, line.text)
        word = word_at(line)
        assert word.strip() and word in line.text, (subject, line.text, line.mark)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda name: Path(name).stem)
def test_a_step_rests_on_what_was_said_before(pipeline):
    """In the inference of a value, every fact that a step follows from is an earlier step's, or an axis."""
    known = facts(pipeline)
    for name in [each for each in known.graph.values]:
        for answer in explain(known, name):
            said = {*known.sizes}
            for line in answer.sections["inference"]:
                assert said.issuperset(line.because), (name, line)
                said.add(line.fact)
            assert name in said or known.graph.outputs.get(name) in said


def test_every_axis_of_a_shape_is_accounted_for():
    """The edges and rules before a value's last step name each of its axes."""
    known = facts("gated_delta")
    for name, value in known.op.whole.values.items():
        text = " ".join(line.text for line in explain(known, name)[0].sections["inference"])
        assert {str(axis) for axis in value.axes} <= set(re.findall(r"\w+", text))


def test_json_is_one_document_with_the_chain_as_data(capsys, monkeypatch):
    monkeypatch.chdir(FOLDER)
    assert main("why gated.yaml scan.h --device cpu --json".split()) == 0
    document = json.loads(capsys.readouterr().out)
    (answer,) = document["answers"]
    assert (document["ok"], document["sizes"]["NT"], answer["subject"]) == (True, 4, "scan.h")
    steps = {step["fact"]: step for step in answer["inference"]}
    assert steps["NT of scan"]["because"] == ["T", "C"]
    assert steps["scan.h"]["because"] == ["scan.k", "scan.w", "scan.u", "NT of scan"]
    place = {key: steps["scan.w"][key] for key in ("file", "line", "column", "end_line", "end_column")}
    assert place == dict(file="gated.yaml", line=26, column=53, end_line=26, end_column=57)


def test_a_refused_launcher_says_why():
    """No launcher of the scan takes K = 512; the answer has its reason and what a run would do."""
    op = load("gated_delta")
    sizes = complete(op.whole, {**SIZES, "K": 512})
    known = Facts(op, sizes, torch.bfloat16, "sm_90", "auto", "triton")
    texts = [line.text for line in explain(known, "scan")[0].sections["back end"]]
    assert texts[0] == "scan runs on triton: auto is triton on a GPU and the reference without, and the device is sm_90"
    assert texts[1].startswith("scan (chunk_delta_h): its launcher triton refuses: ")
    assert texts[2].startswith("scan (chunk_delta_h): its launcher pieces refuses: ")
    assert texts[3] == "scan (chunk_delta_h) has no kernel for these sizes, and a run refuses them"


def test_a_planner_s_reason_to_fuse_is_shown():
    known = facts("gated_delta")
    told = Facts(known.op, known.sizes, known.io, "cpu", "auto", "reference", fused={"kkt": "joined with solve"})
    assert explain(told, "kkt")[0].sections["fusion"][0].text == "kkt (chunk_scaled_dot_kkt) is joined with solve"


@pytest.mark.parametrize("device", ["sm_9", "sm_x", "tpu"])
def test_a_device_that_is_none_is_refused(device, capsys):
    assert main(["why", "gated_delta", "q", "--device", device]) == 2
    assert "error[CW601]" in capsys.readouterr().err
