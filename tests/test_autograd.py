"""The op under PyTorch's autograd, eager: what it asks for, keeps, notices and refuses."""

import copy
import gc
import pickle
import threading
import weakref
from contextlib import nullcontext

import pytest
import torch
from support.ops import PIPELINES, inputs, op, refusal, same_bits
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from chunkwise.runner import load
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.planning.sequences import tables_by_stream

SMALL = dict(B=2, T=70, H=1, HV=2, K=16, V=24)


def able(an_op, given):
    """The inputs that gradients can be asked for."""
    absent = frozenset(name for name, x in given.items() if x is None)
    return [name for name, x in given.items() if x is not None and an_op.has_gradient(name, absent)]


def leaves(given, names):
    """Fresh copies; those that are named require gradients."""
    copies = {name: x if x is None else x.detach().clone() for name, x in given.items()}
    for name in names:
        copies[name].requires_grad_()
    return copies


def loss(out):
    """A sum over all outputs, with a different weight for every number."""
    found = 0
    for x in out:
        if x is not None and x.requires_grad:
            weights = torch.linspace(-1, 2, x.numel(), dtype=torch.float64).reshape(x.shape)
            found = found + (weights * x.double()).sum()
    return found


def gradients(an_op, given, names=None, function=None, **keywords):
    """Gradients by input of loss, by an eager call or by another function of the same arguments."""
    given = leaves(given, able(an_op, given) if names is None else names)
    loss((function or an_op)(**given, **keywords)).backward()
    return {name: x.grad for name, x in given.items() if x is not None}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        assert (found[name] is None) == (x is None), name
        assert x is None or same_bits(found[name], x), name


@pytest.fixture(params=PIPELINES)
def an_op(request):
    return op(request.param)


@pytest.fixture
def given(an_op):
    return inputs(an_op, **SMALL)


def test_one_gradient_at_a_time(an_op, given):
    """It has the bits that it has among all the others, and no other is made."""
    everything = gradients(an_op, given)
    for name in able(an_op, given):
        alone = gradients(an_op, given, [name])
        assert same_bits(alone.pop(name), everything[name])
        assert set(alone.values()) <= {None}
        joint = an_op.bind(leaves(given, [name])).joint([name], an_op.whole.outputs)
        assert list(joint.gradients) == [name]


def test_one_output_at_a_time(an_op, given):
    """An output that the loss leaves out brings no cotangent, not one of zeros."""
    names = able(an_op, given)
    for output in an_op.whole.outputs:
        made = leaves(given, names)
        getattr(an_op(**made), output).double().square().sum().backward()
        alone = leaves(given, names)
        getattr(an_op(**alone, outputs=[output]), output).double().square().sum().backward()
        graph = an_op.bind(given).joint(names, [output])
        assert list(graph.cotangents) == [output]
        for name in names:
            assert (made[name].grad is None) == (name not in graph.gradients)
            assert name not in graph.gradients or same_bits(made[name].grad, alone[name].grad)


def test_what_passes_with_gradients_run_is_found_once():
    """For a signature, the gradients that are wanted and the outputs that a loss depends on."""
    an_op = load("simple_gla")
    given = inputs(an_op, **SMALL)
    call = an_op.bind(given)

    def trained(names, outputs):
        out = an_op(**leaves(given, names))
        torch.autograd.backward([getattr(out, name).sum() for name in outputs])
        return an_op.bind(given).training(tuple(names), given)

    first = trained(["q", "v"], ["o"])
    assert trained(["q", "v"], ["o"]) is first and len(first.backwards.items) == 1
    assert trained(["q", "v"], ["o", "final_state"]) is first and len(first.backwards.items) == 2
    assert trained(["v"], ["o"]) is not first
    assert len(call.trainings.items) == 2 < call.trainings.limit


def test_what_is_found_again_holds_no_tensors():
    an_op = load("simple_gla")
    given = leaves(inputs(an_op, **SMALL), ["q", "k", "v"])
    out = an_op(**given)
    out.o.sum().backward()
    refs = [weakref.ref(x) for x in (*given.values(), *out, given["q"].grad)]
    del out, given
    gc.collect()
    assert not any(ref() is not None for ref in refs)


def test_final_state_gives_no_gradient_for_q():
    made = leaves(inputs(op("gated_delta"), **SMALL), able(op("gated_delta"), inputs(op("gated_delta"), **SMALL)))
    op("gated_delta")(**made).final_state.sum().backward()
    assert [name for name, x in made.items() if x.grad is None] == ["q"]


def test_an_output_without_gradient_says_so():
    out = op("gated_delta")(**leaves(inputs(op("gated_delta"), **SMALL), ["q"]))
    assert out.o.requires_grad and not out.final_state.requires_grad


def test_an_input_without_gradient_is_refused():
    """Fixed slopes are constants of the op: asking for their gradient is an error, not a silent None."""
    given = inputs(op("retention"), **SMALL)
    (name,) = set(given) - set(able(op("retention"), given))
    with pytest.raises(ChunkwiseError, match="CW230"):
        op("retention")(**leaves(given, [name]))


def test_absent_inputs_have_no_gradient(an_op):
    optional = [each for each, entry in an_op.spec.inputs.items() if entry.optional]
    found = gradients(an_op, inputs(an_op, absent=optional, **SMALL))
    assert found and not set(optional) & found.keys()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(an_op, given, mode, monkeypatch):
    """Nothing is kept: the forward plan alone runs."""
    monkeypatch.setattr("chunkwise.runner.calling.autograd.apply", None)
    made, expected = leaves(given, able(an_op, given)), an_op(**given)
    with mode():
        out = an_op(**made)
    assert not any(x.requires_grad for x in out)
    assert all(same_bits(x, y) for x, y in zip(out, expected))


def test_tensors_of_inference_mode_after_it():
    """They can be read; PyTorch refuses to save them for backward by name."""
    with torch.inference_mode():
        given = inputs(op("simple_gla"), **SMALL)
    assert not op("simple_gla")(**given).o.requires_grad
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        op("simple_gla")(**given | {"v": torch.randn(2, 70, 2, 24, requires_grad=True)})


def test_what_is_kept_is_freed_with_the_graph():
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: seen.append(weakref.ref(x)) or x, lambda x: x):
        out = op("gated_delta")(**leaves(inputs(op("gated_delta"), **SMALL), ["v"]))
    assert seen
    gc.disable()
    try:
        del out
        assert not [each() for each in seen if each() is not None]
    finally:
        gc.enable()


def test_saved_tensor_hooks(an_op, given):
    """What is kept goes through them, each tensor once; it may come back as a strided copy."""
    packed = []

    def pack(x):
        packed.append(x.data_ptr())
        return x.clone().T.contiguous().T if x.dim() == 2 else x.transpose(0, -1).contiguous().transpose(0, -1)

    expected = gradients(an_op, given)
    made = leaves(given, able(an_op, given))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = an_op(**made)
    loss(out).backward()
    assert packed and len(packed) == len(set(packed))
    assert_same({name: x.grad for name, x in made.items()}, expected)


def test_saved_on_the_host(an_op, given):
    made = leaves(given, able(an_op, given))
    with torch.autograd.graph.save_on_cpu():
        out = an_op(**made)
    loss(out).backward()
    assert_same({name: x.grad for name, x in made.items()}, gradients(an_op, given))


def test_an_input_written_after_the_call():
    """PyTorch notices for every input that backward reads; the others may change."""
    given = inputs(op("gated_delta"), **SMALL)
    noticed = []
    for name in given:
        made = leaves(given, ["q", "v"])
        out = op("gated_delta")(**made)
        with torch.no_grad():
            made[name].zero_()
        try:
            loss(out).backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            noticed.append(name)
            continue
        expected = gradients(op("gated_delta"), given, ["q", "v"])
        assert all(same_bits(made[each].grad, expected[each]) for each in ("q", "v"))
    assert set("qkv") <= set(noticed)


def test_an_output_written_after_the_call():
    """The inverse is an output here, and backward reads it."""
    part = op("gated_delta").until("solve")
    given = inputs(op("gated_delta"), **SMALL)
    out = part(**leaves({name: given[name] for name in part.spec.inputs}, ["beta"]))
    total = out.Ai.sum()
    with torch.no_grad():
        out.Ai.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_cu_seqlens_written_after_the_call():
    """The op has its own copy of them."""
    given = inputs(op("gated_delta"), seqlens=(33, 0, 37))
    ends = torch.tensor([0, 33, 33, 70])
    expected = gradients(op("gated_delta"), given, seqlens=(33, 0, 37))
    made = leaves(given, able(op("gated_delta"), given))
    out = op("gated_delta")(**made, cu_seqlens=ends)
    ends.fill_(70)
    loss(out).backward()
    assert_same({name: x.grad for name, x in made.items()}, expected)


def test_backward_more_than_once(an_op, given):
    made = leaves(given, able(an_op, given))
    total = loss(an_op(**made))
    total.backward(retain_graph=True)
    first = {name: x.grad for name, x in made.items()}
    for x in made.values():
        x.grad = None
    total.backward()
    assert_same({name: x.grad for name, x in made.items()}, first)
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


def test_some_gradients_of_many(an_op, given):
    """autograd.grad for one input computes that one."""
    expected = gradients(an_op, given)
    made = leaves(given, able(an_op, given))
    total = loss(an_op(**made))
    for name in able(an_op, given):
        (found,) = torch.autograd.grad(total, made[name], retain_graph=True)
        assert same_bits(found, expected[name])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(an_op, given, reentrant):
    names = list(given)

    def again(**tensors):
        return checkpoint(lambda *x: tuple(an_op(**dict(zip(names, x)))), *tensors.values(), use_reentrant=reentrant)

    assert_same(gradients(an_op, given, function=again), gradients(an_op, given))


@pytest.mark.parametrize("how", ["transposed", "sliced", "expanded", "one number off", "negated later"])
def test_l6_gradients_of_views(an_op, given, how):
    """Inputs in memory of any kind: the gradients that their contiguous copies have."""

    def view(x):
        if how == "transposed":
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        if how == "sliced":
            return torch.cat([x.new_full(x.shape, torch.nan), x], dim=-1)[..., x.shape[-1] :]
        if how == "one number off":
            return torch.cat([x.new_full([1], torch.nan), x.flatten()])[1:].view(x.shape)
        if how == "negated later":
            return torch._neg_view(-x)
        return x[:1].expand_as(x)

    views = {name: view(x) for name, x in given.items()}
    copies = {name: x.clone(memory_format=torch.contiguous_format) for name, x in views.items()}
    names = able(an_op, given)
    found = torch.autograd.grad(
        loss(an_op(**views | {name: views[name].requires_grad_() for name in names})), [views[name] for name in names]
    )
    expected = gradients(an_op, copies)
    assert how in ("one number off", "negated later") or any(not x.is_contiguous() for x in views.values())
    assert all(same_bits(x, expected[name]) for name, x in zip(names, found))


@pytest.mark.parametrize("kind", ["expanded", "transposed", "float64", "read-only"])
def test_l6_output_gradients(an_op, given, kind):
    """Of any stride and dtype, and not written to."""
    names = able(an_op, given)
    shape = an_op(**given).o.shape
    plain = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    if kind == "expanded":
        plain = plain[:1, :1].expand(shape)
    strided = plain.transpose(1, -1).contiguous().transpose(1, -1) if kind == "transposed" else plain
    before, found = strided.clone(), []
    for d_o in (strided.double() if kind == "float64" else strided, plain.contiguous()):
        made = leaves(given, names)
        o = an_op(**made).o
        (o.double() if d_o.dtype == torch.float64 else o).backward(d_o)
        found.append({name: x.grad for name, x in made.items()})
    assert_same(*found)
    assert torch.equal(before, strided)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(an_op, given, dtype):
    """The mathematics of the op is its own: the same bits, forward and backward."""

    def under(**tensors):
        with torch.autocast("cpu", dtype=dtype):
            return an_op(**tensors)

    expected, found = an_op(**given), under(**given)
    assert all(same_bits(x, y) for x, y in zip(found, expected))
    assert_same(gradients(an_op, given, function=under), gradients(an_op, given))


def test_default_device_and_dtype(an_op):
    """What PyTorch makes by default is not what the op makes."""
    seqlens = (33, 0, 37)
    given = inputs(an_op, seqlens=seqlens, **dict(SMALL, B=1))
    tables_by_stream.cache_clear()
    made = leaves(given, able(an_op, given))
    with torch.device("meta"):
        torch.set_default_dtype(torch.float64)
        try:
            out = an_op(**made, seqlens=seqlens)
            cotangents = [torch.ones_like(x, device="cpu") for x in out]
            found = torch.autograd.grad(list(out), [made[name] for name in able(an_op, given)], cotangents)
        finally:
            torch.set_default_dtype(torch.float32)
    assert {x.dtype for x in (*out, *found)} == {torch.float32}
    usual = an_op(**made, seqlens=seqlens)
    again = torch.autograd.grad(list(usual), [made[name] for name in able(an_op, given)], cotangents)
    assert all(same_bits(x, y) for x, y in zip((*out, *found), (*usual, *again)))


def test_mixed_dtypes_under_autocast():
    """What autocast makes of a projection beside float32 inputs is refused by name."""
    given = inputs(op("gated_delta"), **SMALL)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q = torch.nn.functional.linear(given["q"], torch.eye(16))
        assert q.dtype == torch.bfloat16
        with pytest.raises(ChunkwiseError, match="must share one dtype: q is bf16, k is fp32"):
            op("gated_delta")(**given | {"q": q})
        gate = torch.nn.functional.linear(given["g"], torch.eye(2))
        with pytest.raises(ChunkwiseError, match="g .B T HV. must be fp32, it is bf16"):
            op("gated_delta")(**{**given, "g": gate})


def test_no_gradient_of_a_gradient(an_op, given):
    name = able(an_op, given)[0]
    made = leaves(given, [name])
    out = an_op(**made)
    with pytest.raises(ChunkwiseError, match="CW609"):
        torch.autograd.grad(out.o.square().sum(), made[name], create_graph=True)


def test_tensors_without_memory(an_op, given):
    """On the meta device and in a FakeTensorMode: shapes and dtypes of outputs and gradients."""
    expected = gradients(an_op, given)
    mode = FakeTensorMode()
    for convert, inside in ((lambda x: x.to("meta"), nullcontext()), (mode.from_tensor, mode)):
        made = {name: convert(x).requires_grad_(name in able(an_op, given)) for name, x in given.items()}
        with inside:
            out = an_op(**made)
            sum(x.sum() for x in out).backward()
        for name, x in made.items():
            assert x.grad is None if expected[name] is None else x.grad.shape == x.shape and x.grad.dtype == x.dtype
        assert [(x.shape, x.dtype) for x in out] == [(x.shape, x.dtype) for x in an_op(**given)]


def test_forward_mode_is_refused():
    """A kernel would drop the tangent without a word."""
    given = inputs(op("simple_gla"), **SMALL)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(given["q"], torch.ones_like(given["q"]))
        [found] = refusal(op("simple_gla"), **given | {"q": dual})
        assert found.code == codes.TRANSFORM and "no forward mode" in found.help
        assert op("simple_gla")(**given).o.shape == given["v"].shape


def test_a_tangent_of_a_cotangent_is_refused():
    """In segments too."""
    given = inputs(op("simple_gla"), **SMALL)
    leaf = given["q"].clone().requires_grad_()
    for each in (op("simple_gla"), op("simple_gla").in_segments(chunks=1)):
        o = each(**given | {"q": leaf}).o
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.ones_like(o), torch.ones_like(o))
            with pytest.raises(ChunkwiseError, match="backward pass of simple_gla .* torch.autograd.forward_ad"):
                torch.autograd.grad(o, leaf, dual, retain_graph=True)
            assert torch.autograd.grad(o, leaf, torch.ones_like(o))[0].shape == leaf.shape


TRANSFORMS = {
    "grad": lambda f, q: torch.func.grad(f)(q),
    "jacrev": lambda f, q: torch.func.jacrev(f)(q),
    "jvp": lambda f, q: torch.func.jvp(f, (q,), (q,)),
    "vmap": lambda f, q: torch.vmap(f)(q[None]),
    "functionalize": lambda f, q: torch.func.functionalize(f)(q),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_functions_are_refused_by_name(name):
    given = inputs(op("simple_gla"), **SMALL)
    [found] = refusal(TRANSFORMS[name], lambda q: op("simple_gla")(**given | {"q": q}).o.sum(), given["q"])
    assert found.code == codes.TRANSFORM and name in found.message and found.help


def test_a_batch_of_cotangents_is_refused():
    """autograd maps backward over them, and a kernel cannot be mapped."""
    given = inputs(op("simple_gla"), **SMALL)
    q = given["q"].requires_grad_()
    o = op("simple_gla")(**given).o
    [found] = refusal(torch.autograd.grad, o, q, torch.stack([o, o]).detach(), is_grads_batched=True)
    assert found.code == codes.TRANSFORM and "vmap" in found.message


def test_threads(an_op, given):
    """Calls and backward passes of one op from several threads, each with inputs of its own."""
    seeds = range(4)
    cases = [inputs(an_op, seed=seed, **dict(SMALL, T=40 + 30 * (seed % 2))) for seed in seeds]
    expected = [gradients(an_op, each) for each in cases]
    fresh = load(an_op.spec.file, backend="reference")
    start, found = threading.Barrier(len(cases)), {}

    def run(at):
        start.wait()
        found[at] = [gradients(fresh, cases[at]) for _ in range(3)]

    threads = [threading.Thread(target=run, args=(at,)) for at in seeds]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(found) == list(seeds)
    for at in seeds:
        for each in found[at]:
            assert_same(each, expected[at])


def test_copies_of_a_model(an_op, given):
    """Deep copies share the op; a pickled one comes back as the same registered op."""
    expected = an_op(**given)
    for other in (copy.deepcopy({"op": an_op})["op"], copy.copy(an_op), pickle.loads(pickle.dumps(an_op))):
        assert other.library is an_op.library
        assert all(same_bits(x, y) for x, y in zip(other(**given), expected))
    assert copy.deepcopy(an_op) is an_op


def test_outputs_are_tensors_of_their_own(tmp_path):
    """An output that is an input, and a gradient that is a cotangent, are copies; nan past the end stays out."""
    path = tmp_path / "pass.yaml"
    path.write_text(
        "schema: pipeline/v1\nname: passing\ninputs: {x: B T H K, y: B T H K}\n"
        "stages: {a: {use: l2norm, in: {x: y}}}\noutputs: {x: x, again: x, y: a.y}\n"
    )
    x = torch.full((1, 5, 2, 4), 2.0)
    x[:, 3:] = torch.nan
    x, y = x.requires_grad_(), torch.ones(1, 5, 2, 4)
    out = load(path)(x=x, y=y, seqlens=[1, 2])
    assert out.x.data_ptr() != x.data_ptr() and not out.x[:, 3:].any() and not out.y.requires_grad
    d = torch.full((1, 5, 2, 4), torch.nan)
    d[:, :3] = 1
    torch.autograd.backward([out.x], [d])
    assert x.grad.data_ptr() != d.data_ptr()
    assert torch.equal(x.grad[:, :3], torch.ones(1, 3, 2, 4)) and not x.grad[:, 3:].any()
    out = load(path)(x=x, y=y)
    (gradient,) = torch.autograd.grad(out.again.sum() + 2 * out.x.sum(), x)
    assert torch.equal(gradient, torch.full_like(x, 3.0))
