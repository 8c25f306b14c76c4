"""The dense form of a definition: typed by named axes, evaluated over whole tensors in float64."""

import math

import pytest
import torch

from chunkwise.runner.definition import DefinitionError, Line, evaluate, parse_definition, typecheck

INPUTS = {
    "q": "B Sq HQ D", "k": "B Sk H D", "v": "B Sk H DV", "slopes": "HQ", "w": "B Sq HI",
    "x": "B Sk HI D", "c": "B Sk D",
}  # fmt: skip
DECLARED = {name: tuple(shape.split()) for name, shape in INPUTS.items()}
SIZES = dict(B=2, Sq=5, Sk=7, HQ=4, H=2, D=3, DV=6, HI=2, TOP=3)
SCORES = "s = q @ transpose(k)"
KEEP = "keep = index(Sk) <= index(Sq) + Sk - Sq - 4"


def parsed(*lines, **others):
    return parse_definition({"dense": [Line(text, n) for n, text in enumerate(lines)], **others})


def inputs(seed=0, **sizes):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn([(SIZES | sizes)[axis] for axis in axes], generator=generator, dtype=torch.float64)
        for name, axes in DECLARED.items()
    }


def run(*lines, given=None, **outputs):
    axes = {name: tuple(shape.split()) for name, shape in outputs.items()}
    found = evaluate(parsed(*lines), given or inputs(), declared=DECLARED, outputs=axes, axes={"TOP": 3})
    return found


def attention(given, keep):
    k, v = (given[name].repeat_interleave(2, 2) for name in "kv")
    s = torch.einsum("bihd,bjhd->bhij", given["q"], k).masked_fill(~keep, -math.inf)
    p = torch.where(keep, torch.softmax(s, -1), 0.0)
    return torch.einsum("bhij,bjhd->bihd", p, v), torch.logsumexp(s, -1).transpose(1, 2)


def test_attention_with_rows_that_see_nothing():
    given = inputs()
    rows, columns = torch.arange(5)[:, None], torch.arange(7)
    o, lse = attention(given, columns <= rows + 7 - 5 - 4)
    found = run(
        SCORES, KEEP, "o = masked_softmax(s, keep, axis=Sk) @ v", "lse = masked_logsumexp(s, keep, axis=Sk)",
        o="B Sq HQ DV", lse="B Sq HQ",
    )  # fmt: skip
    torch.testing.assert_close(found["o"][:, 2:], o[:, 2:], rtol=1e-13, atol=0)
    torch.testing.assert_close(found["lse"], lse, rtol=1e-13, atol=0)
    assert (found["o"][:, :2] == 0).all() and (found["lse"][:, :2] == -math.inf).all()


def test_rows_that_see_nothing_have_gradient_zero():
    given = {name: x.requires_grad_() for name, x in inputs().items()}
    found = run(
        SCORES, KEEP, "o = masked_softmax(s, keep, axis=Sk) @ v", "lse = masked_logsumexp(s, keep, axis=Sk)",
        given=given, o="B Sq HQ DV", lse="B Sq HQ",
    )  # fmt: skip
    wanted = [given[name] for name in "qkv"]
    dq, dk, dv = torch.autograd.grad([found["o"], found["lse"]], wanted, [torch.ones(2, 5, 4, 6), torch.ones(2, 5, 4)])
    assert dq.isfinite().all() and dk.isfinite().all() and dv.isfinite().all()
    assert (dq[:, :2] == 0).all() and (dv[:, 3:] == 0).all() and dq[:, 2:].abs().sum() > 0


def test_no_keys():
    given = inputs(Sk=0)
    found = run(
        SCORES, KEEP, "o = masked_softmax(s, keep, axis=Sk) @ v", "lse = masked_logsumexp(s, keep, axis=Sk)",
        given=given, o="B Sq HQ DV", lse="B Sq HQ",
    )  # fmt: skip
    assert (found["o"] == 0).all() and found["o"].shape == (2, 5, 4, 6) and (found["lse"] == -math.inf).all()


def test_axes_join_by_name():
    """Three axes at once, and the sum of a product without the product."""
    given = inputs()
    line = "s = sum(w * relu(sum(x * q, axis=D)), axis=HI)"
    products = torch.einsum("bjgd,bihd->bhijg", given["x"], given["q"]).relu()
    right = torch.einsum("big,bhijg->bihj", given["w"], products)
    torch.testing.assert_close(run(line, s="B Sq HQ Sk")["s"], right, rtol=1e-12, atol=1e-13)


def test_softmax_and_logsumexp_without_a_mask():
    given = inputs()
    found = run(SCORES, "o = softmax(s, axis=Sk) @ v", "z = logsumexp(s, axis=Sk)", o="B Sq HQ DV", z="B Sq HQ")
    o, lse = attention(given, torch.ones(5, 7, dtype=torch.bool))
    torch.testing.assert_close(found["o"], o, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found["z"], lse, rtol=1e-13, atol=1e-14)


def test_largest_and_what_stands_there():
    """Sparse attention with as many places as keys is dense attention."""
    given = inputs()
    lines = ["s = q @ transpose(c)", "at = topk(s, TOP, axis=Sk)", "best = gather(s, at, axis=Sk)"]
    found = run(*lines, "rows = gather(c, at, axis=Sk)", best="B Sq HQ TOP", rows="B Sq HQ TOP D")
    s = torch.einsum("bihd,bjd->bihj", given["q"], given["c"])
    best, at = s.topk(3, -1)
    torch.testing.assert_close(found["best"], best, rtol=1e-13, atol=0)
    rows = torch.gather(given["c"][:, None, None].expand(2, 5, 4, 7, 3), 3, at[..., None].expand(*at.shape, 3))
    assert torch.equal(found["rows"], rows)


def test_of_two_alike_the_lower_place_and_none_past_the_last():
    given = inputs() | {"c": torch.tensor([[[1.0, 3.0, 1.0]] * 7, [[0.0, -0.0, 0.0]] * 7], dtype=torch.float64)}
    found = run("at = topk(c, TOP, axis=D)", "x = gather(c, at - 1, axis=D)", given=given, at="B Sk TOP", x="B Sk TOP")
    assert found["at"][0, 0].tolist() == [1, 0, 2] and found["at"][1, 0].tolist() == [0, 1, 2]
    assert found["x"][0, 0].tolist() == [1.0, 0.0, 3.0]
    few = run("at = topk(x, TOP, axis=HI)", "y = gather(x, at, axis=HI)", at="B Sk D TOP", y="B Sk D TOP")
    assert (few["at"][..., 2] == -1).all() and (few["y"][..., 2] == 0).all()
    assert torch.equal(few["y"][..., :2], inputs()["x"].transpose(2, 3).sort(-1, descending=True).values)


def test_places_along_the_axis_itself():
    """What stands one before; nothing before the first."""
    found = run("y = gather(c, index(Sk) - 1, axis=Sk)", y="B Sk D")["y"]
    assert (found[:, 0] == 0).all() and torch.equal(found[:, 1:], inputs()["c"][:, :-1])


def test_a_shared_head_and_the_sizes_of_axes():
    given = inputs()
    found = run("o = slopes * (index(Sk) - index(Sq) - Sk + Sq)", o="B HQ Sq Sk")
    distance = torch.arange(7) - torch.arange(5)[:, None] - 7 + 5
    assert torch.equal(found["o"], (given["slopes"][:, None, None] * distance).expand(2, 4, 5, 7))


@pytest.mark.parametrize(
    ("marked", "message", "help"),
    [
        ("o = masked_softmax(q, [q], axis=D)", "masked_softmax needs a comparison second", "as in j <= i"),
        ("o = [masked_softmax(q, q > 0)]", "masked_softmax without axis=", "write masked_softmax(x, axis=NAME)"),
        ("o = masked_softmax(q, q > 0, axis=[Sk])", "'Sk' is no axis of (Sq, D)", None),
        ("o = index([H])", "'H' is no inner axis of this pipeline", None),
        ("o = index([Skk])", "'Skk' is no inner axis of this pipeline", "did you mean Sk?"),
        ("o = [diag](slopes)", "'diag' belongs to step", None),
        ("o = [k @ v]", "'@' contracts D of (Sk, D) with Sk of (Sk, DV)", None),
        ("o = [c @ transpose(c)]", "'@' gives (Sk, Sk), one axis twice", None),
        ("o = [topk(q)]", "topk takes 2 arguments, got 1", "write topk(x, TOP, axis=Sk)"),
        ("o = [masked_softmx](q, q > 0, axis=D)", "no function 'masked_softmx'", "did you mean masked_softmax?"),
        ("o = q + [B]", "'B' is not known to the lines of dense, which run for one sequence", None),
    ],
)
def test_errors_name_the_part(marked, message, help):
    start, end = marked.index("["), marked.index("]") - 1
    with pytest.raises(DefinitionError) as caught:
        typecheck(parsed(marked.replace("[", "").replace("]", "")), DECLARED, axes=("TOP",))
    (problem,) = caught.value.problems
    assert (problem.message, problem.start, problem.end, problem.line.where) == (message, start, end, 0)
    assert help is None or problem.help == help


def test_dense_lines_stand_alone():
    with pytest.raises(DefinitionError, match="dense: stands alone, and here is let: beside it"):
        parsed("o = q", let=[Line("a = 1")])


def test_an_output_over_axes_that_it_has_not():
    with pytest.raises(DefinitionError, match="output 'o' has the axis D, which the stages' o has not"):
        run("o = q", o="B Sq HQ")


def test_numbers_in_the_place_of_tensors():
    """A score that is one number, a mask that keeps all, an output that is a number: each as if laid out."""
    s = run(SCORES, s="B Sq HQ Sk")["s"]
    found = run(
        SCORES, KEEP, "a = masked_logsumexp(-1, keep, axis=Sk)", "b = masked_softmax(s, 1 < 2, axis=Sk)", "c = 3",
        a="B Sq HQ", b="B Sq HQ Sk", c="B Sq",
    )  # fmt: skip
    seen = (torch.arange(7) <= torch.arange(5)[:, None] + 7 - 5 - 4).sum(1).double()
    torch.testing.assert_close(found["a"], (seen.log() - 1)[None, :, None].expand(2, 5, 4), rtol=1e-13, atol=0)
    torch.testing.assert_close(found["b"], s.softmax(-1), rtol=1e-13, atol=0)
    assert found["c"].equal(torch.full((2, 5), 3.0, dtype=torch.float64))
