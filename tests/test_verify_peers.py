"""Item 7 of softmax: other implementations beside ours in verify, on the same tensors, against the same definition."""

import json

import pytest
import torch
from support.attention import BARE, LITTLE, MASKS
from support.ops import inputs, op

from chunkwise.runner.benching.peers import Inapplicable, Peer
from chunkwise.runner.main import main
from chunkwise.runner.verification import peer_rows
from chunkwise.runner.verification.verify import verify

FLASH = op("flash")
AXES = "B=1,Sq=20,Sk=30,HQ=2,H=1,D=16,DV=24"


def beside(vs, given=None, **keywords):
    """The peers' rows by peer and value; ours pass whatever they are."""
    given = inputs(FLASH, Sq=20, Sk=30, **LITTLE) if given is None else given
    found = verify(FLASH, given, vs=vs, **keywords)
    assert found.ok and found.failure is None
    return {(row.peer, row.value): row for row in found.peers}


@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask != "softcap"])
def test_pytorch_is_held_against_the_definition(mask):
    found = beside(["sdpa", "flex"], params=MASKS[mask])
    held = {key: row.word for key, row in found.items() if key != ("sdpa", "lse")}
    assert held == {("sdpa", "o"): "ok", ("flex", "o"): "ok", ("flex", "lse"): "ok"}
    assert "math, torch" in found["sdpa", "o"].ran and "not compiled, torch" in found["flex", "o"].ran
    assert found["sdpa", "lse"].why == "it gives no lse"


def test_gradients_against_the_same_budget():
    found = beside(["sdpa", "flex"], backward=True, outputs=["o"])
    assert {value for peer, value in found if peer == "sdpa"} == {"o", "d_q", "d_k", "d_v", "d_sinks"}
    assert all(row.word == "ok" and 0 < row.verdict.budget < 1e-5 for (peer, _), row in found.items() if peer == "sdpa")
    assert found["flex", ""].word == "does not apply" and "no gradient on a CPU" in found["flex", ""].why


def test_gradients_of_more_than_a_peer_gives():
    found = beside(["sdpa"], backward=True)
    assert found["sdpa", "o"].word == "ok" and found["sdpa", "lse"].word == "not given"
    assert found["sdpa", "d_q"].word == "not comparable" and found["sdpa", "d_q"].why.endswith("--without lse")


@pytest.mark.parametrize("vs, params, why", [
    ("sdpa", dict(softcap=2.5), "no softcap"), ("flex", dict(dropout=0.2), "no dropout"),
    ("fla", {}, "nothing for flash"), ("cudnn", {}, "--without lengths,sinks,slopes"),
])  # fmt: skip
def test_what_a_peer_cannot_be_told(vs, params, why):
    (row,) = beside([vs], params=params).values()
    assert row.word == "does not apply" and why in row.why and row.verdict is None


def test_flex_has_a_softcap():
    assert beside(["flex"], params=dict(softcap=2.5))["flex", "o"].word == "ok"


def test_params_that_a_plain_function_does_not_see(monkeypatch):
    """Timed peers are told q, k, v and a scale: a window would go unseen."""
    bare = inputs(FLASH, Sq=20, Sk=20, absent=BARE, **LITTLE)
    monkeypatch.delattr("chunkwise.runner.benching.peers.sdpa.compared")
    (row,) = beside(["sdpa"], bare, params=dict(window=5)).values()
    assert row.word == "does not apply" and "window = 5" in row.why


def broken(forward):
    return lambda name, case, timed: Peer("broken 1.0", "broken", forward)


def wrong(given):
    return {"o": torch.zeros_like(given.inputs["v"]).expand(-1, -1, 2, -1)[:, :20].contiguous(), "lse": None}


def missing(name, case, timed):
    raise Inapplicable("broken cannot be imported: No module named 'broken'")


def raising(given):
    raise RuntimeError("CUDA out of memory\nand more")


@pytest.mark.parametrize("find, words, why", [
    (broken(wrong), ["OUT OF BUDGET", "not given"], "off by 1.0e+00 as a whole"),
    (broken(raising), ["failed"], "RuntimeError: CUDA out of memory"),
    (broken(lambda given: {"o": given.inputs["q"]}), ["failed"], "o has the shape"),
    (missing, ["does not apply"], "No module"),
])  # fmt: skip
def test_whatever_a_peer_does_is_a_row(monkeypatch, capsys, find, words, why):
    monkeypatch.setattr(peer_rows, "find_peer", find)
    rows = beside(["eager"])
    assert [row.word for row in rows.values()] == words and why in next(iter(rows.values())).why
    assert main(["verify", "flash", "--axes", AXES, "--vs", "eager"]) == 0
    out = capsys.readouterr().out
    assert words[0] in out and f"eager: {words[0]}: " in out


def test_as_json(capsys):
    options = ["--axes", AXES, "--without", "sinks,slopes", "--vs", "sdpa", "--json"]
    assert main(["verify", "flash", *options]) == 0
    o, lse = json.loads(capsys.readouterr().out)["verify"]["peers"]
    assert (o["peer"], o["output"], o["ok"], o["against"]) == ("sdpa", "o", True, "definition")
    assert o["rel_l2_err"] < o["budget"] < 1e-5
    assert (lse["ok"], lse["word"]) == (False, "not given") and "rel_l2_err" not in lse


@pytest.mark.parametrize("options, words", [
    (["--vs", "sdap"], "there is no 'sdap'"), (["--without", "o,lse"], "leaves no output of flash"),
])  # fmt: skip
def test_what_is_no_peer_or_no_op(capsys, options, words):
    assert main(["verify", "flash", "--axes", AXES, *options]) == 2
    assert words in capsys.readouterr().err
