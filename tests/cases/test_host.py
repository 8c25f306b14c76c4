"""What the host hands to the compiler: C3, C9, D8. Launches are data, so no GPU is needed to look at them."""

import pytest
import torch
from support.one_stage import ATTENTION, STAGES
from support.ops import OPS, check, inputs, op

from chunkwise.runner.compiling.meta_launches import FORMS, meta_launches

AXES = dict(B=2, T=100, H=2, HV=4, K=64, V=64, C=64, SLOTS=6, W=4, D=64, DI=64, NS=64, RANKS=3, LANES=2)
# more than one tile of queries, and so many that keys are not split, heads in whole tiles: kernels have a form for less
AXES |= ATTENTION | dict(HQ=64, Sq=140, Sk=600, NP=75)
LONGER = dict(B=3, T=1000, H=16, HV=48, SLOTS=40, HQ=128, Sq=1900, Sk=1700, PAGES=400, NP=220)


def launchers(stage):
    yield from ((each, False) for each in stage.launchers)
    yield from ((each, True) for each in stage.vjp_launchers)


def launches(name, io, axes, form):
    """Every kernel launch of a stage and its gradient, for every configuration that ships for an H200."""
    stage = STAGES[name]
    for launcher, backward in launchers(stage):
        for config in launcher.configs({**axes, "N": axes["B"], "NT": 1}, "sm_90"):
            yield from meta_launches(stage.contract, launcher, backward, axes, io, form, config)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STAGES)
def test_c9_lengths_and_counts_compile_nothing_anew(name, form):
    """T, B, H and HV stand in no compile-time value, and no number is specialised on."""
    alike(name, form, AXES, AXES | LONGER)


@pytest.mark.parametrize("name", ["split_attention", "paged_attention", "latent_attention", "paged_latent_attention"])
def test_c9_splits_compile_nothing_anew(name):
    few = dict(Sq=2, Sk=4000, NP=500)
    alike(name, "plain", AXES | few, AXES | LONGER | dict(Sq=3, HQ=512, Sk=9000))


def alike(name, form, axes, others):
    """Both sizes launch the same compiled kernels."""
    pytest.importorskip("triton")
    found = list(launches(name, torch.bfloat16, axes, form))
    for launch, other in zip(found, launches(name, torch.bfloat16, others, form), strict=True):
        kernel = launch.kernel
        assert (kernel, launch.constexprs) == (other.kernel, other.constexprs)
        assert (launch.num_warps, launch.num_stages) == (other.num_warps, other.num_stages)
        numbers = {each for each, x in launch.args.items() if isinstance(x, (int, float))}
        frozen = {each.name for each in kernel.params if each.do_not_specialize}
        assert numbers <= frozen, f"{kernel.__name__} specialises on {sorted(numbers - frozen)}"
        assert not {"B", "T", "N", "NT", "H", "HV", "HQ", "Sq", "Sk"} & set(launch.constexprs)
    assert found or not STAGES[name].launchers


@pytest.mark.parametrize("name", STAGES)
def test_d8_float32_products_are_ieee(name):
    """The precision of every product is said in so many words, whatever PyTorch's own switches are set to."""
    pytest.importorskip("triton")
    for form in FORMS:
        for launch in launches(name, torch.float32, AXES, form):
            assert launch.constexprs.get("PRECISION", "ieee") == "ieee"
            source, named = launch.kernel.src, {each.name for each in launch.kernel.params}
            assert "PRECISION" in named or source.count("tl.dot(") == source.count('input_precision="ieee"')


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_c3_a_scale_of_one(name, io):
    """1, as a float and as an int, is a scale like any other."""
    an_op = op(name)
    given = inputs(an_op, io, B=1, H=1, HV=1, K=16, V=24)
    for scale in (1, 0.999):
        check(an_op, given, params={"scale": scale})
    assert torch.equal(an_op(**given, scale=1).o, an_op(**given, scale=1.0).o)
