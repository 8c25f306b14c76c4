"""Value laws: read, sampled, implied, and violations found to the element."""

import math
from dataclasses import replace

import pytest
import torch

from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.graphs.build_graph import check_graphs
from chunkwise.runner.loading.load_spec import parse_spec
from chunkwise.runner.loading.variants import of_its_axes
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.stages._laws import FORMS, parse, sample, violations

TEXTS = ["row_count(Sk)", "row_of(PAGES)", "row_ends(Sq)", "row_count(NP PAGE)",
         "<= 0", ">= 0", "> 0", "0..1", "-5..0", "<= -1.5", ">= 1e-3", "unit_norm(K)", "retention_slopes(HV)",
         "lightning_slopes(HV)", "non_increasing(T in chunk)"]  # fmt: skip
SHAPES = {"unit_norm(K)": ("B T H K", (2, 9, 3, 16)), "retention_slopes(HV)": ("HV", (6,)),
          "lightning_slopes(HV)": ("HV", (6,))}  # fmt: skip
NONE = ["", "0", "< 0", "<=", "1..0", "0..", "unit_norm", "unit_norm()", "unit_norm(K) ", "0 .. 1 .. 2", "nan..1",
        "non_increasing(T)", "<= x", "__import__('os')"]  # fmt: skip


def test_the_list_of_forms_is_the_list_that_is_read():
    filled = [form.replace("AXIS", "K").replace("x..y", "1..2").replace("x", "1") for form in FORMS]
    assert all(parse(text) for text in filled)


@pytest.mark.parametrize("text", NONE)
def test_anything_else_is_no_law(text):
    assert parse(text) is None or text != text.strip()


@pytest.mark.parametrize("text", TEXTS)
def test_samples_keep_their_law(text):
    law = parse(text)
    axes, shape = SHAPES.get(text, ("B T HV", (2, 50, 3)))
    x = sample(law, torch.randn(shape, generator=torch.Generator().manual_seed(0)), tuple(axes.split()))
    assert x.shape == shape and x.isfinite().all()
    assert not violations(law, x, tuple(axes.split()), 16).any()
    assert len(x.unique()) > 1


@pytest.mark.parametrize("text", TEXTS)
def test_nan_breaks_every_law(text):
    axes, shape = SHAPES.get(text, ("B T HV", (2, 50, 3)))
    x = torch.full(shape, math.nan)
    assert violations(parse(text), x, tuple(axes.split()), 16).all()


@pytest.mark.parametrize(
    "text,good,bad",
    [
        ("<= 0", [0.0, -1.0, -math.inf], [1e-30, 1.0, math.inf]),
        (">= 0", [0.0, 1.0, math.inf], [-1e-30, -math.inf]),
        ("> 0", [1e-30, math.inf], [0.0, -1.0]),
        ("0..1", [0.0, 0.5, 1.0], [-1e-7, 1.0000001]),
        ("-5..0", [-5.0, 0.0], [-5.1, 0.1]),
    ],
)
def test_intervals(text, good, bad):
    law = parse(text)
    assert violations(law, torch.tensor(good), ("T",), 16).tolist() == [False] * len(good)
    assert violations(law, torch.tensor(bad), ("T",), 16).tolist() == [True] * len(bad)


def test_unit_norm_allows_padding_and_marks_the_whole_row():
    x = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.81]])
    assert violations(parse("unit_norm(K)"), x, ("T", "K"), 16).tolist() == [[False] * 2, [False] * 2, [True] * 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_unit_norm_allows_rounding(dtype):
    x = torch.nn.functional.normalize(torch.randn(500, 128, generator=torch.Generator().manual_seed(0)), dim=-1)
    assert not violations(parse("unit_norm(K)"), x.to(dtype), ("T", "K"), 16).any()


def test_non_increasing_starts_anew_with_each_chunk():
    law = parse("non_increasing(T in chunk)")
    x = torch.tensor([0.0, -1.0, -1.0, -3.0, -0.5, -0.4, -2.0, 1.0])
    assert violations(law, x[None], ("B", "T"), 4).tolist() == [[False] * 5 + [True, False, True]]
    assert violations(law, x[:, None], ("T", "HV"), 4).flatten().tolist() == [False] * 5 + [True, False, True]
    assert not violations(law, x[:0][None], ("B", "T"), 4).any()


@pytest.mark.parametrize(
    "stronger,weaker",
    [
        ("0..1", ">= 0"), ("-5..0", "<= 0"), ("0..1", "0..2"), ("> 0", ">= 0"), ("<= -1", "<= 0"), ("0..1", "0..1"),
        ("non_increasing(T in chunk)", "<= 0"), ("retention_slopes(HV)", "<= 0"), ("unit_norm(K)", "unit_norm(K)"),
    ],
)  # fmt: skip
def test_implied(stronger, weaker):
    assert parse(stronger).implies(parse(weaker))
    assert stronger == weaker or not parse(weaker).implies(parse(stronger))


@pytest.mark.parametrize("one,other", [("unit_norm(K)", "unit_norm(V)"), ("0..1", "<= 0"), ("unit_norm(K)", "0..1"),
                                       (">= 0", "> 0"), ("non_increasing(T in chunk)", "-5..0")])  # fmt: skip
def test_not_implied(one, other):
    assert not parse(one).implies(parse(other))


@pytest.mark.parametrize("text", TEXTS)
def test_words(text):
    words = parse(text).words
    assert words and words[0].islower() and not words.endswith(".")


FILE = """\
schema: pipeline/v1
name: op
inputs:
  g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  x: {SHAPE, where: LAW}
stages: {cumsum: {use: chunk_local_cumsum, in: {x: g}}}
outputs: {y: cumsum.y, x: x}
"""


@pytest.mark.parametrize("shape, law, message", [
    ("shape: B T H K", "unit_norm(Z)", "unit_norm(Z) speaks of Z, and the shape is B T H K"),
    ("shape: B T H K", "retention_slopes(HV)", "retention_slopes(HV) speaks of HV, and the shape is B T H K"),
    ("shape: N HV", "non_increasing(T in chunk)", "non_increasing(T in chunk) speaks of T, and the shape is N HV"),
    ("shape: N", "slots", "slots speaks of row numbers, and the dtype is io"),
    ("shape: B N, dtype: int", "slots", "slots is a list's, and the shape is B N"),
    ("shape: N", "row_count(T)", "row_count(T) speaks of row numbers, and the dtype is io"),
    ("shape: N, dtype: int", "row_count(T Sk)", "row_count(T Sk) speaks of Sk, and no input has it"),
    ("shape: B T H K, dtype: int", "unit_norm(K)", "unit_norm(K) speaks of real numbers, and the dtype is int"),
])  # fmt: skip
def test_a_law_that_cannot_be_said_of_its_input(shape, law, message):
    """Nothing could be made or checked by it: refused with the file, not at its first numbers."""
    with pytest.raises(ChunkwiseError) as caught:
        check_graphs(parse_spec(FILE.replace("SHAPE", shape).replace("LAW", law), "op.yaml"), find_stages())
    (found,) = [each for each in caught.value.diagnostics if each.code == "CW210"]
    assert found.message == f"x: {message}" and found.mark.line == 5


def test_a_part_is_not_held_to_axes_that_it_has_not():
    """n speaks of rows of x, which a stage that reads n alone does not see."""
    inputs = "  n: {shape: B T HV, dtype: int, where: row_count(K)}\n  x: B T H K"
    text = FILE.replace("  x: {SHAPE, where: LAW}", inputs)
    spec = parse_spec(text.replace("{y: cumsum.y, x: x}", "{y: n * cumsum.y, x: x}"), "op.yaml")
    read = replace(spec, inputs={name: entry for name, entry in spec.inputs.items() if name != "x"})
    assert [law.value for law in of_its_axes(spec).inputs["n"].where] == ["row_count(K)"]
    assert of_its_axes(read).inputs["n"].where == () and len(of_its_axes(read).inputs["g"].where) == 1
