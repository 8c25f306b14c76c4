"""The four teaching steps and the serial gla: the document's formulas, one token at a time, hard numbers, layouts."""

import pytest
import torch
from support.ops import check, inputs, op, refusal, same_bits
from support.steps import SERIAL, STEPS, check_steps, one_by_one

from chunkwise.runner import load
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.loading.pipelines import FOLDER
from chunkwise.runner.main import main
from chunkwise.stages import rank_one_step

ODD = dict(B=1, H=1, HV=2, K=48, V=80, D=48, DI=80, NS=48)


def gla(S, q, k, v, g):
    S = torch.diag(g) @ S + torch.outer(k, v)
    return S, q @ S


def lightning(S, q, k, v):
    S = S + torch.outer(torch.nn.functional.elu(k) + 1, v)
    y = (torch.nn.functional.elu(q) + 1) @ S
    return S, y / (torch.linalg.vector_norm(y + 1e-6) + 1e-6)


def kda(S, q, k, v, alpha, beta):
    S = S - torch.diag(beta) @ (torch.outer(v, k) @ S) + torch.diag(alpha) @ torch.outer(v, k)
    return S, q @ S


def mamba2(h, x, dt, A_log, b, c):
    A, dt, x = -torch.exp(A_log), dt[:, None], x[:, None]
    h = torch.exp(dt * A) * h + dt * b * x
    return h, (h * c).sum(-1)


FORMULAS = dict(zip(STEPS, (gla, lightning, kda, mamba2), strict=True))


@pytest.mark.parametrize("name", STEPS)
def test_the_documents_formulas(name):
    """Head by head in float64, as they are written there; scale 1."""
    given = inputs(op(name), torch.float64, B=2, T=7, H=2, HV=2, K=5, V=6, D=5, DI=6, NS=5)
    out, states = op(name)(**given), given.pop("initial_state")
    heads = [()] if name == "mamba2_step" else [(0,), (1,)]
    for batch in range(2):
        for head in heads:
            S = states[(batch, *head)]
            for t in range(7):
                token = {each: x if each == "A_log" else x[(batch, t, *head)] for each, x in given.items()}
                S, o = FORMULAS[name](S, **token)
                torch.testing.assert_close(out.o[(batch, t, *head)], o, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(out.final_state[(batch, *head)], S, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SERIAL)
def test_s12_tokens_at_once_are_steps(name):
    check_steps(op(name), inputs(op(name), torch.bfloat16, **{**ODD, "T": 9}))


@pytest.mark.parametrize("name", SERIAL)
def test_x1_a_batch_is_its_samples(name):
    given = inputs(op(name), torch.bfloat16, **{**ODD, "B": 4, "T": 9})
    whole = op(name)(**given)
    batched = [each for each in given if {"B", "N"} & set(op(name).whole.inputs[each].axes)]
    for n in range(4):
        alone = op(name)(**{**given, **{each: given[each][n : n + 1] for each in batched}})
        assert same_bits(alone.o, whole.o[n : n + 1]) and same_bits(alone.final_state, whole.final_state[n : n + 1])


@pytest.mark.parametrize("name", SERIAL)
def test_l6_l12_views_states_too(name):
    """A state that lies transposed in memory is read as it is, and nothing that came in is written."""
    given = inputs(op(name), torch.bfloat16, **{**ODD, "T": 9})
    views = {each: x.mT.contiguous().mT for each, x in given.items()}
    assert not views["initial_state"].is_contiguous()
    before, plain, found = {each: x.clone() for each, x in views.items()}, op(name)(**given), op(name)(**views)
    assert same_bits(found.o, plain.o) and same_bits(found.final_state, plain.final_state)
    assert all(same_bits(before[each], x) for each, x in views.items())


def test_gla_serial_is_gla():
    """Another form of the same op: the same definition, and the same values in float64, gradients too."""
    lines = [[line.value for line in op(name).spec.definition.step] for name in ("gla_serial", "gla")]
    assert lines[0] == lines[1]
    given = inputs(op("gla"), torch.float64, T=37)
    ours, theirs = ({each: x.clone().requires_grad_() for each, x in given.items()} for _ in range(2))
    for name, leaves in (("gla_serial", ours), ("gla", theirs)):
        out = op(name, 16)(**leaves)
        (out.o.sin().sum() + out.final_state.square().sum()).backward()
    for each in given:
        torch.testing.assert_close(ours[each].grad, theirs[each].grad, rtol=1e-9, atol=1e-9)


def test_gla_step_is_gla_in_linear_decays():
    given = inputs(op("gla_step"), torch.float64, T=21)
    found = op("gla_step")(**given)
    expected = op("gla")(**{**given, "g": given["g"].log()}, scale=1)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, check_stride=False)


def test_a_linear_decay_is_no_log_decay():
    """The units keep them apart: gla's gate does not fit gla_step's stage."""
    units = [op(name).whole.inputs["g"].unit for name in ("gla_step", "gla_serial")]
    assert units == ["decay/linear/token", "log_decay/ln/token"]


@pytest.mark.parametrize("name,reset", [("gla_step", 0.0), ("gla_serial", -3e37), ("gla_serial", -torch.inf)])
def test_n2_resets_of_single_channels(name, reset):
    given = inputs(op(name), T=20, B=1, H=1, HV=2, K=8, V=6)
    for t in (0, 7, 8):
        given["g"][:, t, :, t % 2 :: 2] = reset
    check(op(name), given, backward=True)


def test_n13_identical_tokens_through_kda_step():
    """Unit keys and values, strengths of 1: the correction takes away what the write puts there."""
    given = inputs(op("kda_step"), torch.bfloat16, T=64, B=1, H=1, D=16)
    given = {each: x if each == "initial_state" else x[:, :1].expand_as(x).contiguous() for each, x in given.items()}
    given["alpha"], given["beta"] = torch.ones_like(given["alpha"]), torch.ones_like(given["beta"])
    check(op("kda_step"), given, case="equal_keys")


def test_kda_step_asks_for_unit_keys_and_values(tmp_path):
    """Its stage does, and of nothing else; a pipeline that does not promise them is refused."""
    (tmp_path / "long.yaml").write_text((FOLDER / "kda_step.yaml").read_text().replace(", where: unit_norm(D)", ""))
    found = refusal(load, tmp_path / "long.yaml")
    assert sorted(each.code for each in found) == [codes.LAW, codes.LAW]
    laws = {name: port.where for name, port in rank_one_step.CONTRACT.inputs.items() if port.where}
    assert laws == {"k": "unit_norm(D)", "v": "unit_norm(D)"}


@pytest.mark.parametrize("A_log", [100.0, -100.0])
def test_n17_steps_of_no_length(A_log):
    """dt = 0 is a decay of 1 and a write of 0, whatever the slope: no inf * 0."""
    given = inputs(op("mamba2_step"), T=9, B=1, DI=8, NS=8)
    given["A_log"].fill_(A_log)
    given["dt"].zero_()
    out = op("mamba2_step")(**given)
    assert same_bits(out.final_state, given["initial_state"]) and out.o.isfinite().all()


@pytest.mark.parametrize("name", ["gla_step", "lightning_step", "gla_serial", "kda_step"])
def test_n22_rows_of_zeros(name):
    """Padding: finite outputs and gradients, and no effect on other rows."""
    given = inputs(op(name), B=1, T=12, H=1, HV=2, K=8, V=6, D=8)
    for each in "qkv":
        given[each][:, 4:6] = 0
    leaves = {each: x.clone().requires_grad_() for each, x in given.items()}
    out = op(name)(**leaves)
    out.o.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in leaves.values())
    check(op(name), given)


def test_lightning_outputs_have_length_one():
    given = inputs(op("lightning_step"), torch.float64, T=5)
    torch.testing.assert_close(op("lightning_step")(**given).o.norm(dim=-1), torch.ones(2, 5, 4, dtype=torch.float64))
    nothing = {**given, "v": torch.zeros_like(given["v"]), "initial_state": None}
    assert not op("lightning_step")(**nothing).o.any()


def test_features_below_zero_keep_their_digits():
    """elu(x) + 1 in float32 would be 0 at -20; the definition's exponential is 2e-9."""
    given = inputs(op("lightning_step"), B=1, T=3, H=1, HV=1, K=4, V=4, absent=["initial_state"])
    given["k"].fill_(-20.0)
    out = op("lightning_step")(**given)
    torch.testing.assert_close(out.final_state, 2.0611536e-9 * given["v"].sum(1)[..., None, :].expand(1, 1, 4, 4))


@pytest.mark.parametrize("name", SERIAL)
def test_the_command_line_knows_their_sizes(name, capsys):
    """Also of the axes that no other op has: D, DI, NS."""
    assert main(["check", name]) == 0, capsys.readouterr().err
    assert main(["verify", name, "--axes", "T=2", "--device", "cpu"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", SERIAL)
def test_e10_nothing_there(name):
    for empty in (dict(T=0), dict(B=0)):
        given = inputs(op(name), **{**ODD, **empty})
        out = op(name)(**given)
        assert out.o.numel() == 0 and torch.equal(out.final_state, given["initial_state"])


@pytest.mark.parametrize("sizes", [dict(H=2, HV=3), dict(H=4, HV=2)], ids=str)
@pytest.mark.parametrize("name", ["gla_step", "lightning_step", "gla_serial"])
def test_e5_heads_come_in_whole_groups(name, sizes):
    assert "HV % H == 0" in refusal(op(name), **inputs(op(name), T=3, **sizes))[0].message


def test_packed_steps():
    """One token for each of three sequences, and none for a fourth: how a server packs a step."""
    for name in SERIAL:
        given = inputs(op(name), seqlens=(1, 0, 1, 1), **{**ODD, "T": 5})
        out = op(name)(**given, seqlens=(1, 0, 1, 1))
        assert torch.equal(out.final_state[1], given["initial_state"][1]) and not out.o[:, 3:].any()
        alone = {each: x[:, 1:2] if "T" in op(name).whole.inputs[each].axes else x for each, x in given.items()}
        alone["initial_state"] = given["initial_state"][2:3]
        o, state = one_by_one(op(name), alone)
        assert same_bits(o, out.o[:, 1:2]) and same_bits(state, out.final_state[2:3])
