"""The generated JSON Schema: current, valid, and in agreement with the loader."""

from pathlib import Path

import jsonschema
import pytest

from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.loading.load_spec import parse_spec
from chunkwise.runner.loading.schema import COMMAND, FILE, as_text, main, pipeline_schema
from chunkwise.runner.loading.yaml_nodes import List, Map
from chunkwise.runner.loading.yaml_text import parse_tree
from chunkwise.runner.stage_files.stage_library import find_stages

SHIPPED = sorted(FILE.parent.glob("*.yaml"))


@pytest.fixture(scope="module")
def validator():
    schema = pipeline_schema(find_stages())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def plain(node):
    if isinstance(node, Map):
        return {name: plain(entry.value) for name, entry in node.entries.items()}
    return [plain(each) for each in node.items] if isinstance(node, List) else node.value


def document(text):
    return plain(parse_tree(text, "a.yaml")[0])


def test_the_checked_in_file_is_current():
    assert FILE.read_text() == as_text(find_stages()), f"{FILE.name} is stale; run: {COMMAND}"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_files_are_valid_and_name_the_schema(file, validator):
    text = file.read_text()
    assert text.startswith("# yaml-language-server: $schema=./pipeline.v1.schema.json\n")
    assert not list(validator.iter_errors(document(text)))


MINIMAL = """\
schema: pipeline/v1
name: sums
inputs: {g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}}
stages: {cumsum: {use: chunk_local_cumsum, in: {x: g}}}
outputs: {y: cumsum.y}
"""

BROKEN_FOR_BOTH = {
    "unknown key": ("name: sums", "name: sums\nfoo: 1"),
    "missing key": ("name: sums\n", ""),
    "version": ("pipeline/v1", "pipeline/v2"),
    "name": ("name: sums", "name: 2sums"),
    "python word": ("name: sums", "name: lambda"),
    "axes": ("name: sums", "name: sums\naxes: {C: 0}"),
    "axes as text": ("name: sums", "name: sums\naxes: {C: x}"),
    "shape": ("B T HV", "B T-HV"),
    "dtype": ("f32", "f16"),
    "unit": ("log_decay/ln/token", "log_decay/ln"),
    "optional": ('"<= 0"', '"<= 0", optional: 1'),
    "default needs optional": ('"<= 0"', '"<= 0", default: 0'),
    "use is a path": ("chunk_local_cumsum", "./chunk_local_cumsum.py"),
    "edge": ("x: g", "x: a.b.c"),
    "edge as a list": ("x: g", "x: [g]"),
    "no outputs": ("{y: cumsum.y}", "{}"),
    "both forms": ("name: sums", "name: sums\ndefinition: {step: [a = g], dense: [a = g]}"),
    "neither form": ("name: sums", "name: sums\ndefinition: {state: {S: 0}}"),
    "recompute": ("in: {x: g}", "in: {x: g}, recompute: often"),
    "input named like a word": ("{g: {", "{class: B, g: {"),
}


@pytest.mark.parametrize("old, new", BROKEN_FOR_BOTH.values(), ids=BROKEN_FOR_BOTH)
def test_what_the_loader_refuses_the_schema_refuses(old, new, validator):
    text = MINIMAL.replace(old, new, 1)
    assert text != MINIMAL
    with pytest.raises(ChunkwiseError):
        parse_spec(text, "a.yaml")
    assert list(validator.iter_errors(document(text)))


GOOD_FOR_BOTH = {
    "as it is": ("sums", "sums"),
    "short input": ("inputs: {g: {", "inputs: {k: B T 1 K, one: 3, g: {"),
    "two laws": ('"<= 0"', '["<= 0", -5..0]'),
    "optional with default": ('"<= 0"', '"<= 0", optional: true, default: 0'),
    "params": ("name: sums", "name: sums\nparams: {scale: K ** -0.5, eps: 1e-6}"),
    "dense": ("name: sums", "name: sums\ndefinition: {dense: [a = g]}"),
}


@pytest.mark.parametrize("old, new", GOOD_FOR_BOTH.values(), ids=GOOD_FOR_BOTH)
def test_what_the_loader_takes_the_schema_takes(old, new, validator):
    text = MINIMAL.replace(old, new, 1)
    parse_spec(text, "a.yaml")
    assert not list(validator.iter_errors(document(text)))


@pytest.mark.parametrize(
    "old, new",
    [
        ("use: chunk_local_cumsum", "use: chunk_local_cumsun"),
        ("in: {x: g}", "in: {y: g}"),
        ("in: {x: g}", "in: {}"),
        ("in: {x: g}", "in: {x: g}, with: {scale: 1}"),
    ],
    ids=["stage", "port", "missing port", "parameter"],
)
def test_names_of_stages_ports_and_parameters_are_closed(old, new, validator):
    assert list(validator.iter_errors(document(MINIMAL.replace(old, new, 1))))


def test_ports_are_described_for_completion():
    schema = pipeline_schema(find_stages())
    stage = schema["properties"]["stages"]["additionalProperties"]
    branches = {each["if"]["properties"]["use"]["pattern"]: each for each in stage["allOf"]}
    branch = branches["^(?:chunk_local_cumsum)$"]
    words = branch["then"]["properties"]["in"]["properties"]["x"]["description"]
    assert words == "B T HV, f32, log_decay/ln/token, <= 0"
    assert branch["then"]["required"] == ["in"]


STAGE = '''\
"""Twice its input."""

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T HV")}, outputs={"y": Port("B T HV")})


def reference(x):
    return {"y": 2 * x}
'''


def test_a_schema_can_be_written_for_stages_of_ones_own(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "twice.py").write_text(STAGE)
    assert main(["--stages", str(tmp_path / "mine"), "--write", str(tmp_path / "own.json")]) == 0
    assert '"twice"' in (tmp_path / "own.json").read_text()


def test_a_broken_stage_ends_the_command_with_its_place(tmp_path: Path, capsys):
    (tmp_path / "twice.py").write_text("x = 1\nraise ValueError('no')\n")
    assert main(["--stages", str(tmp_path)]) == 2
    assert "error[CW501]" in capsys.readouterr().err
