"""check says what run and every call would say of the same file, sizes, lengths and params."""

import json
from pathlib import Path

import pytest

from chunkwise.runner.main import main

PIPELINE = (Path(__file__).parents[1] / "pipelines" / "gated_delta.yaml").read_text()
SMALL = "T=4,H=2,HV=2,K=8,V=8"


@pytest.fixture
def said(capsys, tmp_path, monkeypatch):
    """(exit code, [(code, line, message), ...]) of a command on gated_delta with one part replaced."""
    monkeypatch.chdir(tmp_path)

    def run(command, *options, old="", new=""):
        assert old in PIPELINE
        Path("op.yaml").write_text(PIPELINE.replace(old, new, 1) if old else PIPELINE)
        exit_code = main([command, "op.yaml", "--json", *options])
        errors = json.loads(capsys.readouterr().out)["errors"]
        return exit_code, [(each["code"], each["line"], each["message"]) for each in errors]

    return run


REFUSED = {
    "packed rows of a batch": (["--axes", f"B=2,{SMALL}", "--seqlens", "4"], {}),
    "lengths past the end": (["--axes", f"B=1,{SMALL}", "--seqlens", "3,5"], {}),
    "heads that do not divide": (["--axes", "T=4,H=2,HV=3,K=8,V=8"], {}),
    "a param": (["--axes", SMALL], dict(old="K ** -0.5", new="1 / (K - 8)")),
    "a stage's param": (["--axes", SMALL], dict(old="with: {scale: scale}", new="with: {scale: scale / (T - 4)}")),
    "a param without axes": ([], dict(old="K ** -0.5", new="9 ** 9 ** 9")),
    "a param of a fixed axis": ([], dict(old="K ** -0.5", new="sqrt(C - 65)")),
    "a constraint of a fixed axis": ([], dict(old="axes: {C: 64}", new="axes: {C: 64}\nconstraints: [C < 64]")),
    "a number of the definition": (["--axes", SMALL], dict(old="scale * (q @ S)", new="(1 / (K - 8)) * (q @ S)")),
}


@pytest.mark.parametrize("options, change", REFUSED.values(), ids=REFUSED)
def test_what_run_refuses_check_refuses_alike(said, options, change):
    found = said("check", *options, **change)
    assert found[0] == 2 and found[1]
    assert said("run", *options, **change) == found


def test_constraints_and_params_in_one_run(said):
    _, found = said("check", "--axes", "T=4,H=3,HV=4,K=8,V=8", old="K ** -0.5", new="1 / (K - 8)")
    assert [(code, line) for code, line, _ in found] == [("CW405", 14), ("CW306", 24)]


def test_a_message_without_axes_names_none(said):
    _, [(code, line, message)] = said("check", old="K ** -0.5", new="9 ** 9 ** 9")
    assert (code, line) == ("CW403", 14)
    assert message == "the param scale: exponent 387420489 is beyond 64 in 9 ** 9 ** 9"


@pytest.mark.parametrize("old, new, message", [
    ("K ** -0.5", "K > 2", "the param scale is a comparison, and a number belongs here"),
    ("with: {scale: scale}", "with: {scale: is_power_of_two(K)}",
     "out.scale is a comparison, and a number belongs here"),
    ("axes: {C: 64}", "axes: {C: 64}\nconstraints: [HV % H]",
     "the constraint is a number, and a comparison belongs here"),
    ("K ** -0.5", "'sqrt(K, 2)'", "the param scale: sqrt takes 1 argument, got 2"),
])  # fmt: skip
def test_numbers_and_comparisons_are_two_things(said, old, new, message):
    assert [(code, text) for code, _, text in said("check", old=old, new=new)[1]] == [("CW401", message)]


def test_sizes_that_fit(said):
    for seqlens in ([], ["--seqlens", "3,0,1"]):
        assert said("check", "--axes", f"B=1,{SMALL}", *seqlens) == (0, [])
