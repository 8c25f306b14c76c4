"""Values of params that a stage does not take: refused by name, in a file, in a call and in an exported file."""

from pathlib import Path

import pytest
import torch
from support.exported import module_of
from support.ops import op, refusal

from chunkwise.runner import load
from chunkwise.runner.exporting.export import export
from chunkwise.runner.main import main

ATTENTION = {name: torch.ones(1, 3, 2, 8) for name in "qkv"}
REFUSED = {
    "a mask that is neither causal nor not": ("causal", 2, "causal * (causal - 1) == 0", "mask (key_span)"),
    "a window of -1, which elsewhere means none": ("window", -1, "window >= 0", "mask (key_span)"),
    "a window beyond 32 bits": ("window", 1e300, "window < 2 ** 31", "mask (key_span)"),
    "a prefix below none": ("prefix_lm", -2, "prefix_lm >= 0", "mask (key_span)"),
    "a prefix beyond 32 bits": ("prefix_lm", 2**31, "prefix_lm < 2 ** 31", "mask (key_span)"),
    "a negative soft cap": ("softcap", -1, "softcap >= 0", "attend (flash_fwd)"),
    "more than all dropped": ("dropout", 1.5, "dropout <= 1", "attend (flash_fwd)"),
    "less than none dropped": ("dropout", -0.5, "dropout >= 0", "attend (flash_fwd)"),
    "a part of a seed": ("seed", 1.5, "seed == floor(seed)", "attend (flash_fwd)"),
    "a seed that float64 rounds": ("seed", 2**53 + 1, "abs(seed) < 2 ** 53", "attend (flash_fwd)"),
    "a part of a batch": ("first_batch", 0.5, "first_batch == floor(first_batch)", "attend (flash_fwd)"),
    "a batch that float64 rounds": ("first_batch", -(2**60), "abs(first_batch) < 2 ** 53", "attend (flash_fwd)"),
}


@pytest.mark.parametrize("param, value, rule, stage", REFUSED.values(), ids=REFUSED)
def test_of_attention(param, value, rule, stage):
    (error,) = refusal(op("flash"), **ATTENTION, **{param: value})
    assert error.code == "CW306"
    assert error.message == f"{rule} does not hold for {param} = {float(value)}, and {stage} requires it"


@pytest.mark.parametrize("bound, rule", [(-9, "bound >= -5"), (0, "bound < 0"), (3, "bound < 0")])
def test_a_bound_that_lets_states_grow_or_forget_at_once(bound, rule):
    gate = {"a": torch.zeros(1, 3, 2, 8), "A_log": torch.zeros(2), "dt_bias": torch.zeros(2, 8)}
    (error,) = refusal(op("kda_bounded").until("gate"), **gate, bound=bound)
    message = f"{rule} does not hold for bound = {float(bound)}, and gate (kda_gate_bounded) requires it"
    assert (error.code, error.message) == ("CW306", message)


NORMED = """\
schema: pipeline/v1
name: normed
summary: for a test
source: none
inputs: {x: B T H K}
params: {half: 0.5}
stages: {norm: {use: l2norm, in: {x: x}, with: {eps: half - 1}}}
outputs: {y: norm.y}
"""


def test_a_file_that_binds_one(tmp_path, capsys):
    (tmp_path / "normed.yaml").write_text(NORMED)
    assert main(["check", str(tmp_path / "normed.yaml")]) == 2
    told = capsys.readouterr().err
    assert "error[CW306]: eps >= 0 does not hold for eps = -0.5, and norm (l2norm) requires it" in told
    assert "normed.yaml:7:10" in told


def test_an_exported_file(tmp_path):
    text = export(op("kda_bounded"), backend="reference")
    function = module_of(text, tmp_path).kda_bounded
    given = {name: torch.ones(1, 2, 1, 4) for name in "qkva"} | {"b": torch.ones(1, 2, 1)}
    given |= {"A_log": torch.zeros(1), "dt_bias": torch.zeros(1, 4)}
    assert function(**given, bound=-5)[0].isfinite().all()
    with pytest.raises(ValueError, match=r"^bound >= -5 does not hold for bound = -6$"):
        function(**given, bound=-6)
    assert "eps" not in text[: text.index("return")]  # what the file binds to a number was checked with it


BEYOND = """\
schema: pipeline/v1
name: beyond
summary: for a test
source: none
inputs: {x: B T H K}
params: {much: K ** 21}
stages: {norm: {use: l2norm, in: {x: x / K ** 21}, with: {eps: much}}}
outputs: {y: norm.y, z: x / (2 * much)}
"""


def test_whole_numbers_beyond_64_bits(tmp_path):
    """16 ** 21 has 85: neither a kernel nor PyTorch takes it as it is."""
    (tmp_path / "beyond.yaml").write_text(BEYOND)
    beyond, x = load(tmp_path / "beyond.yaml"), torch.randn(1, 3, 2, 16)
    found = beyond(x=x)
    assert found.z.equal(x / (2.0 * 16.0**21)) and found.y.isfinite().all()
    y, z = module_of(export(beyond, backend="reference"), tmp_path).beyond(x)
    assert y.equal(found.y) and z.equal(found.z)


@pytest.mark.parametrize("name, line, same, axes", [
    ("simple_gla", "o = scale * (q @ S)", "o = scale * (q @ S) / {0} * {0}", "B=1,T=20,H=1,HV=1,K=8,V=8"),
    ("csa", "past = index(NB) - 1 ", "past = index(NB) - 1 + {0} / {0} - 1 ", "B=1,Sq=9"),
])  # fmt: skip
def test_whole_numbers_beyond_64_bits_in_a_definition(name, line, same, axes, tmp_path, capsys):
    text = (Path(__file__).parents[1] / "pipelines" / f"{name}.yaml").read_text()
    assert line in text
    (tmp_path / "own.yaml").write_text(text.replace(line, same.format(10**25)))
    assert main(["verify", str(tmp_path / "own.yaml"), "--axes", axes]) == 0, capsys.readouterr().err
