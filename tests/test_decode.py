"""One token or a few: states in slots that are written in place, and the recurrent form of the chunked pipelines."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.ops import DECODE, LITTLE, PIPELINES, RAGGED, STEPS, check, close, inputs, op, refusal, same_bits

from chunkwise.runner import load
from chunkwise.runner.diagnostics import codes

SIZES = dict(B=3, T=2, H=2, HV=4, K=24, V=20, SLOTS=7)
CHUNKED = [name.removesuffix("_decode") for name in DECODE]
SERIAL = {"gla_serial", *STEPS}
"""They go token by token as they are."""
RECURRENT = [name for name in PIPELINES if name not in SERIAL]


def decode_inputs(an_op, io=torch.float32, indices=(4, -1, 0), **sizes):
    given = inputs(an_op, io, **{**SIZES, **sizes})
    return {**given, "state_indices": None if indices is None else torch.tensor(indices)}


@pytest.mark.parametrize("seqlens", [None, (3, 0, 1, 2)], ids=["plain", "packed"])
@pytest.mark.parametrize("indices", [True, False], ids=["slots", "own rows"])
@pytest.mark.parametrize("name", DECODE)
def test_verify(name, indices, seqlens):
    an_op = op(name)
    given = inputs(an_op, seqlens=seqlens, **({**SIZES} if seqlens is None else dict(SIZES, B=1, T=8)))
    check(an_op, {**given, **({} if indices else {"state_indices": None})}, seqlens=seqlens)


@pytest.mark.parametrize("name", DECODE)
def test_many_tokens(name):
    """In float32, where a decay that tokens share errs the same way at each of them."""
    an_op = op(name)
    check(an_op, inputs(an_op, B=1, T=300, H=2, HV=4, K=16, V=16, SLOTS=2))


@pytest.mark.parametrize("name", ["lightning", "retention", "linear_attn"])
def test_many_tokens_of_the_recurrent_form(name):
    an_op = op(name, mode="recurrent")
    check(an_op, inputs(an_op, B=1, T=300, H=2, HV=4, K=16, V=16))


@pytest.mark.parametrize("name", DECODE)
def test_states_are_written_where_they_lie(name):
    an_op = op(name)
    given = decode_inputs(an_op)
    before = given["state"].clone()
    out = an_op(**given)
    assert out.new_state is given["state"]
    assert not same_bits(out.new_state[[4, 0]], before[[4, 0]])
    assert same_bits(out.new_state[[1, 2, 3, 5, 6]], before[[1, 2, 3, 5, 6]])


def unchecked(an_op, given, indices):
    """The outputs of a call whose rows nobody looked at, as on a GPU."""
    call = an_op.bind(given)
    return replace(call, tensors={**call.tensors, "state_indices": indices}).run()


@pytest.mark.parametrize("outside", [-1, -7, 7, 10**9])
@pytest.mark.parametrize("name", DECODE)
def test_s7_a_sequence_without_a_slot(name, outside):
    """Skipped: nothing of the states is read or written, its outputs are 0, and its tokens may hold anything. Rows past
    the end are refused on the CPU; on a GPU, where nobody looks at them, they are skipped as -1 is."""
    an_op = op(name)
    given = decode_inputs(an_op, indices=(4, -1, 0))
    for name, value in an_op.whole.inputs.items():
        if "T" in value.axes:
            given[name][1] = float("nan")
    given["state"][[1, 2, 3, 5, 6]] = float("nan")
    o = unchecked(an_op, given, torch.tensor([4, outside, 0]))["o"]
    assert not o[1].any() and torch.isfinite(o).all()
    assert torch.isnan(given["state"][[1, 2, 3, 5, 6]]).all() and torch.isfinite(given["state"][[0, 4]]).all()


@pytest.mark.parametrize("name", DECODE)
def test_token_by_token_is_one_call(name):
    """T calls of one token leave the same state and outputs as one call of T."""
    an_op = op(name)
    given = decode_inputs(an_op, torch.float64, T=5)
    one = {**given, "state": given["state"].clone()}
    whole = an_op(**one)
    by_token = [an_op(**token(an_op, given, t)).o for t in range(5)]
    torch.testing.assert_close(torch.cat(by_token, dim=1), whole.o, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(given["state"], one["state"], rtol=1e-13, atol=1e-13)


def token(an_op, given, t):
    return {
        name: x.narrow(1, t, 1) if x is not None and "T" in an_op.whole.inputs[name].axes else x
        for name, x in given.items()
    }


@pytest.mark.parametrize("name", CHUNKED)
def test_prefill_then_steps_is_one_call(name):
    """The chunked form over the first tokens, then steps from its final state: within budget of one call over all."""
    prefill, steps, whole = op(name), op(f"{name}_decode"), op(name)
    given = inputs(prefill, torch.bfloat16, B=2, T=75, H=2, HV=4, K=24, V=20)
    one = whole(**given)
    first = {k: x[:, :70] if x is not None and "T" in whole.whole.inputs[k].axes else x for k, x in given.items()}
    done = prefill(**first)
    rest = {k: x[:, 70:] if x is not None and "T" in whole.whole.inputs[k].axes else x for k, x in given.items()}
    rest.pop("initial_state")
    out = steps(**rest, state=done.final_state)
    close(whole, given, torch.cat([done.o, out.o], dim=1), one, "o")
    close(whole, given, out.new_state, one, "final_state")


def test_what_is_written_over_must_be_whole():
    an_op = op("gated_delta_decode")
    given = decode_inputs(an_op)
    strided = refusal(an_op, **{**given, "state": given["state"].transpose(1, 2).contiguous().transpose(1, 2)})
    assert [each.code for each in strided] == [codes.TENSOR] and "contiguous" in strided[0].message
    few = refusal(an_op, **{**given, "state_indices": None, "state": given["state"][:2]})
    assert few[0].message == "state [SLOTS HV K V] has 2 rows for 3 sequences"
    graded = refusal(an_op, **{**given, "q": given["q"].clone().requires_grad_()})
    assert [each.code for each in graded] == [codes.NO_GRADIENT]


ROWS = {
    "twice": ((4, -1, 4), "gives the sequences 0 and 2 the same row 4 of state"),
    "past the end": ((4, 7, 0), "gives sequence 1 the row 7, and state has the rows 0 to 6"),
    "before the start": ((4, -2, 0), "gives sequence 1 the row -2, and state has the rows 0 to 6"),
    "far away": ((10**9, 1, 0), f"gives sequence 0 the row {10**9}, and state has the rows 0 to 6"),
}


@pytest.mark.parametrize("indices, message", ROWS.values(), ids=ROWS)
def test_rows_on_the_host_are_checked(indices, message):
    an_op = op("gated_delta_decode")
    given = decode_inputs(an_op, indices=indices)
    before = given["state"].clone()
    [found] = refusal(an_op, **given)
    assert found.code == codes.TENSOR and found.message == f"state_indices [N] {message}"
    assert same_bits(given["state"], before)


def test_a_row_for_each_sequence():
    given = decode_inputs(op("gated_delta_decode"), indices=(4, 0))
    [found] = refusal(op("gated_delta_decode"), **given)
    assert found.message == "state_indices [N] has 2 numbers, and the number of sequences is 3"


@pytest.mark.parametrize("name", DECODE)
def test_no_states_at_all(name):
    given = decode_inputs(op(name), indices=(-1, -1, -1), SLOTS=0)
    out = op(name)(**given)
    assert out.new_state.shape[0] == 0 and not out.o.any()


def test_nobody_else_lies_where_states_are_written():
    an_op = op("gated_delta_decode")
    given = decode_inputs(an_op)
    whole = torch.zeros(given["state"].numel() + given["v"].numel())
    state, rest = whole[: given["state"].numel()], whole[given["state"].numel() :]
    beside = {**given, "state": state.view_as(given["state"]), "v": rest.view_as(given["v"]).copy_(given["v"])}
    assert torch.isfinite(an_op(**beside).o).all()
    within = whole[given["state"].numel() - 1 :][: given["v"].numel()].view_as(given["v"])
    for v in (within, state[:1].expand(given["v"].shape)):
        [found] = refusal(an_op, **{**beside, "v": v})
        assert found.code == codes.TENSOR
        assert found.message == "state [SLOTS HV K V] is written over, and v shares memory with it"


def test_states_made_under_inference_mode():
    an_op = op("gated_delta_decode")
    with torch.inference_mode():
        given = decode_inputs(an_op)
        an_op(**given)
    [found] = refusal(an_op, **given)
    assert found.code == codes.TENSOR and "made under torch.inference_mode" in found.message
    an_op(**{**given, "state": given["state"].clone()})


def test_the_other_inputs_keep_their_bits():
    an_op = op("gated_delta_decode")
    given = decode_inputs(an_op)
    before = {name: x.clone() for name, x in given.items()}
    an_op(**given, outputs=["o"])
    assert [name for name in given if not torch.equal(given[name], before[name])] == ["state"]


def test_compiled_code_sees_the_write():
    an_op = op("gated_delta_decode")
    eager, compiled = decode_inputs(an_op), decode_inputs(an_op)
    function = torch.compile(lambda **given: an_op(**given), fullgraph=True, backend="aot_eager")
    found, right = function(**compiled), an_op(**eager)
    assert same_bits(found.o, right.o) and same_bits(compiled["state"], eager["state"])
    args = [decode_inputs(an_op)[name] for name in an_op.spec.inputs]
    torch.library.opcheck(an_op.library.forward, (*args, None, None, None, None, ["o"], []))


WRITES = "step (fused_recurrent_delta_slots) writes new_state over state"
MUTATIONS = {
    "not said": ("mutates: true, ", "", f"{WRITES}, which the file does not say"),
    "no output": (", new_state: step.new_state}", "}", f"{WRITES}, and no output of the pipeline is step.new_state"),
    "no such index": ("slots: state_indices}", "slots: indices}", "there is no input indices"),
    "no index": (
        "slots: state_indices}", "slots: beta}",
        "beta names the row of state for each sequence, and it is no [N] of int",
    ),
    "nobody writes": (
        "  beta: {shape: B T HV,", "  beta: {mutates: true, shape: B T HV,",
        "beta is marked mutates, and no stage writes over it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("old, new, message", MUTATIONS.values(), ids=MUTATIONS)
def test_writes_are_announced(tmp_path, old, new, message):
    text = (Path(__file__).parents[1] / "pipelines" / "gated_delta_decode.yaml").read_text()
    assert text.count(old) == 1
    (tmp_path / "p.yaml").write_text(text.replace(old, new))
    assert message in [each.message for each in refusal(load, tmp_path / "p.yaml")]


@pytest.mark.parametrize("seqlens", [None, (7, 0, 1)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", RECURRENT)
def test_the_recurrent_form(name, seqlens):
    """Every pipeline that has one is within budget of its definition, with and without an initial state."""
    an_op = op(name, mode="recurrent")
    given = inputs(an_op, seqlens=seqlens, **dict(LITTLE, T=8 if seqlens else 9))
    check(an_op, given, seqlens=seqlens)
    check(an_op, {**given, "initial_state": None}, seqlens=seqlens)


def test_the_mode_follows_the_longest_sequence():
    def stages(mode, seqlens=None, **sizes):
        an_op = op("gated_delta", mode=mode)
        call = an_op.bind(inputs(an_op, seqlens=seqlens, **{**LITTLE, **sizes}), None, seqlens)
        return len(call.graph.nodes), call.mode

    assert stages("auto", T=16) == (1, "recurrent") == stages("auto", seqlens=(16, 1, 0, 16), T=40)
    assert stages("auto", T=17) == (6, "chunk") == stages("auto", seqlens=(17,), T=17)
    assert stages("chunk", T=1) == (6, "chunk")
    assert stages("recurrent", T=100) == (1, "recurrent")
    assert stages("auto", T=16, B=1) == stages("auto", T=16, B=8)


def test_gradients_take_the_chunked_form():
    an_op = op("gated_delta", mode="auto")
    given = inputs(an_op, **LITTLE, T=5)
    given["q"].requires_grad_()
    an_op(**given).o.sum().backward()
    chunked = inputs(an_op, **LITTLE, T=5)
    chunked["q"].requires_grad_()
    op("gated_delta")(**chunked).o.sum().backward()
    assert same_bits(given["q"].grad, chunked["q"].grad)


def test_modes_that_do_not_exist():
    assert refusal(load, "gated_delta", mode="fast")[0].message == "there is no mode fast"
    part = op("gated_delta", mode="recurrent").until("solve")
    given = inputs(part, **LITTLE, T=5)
    assert (
        "has no recurrent form" in refusal(part, **{k: v for k, v in given.items() if k in part.spec.inputs})[0].message
    )


@pytest.mark.parametrize("name", CHUNKED)
def test_packed_steps_of_many_requests(name):
    """Ragged requests, one without a slot, in one packed call: as each request alone."""
    an_op = op(f"{name}_decode")
    given = inputs(an_op, seqlens=RAGGED, **dict(LITTLE, SLOTS=9))
    rows = torch.tensor([8, 3, 0, -1, 5, 1])
    together = {**given, "state_indices": rows, "state": given["state"].clone()}
    out = an_op(**together, seqlens=RAGGED)
    start = sum(RAGGED[:4])
    alone = {
        k: x[:, start : start + 64] if x is not None and "T" in an_op.whole.inputs[k].axes else x
        for k, x in given.items()
    }
    one = an_op(**{**alone, "state_indices": rows[4:5], "state": given["state"].clone()})
    assert same_bits(out.o[:, start : start + 64], one.o)
    assert same_bits(out.new_state[5], one.new_state[5])


def test_what_goes_token_by_token_has_no_other_form():
    assert {name for name in [*PIPELINES, *STEPS] if op(name).recurrent(frozenset()) is None} == SERIAL
    given = inputs(op("gla_step"), **LITTLE, T=5)
    out = op("gla_step", mode="auto")(**given)
    assert same_bits(out.o, op("gla_step")(**given).o)


@pytest.mark.parametrize("name", ["gla_step", "gla_serial"])
def test_what_goes_token_by_token_already_has_no_other_form(name):
    an_op = load(name, mode="recurrent")
    (found,) = refusal(an_op, **{key: x for key, x in inputs(op(name), B=1, T=3, H=1, HV=1, K=4, V=4).items()})
    why = "it has no chunks (axis C) in place of which its tokens could go one by one"
    assert found.message == f"{name} has no recurrent form: {why}"
