"""``--probe``: values that break the laws of their edges are found, named and placed."""
# ruff: noqa: E501

import json

import pytest
import torch
from safetensors.torch import save_file

from chunkwise.runner import load
from chunkwise.runner.main import main
from chunkwise.runner.verification.probe import probe

OP = """\
schema: pipeline/v1
name: op
axes: {C: 16}
inputs:
  k: {shape: B T H K, where: unit_norm(K)}
  v: B T H V
  g: {shape: B T H, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
stages:
  c:    {use: chunk_local_cumsum, in: {x: g}}
  scan: {use: chunk_h, in: {k: k, v: v, g: c.y}}
outputs: {S: scan.final_state, y: c.y}
"""
LIES = '''"""A stage that promises what it does not keep."""

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H V")}, outputs={"y": Port("B T H V", where="0..1")})


def reference(x):
    """x, y [B, T, H, V]."""
    return {"y": x}
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "op.yaml").write_text(OP)
    return tmp_path


def good(T=40):
    generator = torch.Generator().manual_seed(0)
    k = torch.nn.functional.normalize(torch.randn(1, T, 2, 8, generator=generator), dim=-1)
    return {"k": k, "v": torch.randn(1, T, 2, 4, generator=generator), "g": -torch.rand(1, T, 2, generator=generator)}


def found(op, seqlens=None, **tensors):
    result = probe(op.bind(tensors, seqlens=seqlens))
    return [each.notes[0].text for each in result.found]


def bad():
    tensors = good()
    tensors["g"][0, 5, 1], tensors["g"][0, 7, 0] = 0.25, float("nan")
    tensors["k"][0, 3, 1] *= 3
    return tensors


def test_verify_and_run_say_where_and_what(here, capsys):
    save_file(bad(), "bad.safetensors")
    for command in ("verify", "run"):
        assert main([command, "op.yaml", "--probe", "--inputs", "bad.safetensors"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert (
            err.rstrip("\n")
            == """\
error[CW802]: k breaks its law: the L2 norm over K is 1 (0 for a padding row)
 --> op.yaml:5:30
  |
5 |   k: {shape: B T H K, where: unit_norm(K)}
  |                              ^^^^^^^^^^^^
note: 1 of 80 rows break it; the worst is |k[0, 3, 1, :]| = 3
note: k is an input

error[CW802]: g breaks its law: every value is <= 0
 --> op.yaml:7:67
  |
7 |   g: {shape: B T H, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  |                                                                   ^^^^
note: 2 of 80 values break it; the worst is g[0, 7, 0] = nan
note: g is an input"""
        )


def test_json(here, capsys):
    save_file(bad(), "bad.safetensors")
    assert main(["verify", "op.yaml", "--probe", "--json", "--inputs", "bad.safetensors"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["ok"] and document["probe"] == {"ok": False, "checked": ["k", "g"]}
    assert [(each["code"], each["line"]) for each in document["errors"]] == [("CW802", 5), ("CW802", 7)]


def test_without_the_flag_values_are_not_looked_at(here, capsys):
    tensors = good()
    tensors["g"][0, 5, 1] = 0.25
    save_file(tensors, "bad.safetensors")
    assert main(["verify", "op.yaml", "--json", "--inputs", "bad.safetensors"]) in (0, 1)
    assert all(each["code"] != "CW802" for each in json.loads(capsys.readouterr().out)["errors"])


def test_values_that_keep_their_laws(here, capsys):
    assert main(["verify", "op.yaml", "--probe", "--json", "--axes", "T=20,H=2,K=8,V=4"]) == 0
    assert json.loads(capsys.readouterr().out)["probe"] == {"ok": True, "checked": ["k", "g", "c.y"]}
    assert main(["verify", "op.yaml", "--probe", "--axes", "T=20,H=2,K=8,V=4"]) == 0
    assert "probed: k, g, c.y keep to their laws" in capsys.readouterr().out


def test_a_stage_that_breaks_its_own_promise(here):
    (here / "mine").mkdir()
    (here / "mine" / "lies.py").write_text(LIES)
    (here / "op.yaml").write_text(
        OP.replace("stages:\n", "stages:\n  lie:  {use: lies, in: {x: v}}\n").replace(
            "v: v, g: c.y", "v: lie.y, g: c.y"
        )
    )
    tensors = good()
    (each,) = probe(load("op.yaml", stages=["mine"]).bind(tensors)).found
    assert each.message == "lie.y breaks its law: every value lies in 0..1"
    assert each.notes[0].text.startswith(f"{int((tensors['v'] < 0).sum() + (tensors['v'] > 1).sum())} of 320 values")
    assert each.notes[1].text == "lie (lies, reference) makes it" and each.mark.line == 9


def test_packed_sequences_are_looked_at_one_by_one(here):
    """A chunk sum starts anew with each sequence, and rows past the last one are nobody's."""
    op, tensors = load("op.yaml"), good()
    tensors["g"][0, 38, 0] = 7.0
    assert found(op, seqlens=(5, 0, 20, 12), **tensors) == []
    tensors["g"][0, 30, 1] = 0.5
    assert found(op, seqlens=(5, 0, 20, 12), **tensors) == ["1 of 74 values break it; the worst is g[0, 30, 1] = 0.5"]


def test_no_tokens(here):
    tensors = {name: x[:, :0] for name, x in good().items()}
    assert found(load("op.yaml"), **tensors) == []


def test_unit_norm_in_bfloat16(here):
    """Rounded unit rows are a little longer or shorter than 1; that is no violation."""
    tensors = {name: x.to(torch.bfloat16) if name != "g" else x for name, x in good(T=500).items()}
    assert found(load("op.yaml"), **tensors) == []
