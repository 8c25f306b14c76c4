"""Variants of other files: what extends and replace make of them, and every error by its exact text.

Each tests/bad/extends/NAME.yaml has its errors, as a user sees them, in NAME.txt; those without one are the bases.
"""

import json
import random
import time
from pathlib import Path

import jsonschema
import pytest
import yaml

from chunkwise.runner import load
from chunkwise.runner.calling.fingerprint import fingerprint, plain
from chunkwise.runner.diagnostics.codes import CODES
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.diagnostics.explanations import EXPLANATIONS
from chunkwise.runner.loading.decode_text import MAX_BYTES
from chunkwise.runner.loading.extend import MOST_FILES
from chunkwise.runner.loading.load_spec import parse_spec, read_spec
from chunkwise.runner.loading.merge_trees import merged
from chunkwise.runner.loading.pipelines import FOLDER, names
from chunkwise.runner.loading.read_tree import read_tree
from chunkwise.runner.loading.rewire import SOURCE_IN
from chunkwise.runner.loading.schema import pipeline_schema
from chunkwise.runner.loading.spec_text import scalar, spec_text
from chunkwise.runner.loading.yaml_text import MAX_NODES, parse_tree
from chunkwise.runner.main import main
from chunkwise.runner.stage_files.stage_library import find_stages

BAD = Path(__file__).parent / "bad" / "extends"
VARIANTS = [name for name in names() if "\nextends:" in (FOLDER / f"{name}.yaml").read_text()]
EXAMPLES = sorted((Path(__file__).parents[1] / "examples" / "variants").glob("*.yaml"))


@pytest.mark.parametrize("file", sorted(BAD.glob("*.txt")), ids=lambda file: file.stem)
def test_bad_variant(file, monkeypatch):
    monkeypatch.chdir(BAD)
    with pytest.raises(ChunkwiseError) as caught:
        load(file.with_suffix(".yaml").name)
    assert str(caught.value) + "\n" == file.read_text()


@pytest.mark.parametrize("own, place", [(True, "v.yaml:8:28"), (False, "simple_gla.yaml:")], ids=["own line", "none"])
def test_another_op_than_the_definition_is_told_at_the_variants_own_line(tmp_path, monkeypatch, capsys, own, place):
    """And at the base's definition where the variant has none."""
    monkeypatch.chdir(tmp_path)
    step = "  definition:\n    step:\n      o = scale * (q @ S): o = 2 * scale * (q @ S)\n"
    edge = "  edges: {q: 2 * q}\n"
    text = f"schema: pipeline/v1\nname: v\nsummary: x\nextends: simple_gla\nreplace:\n{step if own else edge}"
    Path("v.yaml").write_text(text)
    assert main(["verify", "v.yaml", "--device", "cpu", "--axes", "B=1,T=20,H=1,HV=1,K=8,V=8"]) == 1
    first = capsys.readouterr().err.split("error[CW801]")[1].splitlines()[1]
    assert place in first and (own or first.endswith(":1"))


def test_every_mark_is_of_the_file_that_holds_the_text():
    """In a chain of three: what stands at each mark, in the mark's own file, is what the spec says."""
    spec = read_spec(FOLDER / "kda_bounded.yaml")
    texts = {file: Path(file).read_text() for file in (spec.file, *spec.bases)}
    assert [Path(file).stem for file in texts] == ["kda_bounded", "kda", "kda_core"]

    def marked(mark):
        assert mark.text == texts[mark.file] and mark.line == mark.end_line
        return mark.source[mark.column - 1 : mark.end_column - 1]

    for entry in spec.inputs.values():
        assert (marked(entry.mark), marked(entry.shape_mark).split()) == (entry.name, list(entry.shape))
    for stage in spec.stages.values():
        assert (marked(stage.mark), marked(stage.use_mark)) == (stage.id, stage.use)
        for edge in stage.edges:
            assert (marked(edge.port_mark), marked(edge.source_mark)) == (edge.port, edge.source)
    for written in (*spec.definition.step, spec.params["scale"]):
        assert marked(written.mark) == written.value
    stems = [Path(written.mark.file).stem for written in spec.definition.step]
    assert stems == ["kda", "kda", "kda_bounded", "kda", "kda"]


# --- what replace does


def text_of(replace="", added="", base="base"):
    return f"schema: pipeline/v1\nname: me\nextends: {base}\n{added}" + (f"replace:\n{replace}" if replace else "")


@pytest.fixture
def variant(monkeypatch):
    """The spec of a variant of tests/bad/extends/base.yaml."""
    monkeypatch.chdir(BAD)
    return lambda replace="", added="": parse_spec(text_of(replace, added), "me.yaml")


def step(spec):
    return [line.value for line in spec.definition.step]


def edges(spec):
    return {f"{entry.id}.{edge.port}": edge.source for entry in spec.stages.values() for edge in entry.edges}


def test_with_nothing_changed_it_is_its_base_under_another_name(variant):
    base = read_spec("base.yaml")
    mine = variant()
    assert (mine.name, mine.summary, mine.source) == ("me", "", "")
    assert (mine.inputs, mine.stages, mine.definition) == (base.inputs, base.stages, base.definition)
    assert list(mine.bases) == ["base.yaml"] and mine.bases["base.yaml"].line == 3


def test_entries_are_replaced_in_place_and_added_at_the_end(variant):
    spec = variant("  inputs: {k: B T HV K}\n", "inputs: {x: B T HV V}\n")
    assert list(spec.inputs) == ["q", "k", "v", "g", "x"] and spec.inputs["k"].shape == ("B", "T", "HV", "K")


def test_every_edge_of_the_base_reads_another_source_and_the_variants_own_do_not(variant):
    spec = variant("  edges: {k: knorm.y, out.o: gate.y}\n", "stages: {knorm: {use: l2norm, in: {x: k}}}\n")
    found = edges(spec)
    assert (found["scan.k"], found["out.k"], found["knorm.x"]) == ("knorm.y", "knorm.y", "k")
    assert spec.outputs["o"].source == "gate.y"


def test_two_sources_change_places(variant):
    found = edges(variant("  edges: {q: k, k: q}\n"))
    assert (found["out.q"], found["out.k"], found["scan.k"]) == ("k", "q", "q")


def test_a_stage_keeps_what_is_not_replaced(variant):
    spec = variant("  stages: {out: {use: chunk_x, in: {g: null, k: q, a: v}, with: {scale: null}, recompute: true}}\n")
    out = spec.stages["out"]
    assert (out.use, out.recompute, dict(out.params)) == ("chunk_x", True, {})
    assert {edge.port: edge.source for edge in out.edges} == {"q": "q", "k": "q", "v": "v", "h": "scan.h", "a": "v"}


def test_edges_come_before_what_is_said_of_one_stage(variant):
    spec = variant("  edges: {k: q}\n  stages: {scan: {in: {k: v}}}\n")
    assert (edges(spec)["scan.k"], edges(spec)["out.k"]) == ("v", "q")


@pytest.mark.parametrize(
    "change, expected",
    [
        ("      S = exp(g) * S: S = exp(2 * g) * S\n", ["S = exp(2 * g) * S", "S = S + outer(k, v)"]),
        ("      S = exp(g) * S: null\n", ["S = S + outer(k, v)"]),
        ("      S = exp(g) * S: [a = exp(g), S = a * S]\n", ["a = exp(g)", "S = a * S", "S = S + outer(k, v)"]),
        ("      - S = k\n", None),
    ],
    ids=["one", "none", "two", "all"],
)
def test_lines_of_the_definition(variant, change, expected):
    found = step(variant(f"  definition:\n    step:\n{change}"))
    assert found == (["S = k"] if expected is None else [*expected, "o = scale * (q @ S)"])


def test_lines_and_states_are_added_at_the_end(variant):
    spec = variant(added='definition: {state: {z: "zeros(K)"}, step: [o = 2 * o], final: {last: S}}\n')
    assert step(spec)[-1] == "o = 2 * o" and list(spec.definition.state) == ["S", "z"]
    assert list(spec.definition.final) == ["last"]


def test_what_is_left_empty_is_gone(variant):
    spec = variant("  axes: {C: null}\n  params: {scale: null}\n")
    assert (spec.axes, spec.params) == ({}, {})


def test_a_section_that_the_base_does_not_have_is_added(variant):
    assert [each.value for each in variant(added="constraints: [K <= 128]\n").constraints] == ["K <= 128"]


@pytest.mark.parametrize(
    "text, sources",
    [
        ("k", ["k"]),
        ("a.k", ["a.k"]),
        ("elu(k) + 1", ["elu", "k"]),
        ("2 * a.k / a.kk - 1e-6", ["a.k", "a.kk"]),
        ("x1*y_2", ["x1", "y_2"]),
    ],
)
def test_which_sources_an_edge_reads(text, sources):
    assert SOURCE_IN.findall(text) == sources


def test_a_source_inside_an_expression_is_not_replaced_in_silence():
    """With trees, whatever the grammar of an edge is."""
    base = parse_tree((BAD / "base.yaml").read_text().replace("{k: k, v: v, g", "{k: elu(k) + 1, v: v, g"), "base.yaml")
    for more, expected in (("", 1), ("  stages: {scan: {in: {k: elu(q)}}}\n", 0)):
        variant = parse_tree(text_of("  edges: {k: q}\n" + more), "me.yaml")
        errors = merged(base[0], variant[0])[1]
        notes = [[note.text for note in each.notes] for each in errors]
        assert notes == [["scan.k reads elu(k) + 1"]] * expected


# --- chains and limits


def chain(folder, length):
    """A base and the files that extend it one after the other; the last one."""
    (folder / "f1.yaml").write_text((BAD / "base.yaml").read_text())
    for number in range(2, length + 1):
        (folder / f"f{number}.yaml").write_text(text_of(base=f"f{number - 1}"))
    return folder / f"f{length}.yaml"


def refusal(path):
    with pytest.raises(ChunkwiseError) as caught:
        read_spec(path)
    return caught.value.diagnostics[0]


def test_so_many_files_and_no_more(tmp_path):
    assert len(read_spec(chain(tmp_path, MOST_FILES)).bases) == MOST_FILES - 1
    error = refusal(chain(tmp_path, MOST_FILES + 1))
    assert (error.code, error.message) == ("CW106", "more than 8 files extend one another")
    assert Path(error.mark.file).name == "f2.yaml" and len(error.notes) == MOST_FILES - 1


def test_the_files_together_are_no_longer_than_one_may_be(tmp_path):
    path = chain(tmp_path, 3)
    for part, limit in (("f1", MAX_BYTES // 2), ("f3", MAX_BYTES // 2 - 2000)):
        file = tmp_path / f"{part}.yaml"
        file.write_text(file.read_text() + "#" * (limit - file.stat().st_size))
    read_spec(path)
    path.write_text(path.read_text() + "#" * 2000)
    error = refusal(path)
    assert (error.code, error.message) == ("CW106", "this file and what it extends are longer than 256 KiB")
    assert Path(error.mark.file).name == "f3.yaml" and error.mark.line == 3


def test_the_files_together_hold_no_more_values_than_one_may(tmp_path):
    path = chain(tmp_path, 2)
    for part in ("f1", "f2"):
        file = tmp_path / f"{part}.yaml"
        constraints = "\n".join(["constraints:", *["  - K <= 64"] * (MAX_NODES // 2)])
        file.write_text(file.read_text() + constraints + "\n")
    error = refusal(path)
    assert error.code == "CW106" and error.message.startswith("this file and what it extends hold more than 10,000")


def test_a_hostile_variant_is_refused_in_a_moment(tmp_path):
    path, many = chain(tmp_path, 2), range(1000)
    (tmp_path / "f1.yaml").write_text((BAD / "base.yaml").read_text().replace("inputs:", "inputs:\n" + "".join(
        f"  a_name_{number}_of_many: B T H K\n" for number in many
    ), 1))  # fmt: skip
    wrong = "".join(f"    other_name_{number}_of_many: null\n" for number in many)
    path.write_text(text_of(f"  inputs:\n{wrong}", base="f1"))
    started = time.process_time()
    with pytest.raises(ChunkwiseError) as caught:
        read_spec(path)
    assert len(caught.value.diagnostics) == 101 and time.process_time() - started < 20


def test_a_shipped_base_may_be_named_from_anywhere_and_a_copy_beside_the_file_may_not(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text_of(base="gated_delta"))
    assert read_spec(path).stages.keys() == read_spec(FOLDER / "gated_delta.yaml").stages.keys()
    (tmp_path / "gated_delta.yaml").write_text((FOLDER / "gated_delta.yaml").read_text())
    assert refusal(path).code == "CW215"


SHIPPED = [file.read_bytes() for file in (*(FOLDER / f"{name}.yaml" for name in VARIANTS), *sorted(BAD.glob("*.yaml")))]
PIECES = [b"null", b"{", b"}", b"[", b"]", b": ", b"\n", b"  ", b"- ", b"q", b"replace:", b"extends: base\n", b"S = S"]


def test_mutated_variants_give_a_spec_that_reads_back_or_a_chunkwise_error(monkeypatch):
    monkeypatch.chdir(BAD)
    random_one = random.Random(8)
    for _ in range(400):
        data = random_one.choice(SHIPPED)
        at = random_one.randrange(len(data))
        data = data[:at] + random_one.choice(PIECES) + data[at + random_one.choice([0, 1, 4, 20]) :]
        try:
            spec = parse_spec(data, "fuzz.yaml")
        except ChunkwiseError as error:
            assert all(each.code in CODES for each in error.diagnostics) and str(error).startswith("error[CW")
        else:
            assert plain(parse_spec(spec_text(spec), "alone.yaml")) == plain(spec)


# --- show --resolved


def of_graph(graph):
    """Everything of a graph but its places and the order in which the file has its parts."""
    values = {
        name: (value.axes, value.dtype, value.unit, [law.text for law in value.laws])
        for name, value in graph.values.items()
    }
    nodes = {
        name: (node.stage.name, node.inputs, node.outputs, node.params, node.recompute)
        for name, node in graph.nodes.items()
    }
    spec = graph.spec
    inputs = {name: (entry.optional, entry.doc, entry.default) for name, entry in spec.inputs.items()}
    written = [{name: each.value for name, each in part.items()} for part in (spec.axes, spec.params)]
    definition = spec.definition and [
        [each.value for each in part] if isinstance(part, tuple) else {name: each.value for name, each in part.items()}
        for part in (getattr(spec.definition, name) for name in ("state", "let", "step", "final", "dense"))
    ]
    return values, list(nodes), nodes, graph.outputs, inputs, written, definition


@pytest.mark.parametrize("file", [*names(), *EXAMPLES], ids=lambda file: Path(file).stem)
def test_the_resolved_file_stands_on_its_own_and_is_the_same_graph(file, tmp_path, capsys):
    assert main(["show", str(file), "--resolved"]) == 0
    path = tmp_path / "resolved.yaml"
    path.write_text(capsys.readouterr().out)
    assert "extends" not in yaml.safe_load(path.read_text())
    assert of_graph(load(path).whole) == of_graph(load(file).whole)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_library_op_depends_on_the_resolved_content_alone(name, tmp_path):
    (tmp_path / "alone.yaml").write_text(spec_text(read_spec(FOLDER / f"{name}.yaml")))
    assert fingerprint(load(tmp_path / "alone.yaml")) == fingerprint(load(name))


def test_another_base_makes_another_library_op(tmp_path):
    base = (BAD / "base.yaml").read_text()
    (tmp_path / "me.yaml").write_text(text_of())
    found = []
    for text in (base, base.replace("K ** -0.5", "1"), base + "# a remark\n"):
        (tmp_path / "base.yaml").write_text(text)
        found.append(fingerprint(load(tmp_path / "me.yaml")))
    assert found[0] == found[2] != found[1]


def test_the_resolved_text(monkeypatch, capsys):
    monkeypatch.chdir(FOLDER)
    assert main(["show", "gated_delta_l2norm", "--resolved"]) == 0
    assert capsys.readouterr().out == (BAD.parents[1] / "resolved" / "gated_delta_l2norm.yaml").read_text()


def test_what_does_not_fit_together_can_be_looked_at(tmp_path, capsys):
    path = tmp_path / "loop.yaml"
    path.write_text((BAD / "base.yaml").read_text().replace("in: {x: g}", "in: {x: cumsum.y}"))
    assert main(["show", str(path)]) == 2 and "[CW226]" in capsys.readouterr().err
    assert main(["show", str(path), "--resolved"]) == 0
    assert "cumsum: {use: chunk_local_cumsum, in: {x: cumsum.y}}" in capsys.readouterr().out


def test_show_names_what_is_extended(capsys, monkeypatch):
    monkeypatch.chdir(BAD.parents[2])
    assert main(["show", str(Path("pipelines/kda_bounded.yaml"))]) == 0
    assert "\nextends pipelines/kda.yaml, which extends pipelines/kda_core.yaml\n" in capsys.readouterr().out
    assert main(["show", "kda_bounded", "--json"]) == 0
    assert [Path(file).stem for file in json.loads(capsys.readouterr().out)["extends"]] == ["kda", "kda_core"]


def test_a_stage_cannot_be_resolved(capsys):
    assert main(["show", "chunk_o", "--resolved", "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["message"] == "--resolved is for a pipeline, and chunk_o is a stage"


@pytest.mark.parametrize(
    "text",
    ["a", "0..1", "<= 0", "1e-3", "true", "null", "~", "a: b", "a #b", "a, b", "- a", "'a'", '"a"', "a\\b", "é", "a\nb",
     " a", "a:", "", "[a]", "0x1", ".5", "-", "arXiv:1; b", "?", "&a", "*a", "!a", "a\tb", "K ** -0.5"],
)  # fmt: skip
@pytest.mark.parametrize("flow", [False, True])
def test_a_scalar_reads_back_as_itself(text, flow):
    written = scalar(text, flow)
    root, errors = parse_tree(f"{{x: {written}}}" if flow else f"x: {written}\n", "a.yaml")
    assert (root.entries["x"].value.value, errors) == (text, [])


# --- explanations and schema


def test_the_examples_of_the_explanations_give_their_codes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for code in ("CW215", "CW216", "CW217", "CW218", "CW219"):
        Path("me.yaml").write_text(f"schema: pipeline/v1\nname: me\n{EXPLANATIONS[code].example}\n")
        assert refusal("me.yaml").code == code


@pytest.fixture(scope="module")
def validator():
    return jsonschema.Draft7Validator(pipeline_schema(find_stages()))


def test_the_schema_takes_variants_that_are_right(validator):
    for file in (FOLDER / f"{name}.yaml" for name in VARIANTS):
        assert not list(validator.iter_errors(yaml.safe_load(file.read_text())))


@pytest.mark.parametrize(
    "replace, good",
    [
        ("  stages: {scan: {use: chunk_h, in: {k: null}}, out: null}\n", True),
        ("  stages: {scan: {use: chunk_x}}\n", False),
        ("  edges: {k: null, scan.h: q}\n", True),
        ("  edges: {scan.h.x: q}\n", False),
        ("  definition: {step: {a = b: [c = d, e = f]}, let: [a = 1]}\n", True),
        ("  definition: {step: {a = b: {c: d}}}\n", False),
        ("  inputs: {q: null, k: {dtype: f32}}\n", False),
        ("  summary: no\n", False),
    ],
)
def test_the_schema_and_the_loader_agree_on_replace(replace, good, validator):
    text = text_of(replace)
    assert bool(list(validator.iter_errors(yaml.safe_load(text)))) != good
    if good:
        read_tree(text, "me.yaml")
    elif "chunk_x" not in text:  # which stages there are is no business of the loader
        with pytest.raises(ChunkwiseError):
            read_tree(text, "me.yaml")


@pytest.mark.parametrize("name", ["path", "forgotten", "without_extends"])
def test_the_schema_refuses_variants_that_are_wrong(name, validator):
    assert list(validator.iter_errors(yaml.safe_load((BAD / f"{name}.yaml").read_text())))
