"""verify --attribute: a wrong stage carries the blame, right ones carry none, and what is nobody's is said to be."""

import json
from dataclasses import replace

import pytest
import torch
from support.ops import inputs, op
from support.stand_ins import op_with_stand_ins

from chunkwise.runner.calling.function import Op
from chunkwise.runner.main import main
from chunkwise.runner.reporting.outcome import document_text, print_text
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.runner.verification.attribution import attribute_errors
from chunkwise.runner.verification.report_attribution import document, verdict
from chunkwise.runner.verification.result import Attribution, Swap
from chunkwise.runner.verification.verify import make_subject, truth_of, verify

SIZES = dict(B=1, T=40, H=1, HV=2, K=16, V=16)


def attributions(an_op, io=torch.float32, backward=False):
    subject = make_subject(an_op.bind(inputs(an_op, io, **SIZES)), "typical", backward, 0, {})
    return {each.output: each for each in attribute_errors(subject, truth_of(subject).results)}


def shares(each):
    return {swap.id: each.share(swap.err) for swap in each.swaps}


@pytest.mark.parametrize("wrong, port", [("solve", "Ai"), ("scan", "v_new"), ("out", "o")])
def test_a_wrong_kernel_carries_the_blame(monkeypatch, wrong, port):
    an_op = op_with_stand_ins(monkeypatch, "gated_delta", wrong, port, lambda x: x * 1.01).with_axes({"C": 32})
    found = attributions(an_op)
    assert found["o"].by_share[0].id == wrong and shares(found["o"])[wrong] > 0.999
    others = [share for id, share in shares(found["o"]).items() if id != wrong]
    assert others and max(others) < 0.1
    assert found["o"].all_exact < found["o"].err / 100
    own = {swap.id: swap.own for swap in found["o"].swaps}
    assert own[wrong] == pytest.approx(found["o"].err, rel=0.1) and max(own, key=own.get) == wrong
    assert verdict(found["o"]).startswith(f"{wrong} ")


def test_verify_blames_the_stage_that_it_names(monkeypatch):
    an_op = op_with_stand_ins(monkeypatch, "simple_gla", "scan", "h", lambda x: x * 1.01)
    result = verify(an_op, inputs(an_op, **SIZES), attribute=True)
    assert result.first_bad.id == "scan" and result.attributions[0].by_share[0].id == "scan"


def test_only_stages_that_an_output_depends_on_are_blamed_for_it(monkeypatch):
    an_op = op_with_stand_ins(monkeypatch, "gated_delta", "out", "o", lambda x: -x)
    found = attributions(an_op)
    assert "out" in shares(found["o"]) and "out" not in shares(found["final_state"])
    assert found["final_state"].err < 1e-5 < found["o"].err


def test_what_is_not_finite_is_blamed_on_the_stage_that_makes_it(monkeypatch):
    an_op = op_with_stand_ins(monkeypatch, "simple_gla", "scan", "h", lambda x: x * float("nan"))
    found = attributions(an_op)
    assert shares(found["o"]) == {"cumsum": 0.0, "scan": 1.0, "out": 0.0}


def test_the_rounding_of_ports_is_no_stages():
    """References in bfloat16 round nothing but their ports."""
    found = attributions(op("gated_delta"), torch.bfloat16)
    assert found["o"].all_exact > 0.9 * found["o"].err > 1e-3
    assert found["o"].own == pytest.approx(found["o"].err, rel=0.2)
    own = {swap.id: swap.own for swap in found["o"].swaps}
    assert verdict(found["o"]).startswith("no stage's arithmetic, but the rounding of ports: ")
    assert own["cumsum"] < own["solve"] < own["out"] < found["o"].err


def test_a_reference_that_is_not_the_definition_is_no_stages(monkeypatch):
    stages = find_stages()
    stage = stages["chunk_h"]

    def reference(k, v, g, g_gamma, initial_state, *, C):
        return stage.reference(k, 1.1 * v, g, g_gamma, initial_state, C=C)

    wrong = Op(op("simple_gla").spec, {**stages, "chunk_h": replace(stage, reference=reference)}, "reference")
    found = attributions(wrong)
    assert found["final_state"].all_exact == pytest.approx(found["final_state"].err, rel=1e-3)
    assert found["final_state"].own < 1e-5
    assert "a reference or an edge is not the definition's" in verdict(found["final_state"])


def test_a_wrong_gradient_is_blamed_on_its_vjp_though_it_is_its_own_reference():
    stages = find_stages()
    stage = stages["chunk_o"]

    def vjp(d_o, q, k, v, h, g, g_gamma, *, C, scale, needs):
        found = stage.vjp(d_o, q, k, v, h, g, g_gamma, C=C, scale=scale, needs=needs)
        return {name: 1.05 * x if name == "q" and x is not None else x for name, x in found.items()}

    wrong = Op(op("simple_gla").spec, {**stages, "chunk_o": replace(stage, vjp=vjp, vjp_launchers=())}, "reference")
    found = attributions(wrong, backward=True)
    assert found.keys() == {"o", "final_state", "d_q", "d_k", "d_v", "d_g", "d_initial_state"}
    assert shares(found["d_q"])["out.vjp"] > 0.999
    assert abs(shares(found["d_v"])["out.vjp"]) < 0.5


def test_shares_and_words():
    each = Attribution("o", 2.0, (Swap("a", "s", "triton", 1.0, 1.7), Swap("b", "s", "triton", 2.2, 0.9)), 0.5)
    assert each.share(1.0) == 0.75 and each.by_share[0].id == "a"
    assert verdict(each) == "a 75.0 %"
    (entry,) = document([each])
    assert [stage["share_pct"] for stage in entry["stages"]] == pytest.approx([75, -21])


def test_the_command_prints_a_table_and_a_document(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["verify", "simple_gla", "--attribute", "--device", "cpu", "--axes", "T=20,K=16,V=16,H=1,HV=2"]
    printed = []
    monkeypatch.setattr("chunkwise.runner.main.show", lambda outcome, as_json: printed.append(outcome))
    assert main(argv) == 0
    print_text(printed[0].text)
    text = capsys.readouterr().out
    assert "whose error it is" in text and "need not add up to 100 %" in text and "nothing: as the op ran" in text
    found = json.loads(document_text(printed[0]))["attribution"]
    assert [each["output"] for each in found] == ["o", "final_state"]
    assert {stage["id"] for stage in found[0]["stages"]} == {"cumsum", "scan", "out"}
