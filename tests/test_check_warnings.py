"""What ``check`` warns of: exit 0, text on stderr, ``warnings`` in the JSON; nothing about what ships."""

import json

import pytest

from chunkwise.runner.loading.pipelines import names
from chunkwise.runner.main import main

GLA = """\
schema: pipeline/v1
name: op
axes: {C: 16}
inputs:
  q: B T H K
  k: B T H K
  v: B T H V
  g: {shape: B T H, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
stages:
  c:    {use: chunk_local_cumsum, in: {x: g}}
  scan: {use: chunk_h, in: {k: k, v: v, g: c.y}}
  out:  {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: c.y}, with: {scale: 1}}
outputs: {o: out.o}
"""
DELTA = """\
schema: pipeline/v1
name: op
axes: {C: 16}
inputs:
  k: {shape: B T H K, where: unit_norm(K)}
  v: B T H V
  beta: B T H
stages:
  kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta}}
  solve: {use: solve_tril, in: {A: kkt.A}}
  wy:    {use: recompute_w_u, in: {k: k, v: v, beta: beta, Ai: solve.Ai}}
  scan:  {use: chunk_delta_h, in: {k: k, w: wy.w, u: wy.u}}
  out:   {use: chunk_o, in: {q: k, k: k, v: v, h: scan.h}, with: {scale: 1}}
outputs: {o: out.o}
"""
SILU = '''\
"""SiLU."""

import torch

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")})


def reference(x):
    """x, y [B, T, H, K]."""
    return {"y": x * torch.sigmoid(x)}
'''
PICK = '''\
"""The values of the tokens that an index names."""

from chunkwise.stages._contract import INT, Contract, Port

CONTRACT = Contract(inputs={"index": Port("B T", INT)}, outputs={"y": Port("B T", INT)})


def reference(index):
    """index, y [B, T]."""
    return {"y": index}
'''


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys):
    """What check says of a text: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "silu.py").write_text(SILU)
    (tmp_path / "mine" / "pick.py").write_text(PICK)

    def check(text, *options):
        (tmp_path / "op.yaml").write_text(text)
        code = main(["check", "op.yaml", "--stages", "mine", *options])
        return code, *capsys.readouterr()

    return check


def changed(text, *changes):
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


SERIAL = {
    "gla_serial": "gla_chunk_scan", "gla_step": "decay_step", "kda_step": "rank_one_step",
    "lightning_step": "feature_step", "mamba2_step": "state_space_step",
}  # fmt: skip
"""Pipelines of one stage, whose gradient is autograd: it is right to say so."""


def test_what_ships_has_no_warning(capsys):
    assert main(["check", *(name for name in names() if name not in SERIAL)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", SERIAL)
def test_what_goes_token_by_token_says_where_its_gradient_comes_from(capsys, name):
    assert main(["check", name]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    (warning,) = warnings
    assert f"({SERIAL[name]}) is autograd through its reference" in warning


def test_a_state_that_only_a_next_call_would_read_is_no_warning(checked):
    assert checked(GLA) == (0, "op: ok, 3 stages\n", "")


def test_an_output_that_nothing_reads(checked):
    """The corrected values are left, and the plain ones read: the op is another one."""
    code, out, err = checked(DELTA)
    assert (code, out) == (0, "op: ok, 5 stages\n")
    assert (
        err
        == """\
warning[CW241]: nothing reads scan.v_new
  --> op.yaml:12:3
   |
12 |   scan:  {use: chunk_delta_h, in: {k: k, w: wy.w, u: wy.u}}
   |   ^^^^
help: bind it, or name it in outputs, if it was forgotten; it is neither computed nor stored

"""
    )
    assert checked(changed(DELTA, ("{o: out.o}", "{o: out.o, v_new: scan.v_new}")))[2] == ""


def test_a_gradient_by_autograd(checked):
    act = ("stages:\n", "stages:\n  act:  {use: silu, in: {x: k}}\n")
    acted = changed(GLA, act, ("chunk_h, in: {k: k,", "chunk_h, in: {k: act.y,"))
    code, out, err = checked(acted)
    assert (code, out) == (0, "op: ok, 4 stages\n")
    assert (
        err
        == """\
warning[CW242]: the gradient of act (silu) is autograd through its reference
  --> op.yaml:10:3
   |
10 |   act:  {use: silu, in: {x: k}}
   |   ^^^
help: it is right, and PyTorch keeps what it likes for it: a vjp in silu.py is faster and smaller

"""
    )


def test_a_stage_of_whole_numbers_has_no_gradient_to_warn_of(checked):
    picked = changed(
        GLA,
        ("stages:\n", "  at: {shape: B T, dtype: int}\nstages:\n  pick: {use: pick, in: {index: at}}\n"),
        ("{o: out.o}", "{o: out.o, picked: pick.y}"),
    )
    assert checked(picked) == (0, "op: ok, 4 stages\n", "")


def test_an_axis_that_no_input_fixes(checked):
    """T is called L: everything fits, and the number of chunks has no number."""
    text = GLA.replace("B T H", "B L H")
    code, out, err = checked(text)
    assert (code, out) == (0, "op: ok, 3 stages\n")
    assert (
        err
        == """\
warning[CW243]: no input fixes the axis NT of scan.h
  --> op.yaml:11:3
   |
11 |   scan: {use: chunk_h, in: {k: k, v: v, g: c.y}}
   |   ^^^^
help: NT follows from T and C, give an input that axis, or write axes: {T: ...}

"""
    )


def test_a_call_of_such_a_pipeline_is_refused_and_why_still_answers(checked, capsys):
    checked(GLA.replace("B T H", "B L H"))
    assert main(["run", "op.yaml", "--axes", "L=32", "--device", "cpu"]) == 2
    err = capsys.readouterr().err
    assert "error[CW307]: nothing gives the axis NT a size\nhelp: NT follows from T and C: name the axis in an" in err
    assert main(["why", "op.yaml", "scan.h", "--axes", "L=32", "--device", "cpu"]) == 0
    assert "scan.h is kept for out.vjp.h, scan.vjp.h: bytes without a number" in capsys.readouterr().out


def test_json_has_the_warnings_and_is_ok(checked):
    code, out, err = checked(DELTA, "--json")
    document = json.loads(out)
    assert (code, document["ok"], document["errors"], err) == (0, True, [], "")
    assert [(each["code"], each["severity"], each["line"]) for each in document["warnings"]] == [
        ("CW241", "warning", 12)
    ]


def test_keys_of_any_length(checked):
    """Of an input at its line, of an expression where it is read; by l2norm or softmax they are no longer than 1."""
    long = ("{shape: B T H K, where: unit_norm(K)}", "B T H K")
    plain = changed(DELTA, long, ("o: out.o", "o: out.o, u: scan.v_new"))
    code, out, err = checked(plain)
    assert (code, out) == (0, "op: ok, 5 stages\n")
    assert (
        err
        == """\
warning[CW244]: nothing says that the keys k are at most 1 long: past sqrt(2 / beta) the delta rule diverges
 --> op.yaml:5:3
  |
5 |   k: B T H K
  |   ^
help: make them so by the stage l2norm (in the definition k / sqrt(sum(k * k, axis=K) + 1e-6)), or declare where: \
unit_norm(K), if callers see to that

"""
    )
    told = checked(plain.replace("k: k", "k: silu(k)"))[2]
    assert told.count("warning") == 1
    assert told.startswith("warning[CW244]: nothing says that the keys silu(k) are at most 1 long")
    assert "--> op.yaml:9:46\n" in told
    for use in ("l2norm", "softmax_k"):
        front = ("stages:\n", f"stages:\n  unit: {{use: {use}, in: {{x: k}}}}\n")
        assert checked(changed(plain.replace("k: k", "k: unit.y"), front))[2] == ""
