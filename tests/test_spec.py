"""Pipeline files to specs: every structural error by its exact text, and the spec of a right file by its places.

Each tests/bad/NAME.yaml has its errors, as a user sees them, in tests/bad/NAME.txt.
"""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chunkwise.runner.diagnostics.codes import CODES
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.diagnostics.render_errors import as_json
from chunkwise.runner.loading.load_spec import parse_spec, read_spec

BAD = Path(__file__).parent / "bad"
PIPELINES = Path(__file__).resolve().parents[1] / "pipelines"
CASES = sorted(BAD.glob("*.yaml"))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_bad_file(file, monkeypatch):
    monkeypatch.chdir(BAD)
    with pytest.raises(ChunkwiseError) as caught:
        read_spec(file.name)
    assert str(caught.value) + "\n" == file.with_suffix(".txt").read_text()


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_bad_file_with_windows_line_breaks_and_byte_order_mark(file):
    """Same codes, lines and columns as with \\n."""
    data = file.read_bytes()
    found = [errors_of(each) for each in (data, b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))]
    assert found[0] == found[1]
    assert found[0] == sorted(found[0], key=lambda each: each[1:])


def errors_of(data):
    with pytest.raises(ChunkwiseError) as caught:
        parse_spec(data, "a.yaml")
    places = map(as_json, caught.value.diagnostics)
    return [(each["code"], each["line"], each["column"]) for each in places]


def test_every_structural_code_has_a_case():
    told = "".join(file.read_text() for file in BAD.rglob("*.txt"))
    missing = [code for code in CODES if "CW103" <= code <= "CW219" and f"error[{code}]" not in told]
    assert missing == []


def test_a_right_file_has_its_places():
    spec = read_spec(PIPELINES / "gated_delta.yaml")
    lines = (PIPELINES / "gated_delta.yaml").read_text().split("\n")

    def marked(mark):
        assert mark.line == mark.end_line
        return lines[mark.line - 1][mark.column - 1 : mark.end_column - 1]

    assert (spec.name, spec.source, spec.axes["C"].value) == ("gated_delta", "arXiv:2412.06464", 64)
    for entry in spec.inputs.values():
        assert marked(entry.mark) == entry.name
        assert marked(entry.shape_mark).split() == list(entry.shape)
        assert all(marked(law.mark) == law.value for law in entry.where)
    assert marked(spec.inputs["g"].dtype_mark) == "f32"
    assert marked(spec.inputs["g"].unit_mark) == spec.inputs["g"].unit == "log_decay/ln/token"
    assert spec.inputs["initial_state"].optional and not spec.inputs["g"].optional
    for stage in spec.stages.values():
        assert (marked(stage.mark), marked(stage.use_mark)) == (stage.id, stage.use)
        for edge in stage.edges:
            assert (marked(edge.port_mark), marked(edge.source_mark)) == (edge.port, edge.source)
    for output in spec.outputs.values():
        assert (marked(output.mark), marked(output.source_mark)) == (output.name, output.source)
    definition = spec.definition
    for written in (*definition.step, *definition.state.values(), *definition.final.values(), *spec.params.values()):
        assert marked(written.mark) == written.value
    assert definition.step[1].value == "S = S + outer(k, beta * (v - k @ S))"


def test_the_parts_that_shipped_files_do_not_use():
    spec = parse_spec(
        """\
schema: pipeline/v1
name: all
inputs:
  x: {shape: B 3 1, dtype: int, where: [">= 0", 0..9], optional: true, default: 0.5, doc: "digits, one a row"}
  n: 7
constraints: [K <= 256, 'C >= 16']
definition: {let: [a = 1], dense: [y = x]}
stages: {s: {use: l2norm, recompute: true, with: {eps: 1e-6, m: a}}}
outputs: {y: s.y}
""",
        "a.yaml",
    )
    x = spec.inputs["x"]
    assert (x.shape, x.dtype, x.default.value, x.doc) == (("B", "3", "1"), "int", 0.5, "digits, one a row")
    assert [law.value for law in x.where] == [">= 0", "0..9"]
    assert spec.inputs["n"].shape == ("7",)
    assert [each.value for each in spec.constraints] == ["K <= 256", "C >= 16"]
    assert spec.stages["s"].recompute and spec.stages["s"].edges == ()
    assert spec.stages["s"].params["eps"].value == 1e-6
    assert [each.value for each in spec.definition.let + spec.definition.dense] == ["a = 1", "y = x"]


def test_a_thousand_errors_are_cut_short():
    with pytest.raises(ChunkwiseError) as caught:
        parse_spec("schema: pipeline/v1\n" + "".join(f"key{i}: 1\n" for i in range(1000)), "a.yaml")
    assert len(caught.value.diagnostics) == 101
    assert caught.value.diagnostics[-1].message == "904 more errors are not shown"


def test_no_such_file_names_the_nearest(monkeypatch):
    monkeypatch.chdir(PIPELINES.parent)
    with pytest.raises(ChunkwiseError) as caught:
        read_spec("pipelines/gated_dleta.yaml")
    assert str(caught.value) == (
        "error[CW101]: no such file: pipelines/gated_dleta.yaml\nhelp: did you mean pipelines/gated_delta.yaml?"
    )


@pytest.mark.parametrize("path", ["pipelines", "no/such.yaml", "nul\0.yaml", "x" * 5000])
def test_a_path_that_cannot_be_read(path, monkeypatch):
    monkeypatch.chdir(PIPELINES.parent)
    with pytest.raises(ChunkwiseError) as caught:
        read_spec(path)
    assert [each.code for each in caught.value.diagnostics] == ["CW101"]


SHIPPED = [file.read_bytes() for file in (*sorted(PIPELINES.glob("*.yaml")), *CASES)]
PIECES = [b"{", b"}", b"[", b"]", b":", b" ", b"\n", b"- ", b"*", b"&a ", b"*a", b"!x ", b"\t", b'"', b"'", b"|", b"#",
          b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"~", b"<<: ", b"? ", b"%", b"\\", b"---\n", b"1e999",
          b"0x", b"0..1", b"true", b"null", b"@", b"`", b"\xf0\x9f\x98\x80", b"\r"]  # fmt: skip


def only_a_chunkwise_error(data):
    try:
        parse_spec(data, "fuzz.yaml")
    except ChunkwiseError as error:
        assert str(error).startswith("error[CW")
        assert all(each.code in CODES for each in error.diagnostics)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
@example(b'a: "\\UFFFFFFFF"')
@example(b"%YAML 1." + b"9" * 5000)
@example(b"a: " + b"9" * 5000)
@example(b"a: 0x" + b"9" * 5000)
@example(b"? " * 200)
def test_any_bytes_give_a_spec_or_a_chunkwise_error(data):
    only_a_chunkwise_error(data)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_a_mutated_file_gives_a_spec_or_a_chunkwise_error(seed):
    random_one = random.Random(seed)
    data = random_one.choice(SHIPPED)
    for _ in range(random_one.randint(1, 4)):
        at = random_one.randrange(len(data))
        cut = at + random_one.choice([0, 0, 1, 3, 30])
        data = data[:at] + random_one.choice([*PIECES, b""]) + data[cut:]
    only_a_chunkwise_error(data)
