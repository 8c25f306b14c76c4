"""The expressions of a stage's contract: refused when the stage is loaded, or where they are computed."""

from pathlib import Path

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.graphs.flops import flops
from chunkwise.runner.main import main
from chunkwise.runner.planning.plan import make_step
from chunkwise.runner.stage_files.stage_library import scan_stages

STAGE = '''\
"""Its input, times scale."""

from chunkwise.stages._contract import Contract, Launcher, Port

CONTRACT = Contract(
    inputs={"x": Port("B T HV")},
    outputs={"y": Port("B T HV")},
    params={"scale": 2.0},
    requires=("HV % 2 == 0",),
    flops="B * T * HV",
)


def reference(x, *, scale, C):
    return {"y": scale * x}


def launch(x, y, part, *, seqs, config):
    return []


LAUNCHERS = [Launcher("own", launch, lambda axes, device: [{"BT": 16}], scratch={"part": Port("B BT")})]
'''
PIPELINE = """\
schema: pipeline/v1
name: op
axes: {C: 16}
inputs: {x: B T HV}
stages: {one: {use: times, in: {x: x}}}
outputs: {y: one.y}
"""
BROKEN = {
    "flops: syntax": ('"B * T * HV"', '"B * T *"', "CW401", "times: flops: expected a value, found the end"),
    "flops: name": ('"B * T * HV"', '"B * T * HX"', "CW402", "times: flops: unknown name 'HX'"),
    "flops: function": ('"B * T * HV"', '"lg(T)"', "CW402", "times: flops: no function 'lg'"),
    "flops: param": ('"B * T * HV"', '"scale * T"', "CW402", "times: flops: unknown name 'scale'"),
    "flops: limit": ('"B * T * HV"', '"' + "(" * 70 + '"', "CW403", "times: flops: nested deeper than 64"),
    "flops: number": ('"B * T * HV"', "12", "CW502", "times: flops is '12', and a text belongs here"),
    "flops: comparison": ('"B * T * HV"', '"B > T"', "CW401",
                          "times: flops is a comparison, and a number belongs here"),
    "requires: syntax": ('"HV % 2 == 0"', '"HV % 2 = 0"', "CW401", "times: requires: '=' in an expression"),
    "requires: name": ('"HV % 2 == 0"', '"H % 2 == 0"', "CW402", "times: requires: unknown name 'H'"),
    "requires: number": ('"HV % 2 == 0"', '"HV % 2"', "CW401",
                         "times: requires is a number, and a comparison belongs here"),
    "requires: one text": ('("HV % 2 == 0",)', '"HV > 2"', "CW502",
                           "times: requires is 'HV > 2', and a tuple of texts belongs here"),
    "params: expression": ("2.0", '"HV ** -0.5"', "CW502",
                           "times: the default of scale is 'HV ** -0.5', and a number or None belongs here"),
    "params: nan": ("2.0", 'float("nan")', "CW502",
                    "times: the default of scale is 'nan', and a number or None belongs here"),
    "scratch: no port": ('Port("B BT")}', '"B BT"}', "CW502", "LAUNCHERS: scratch part of own is no Port"),
}  # fmt: skip


@pytest.mark.parametrize("old, new, code, message", BROKEN.values(), ids=BROKEN)
def test_what_can_be_seen_when_the_stage_is_loaded(tmp_path, old, new, code, message):
    assert STAGE.count(old) == 1
    (tmp_path / "times.py").write_text(STAGE.replace(old, new))
    [found] = scan_stages([tmp_path])[1]
    assert (found.code, found.message) == (code, message)
    assert found.mark.line == STAGE[: STAGE.index(old)].count("\n") + 1


def test_the_place_inside_the_text(tmp_path, capsys):
    (tmp_path / "times.py").write_text(STAGE.replace("B * T * HV", "B * T * HX"))
    (tmp_path / "op.yaml").write_text(PIPELINE)
    assert main(["check", str(tmp_path / "op.yaml"), "--stages", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith('''\
times.py:10:20
   |
10 |     flops="B * T * HX",
   |                    ^^
help: the axes of the stage are B, C, HV, T

''')


@pytest.fixture
def op(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(old="", new=""):
        Path("times.py").write_text(STAGE.replace(old, new) if old else STAGE)
        Path("op.yaml").write_text(PIPELINE)
        return load("op.yaml", stages=[tmp_path], backend="interpret")

    return make


def counted(op, **sizes):
    return flops(op.whole.nodes["one"], sizes)


def test_a_count(op):
    assert counted(op(), B=2, T=3, HV=4) == 24.0


@pytest.mark.parametrize("text, message", [
    ("B / (T - 3)", "flops of one (times): division by zero in B / (T - 3), for B = 2, T = 3"),
    ("B * (T - 5)", "flops of one (times): B * (T - 5) is -4, for B = 2, T = 3, and a count is never below 0"),
    ("exp(T * 1000)", "flops of one (times): the result is too large in exp(T * 1000), for T = 3"),
])  # fmt: skip
def test_a_count_without_a_value(op, capsys, text, message):
    one = op("B * T * HV", text)
    with pytest.raises(ChunkwiseError) as caught:
        counted(one, B=2, T=3, HV=4)
    [found] = caught.value.diagnostics
    assert (found.code, found.message) == ("CW405", message)
    assert (Path(found.mark.file).name, found.mark.line) == ("times.py", 10)
    for command in ("check", "run"):
        assert main([command, "op.yaml", "--stages", ".", "--axes", "B=2,T=3,HV=4"]) == 2
        assert f"error[CW405]: {message}\n  --> times.py:10:11\n" in capsys.readouterr().err


@pytest.mark.parametrize("old, new, message", [
    ("B BT", "B BK", "scratch part [B BK] of times: BK has no number"),
    ('[{"BT": 16}]', "[]", "own of times ships no configuration for B = 2, T = 3, HV = 4, C = 16"),
])  # fmt: skip
def test_buffers_that_no_configuration_sizes(op, old, new, message):
    graph, sizes = op(old, new).whole, dict(B=2, T=3, HV=4, C=16, N=2, NT=2)
    with pytest.raises(ChunkwiseError) as caught:
        make_step(graph, graph.nodes["one"], sizes, torch.float32, "interpret", torch.device("cpu"), {"one.y"}, ())
    [found] = caught.value.diagnostics
    assert (found.code, found.message, found.mark.line) == ("CW502", message, 22)
