"""The op under torch.compile, torch.export and torch.library.opcheck: the reference back end on the CPU."""

import threading

import pytest
import torch
from support.ops import PIPELINES, inputs, op, same_bits
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from chunkwise.runner import chunk_gated_delta_rule, load
from chunkwise.runner.backward import may_be_kept
from chunkwise.runner.diagnostics.errors import ChunkwiseError

BUSY = ("gated_delta", "qwen3_next_gdn")
SMALL = dict(B=2, T=70, H=1, HV=2, K=16, V=24)
RAGGED = (0, 33, 1)
PACKED = dict(SMALL, B=1, T=sum(RAGGED) + 3)
ENDS = torch.tensor([0, *RAGGED]).cumsum(0)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(an_op, **keywords):
    """(the op under torch.compile in one graph, what counts its compilations)."""
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(lambda **given: an_op(**given), fullgraph=True, backend=counter, **keywords)
    return function, counter


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


def outcome(function, given, names, **keywords):
    """Every output, and the named gradients of a loss over all of them."""
    given = leaves(given, names)
    outputs = {name: x for name, x in function(**given, **keywords)._asdict().items() if x is not None}
    loss = sum((x.double() * (i + 1)).square().sum() for i, x in enumerate(outputs.values()) if x.requires_grad)
    loss.backward()
    gradients = {f"d_{name}": x.grad for name, x in given.items() if x is not None}
    return {name: x.detach() for name, x in outputs.items()} | gradients


def assert_same(function, an_op, given, **keywords):
    names = able(an_op, given)
    eager, ours = outcome(an_op, given, names, **keywords), outcome(function, given, names, **keywords)
    assert eager.keys() == ours.keys()
    for name, x in eager.items():
        assert (x is None) == (ours[name] is None), name
        assert x is None or same_bits(ours[name], x), name


FUSED = "delta_prescan,chunk_delta_o,chunk_h_o,chunk_delta_grads,chunk_delta_states,chunk_h_o_grads"


@pytest.mark.parametrize("absent", [(), ("initial_state",)], ids=["all", "no state"])
@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_fused_stages(name, absent):
    """Compiled code runs what an eager call runs, by the sizes of each call; the plain stages have other bits."""
    an_op = load(name, fuse=FUSED)
    function, counter = compiled(an_op, dynamic=True)
    for T in (70, 45):
        given = inputs(an_op, **SMALL | {"T": T}, absent=absent)
        assert_same(function, an_op, given)
        names = able(an_op, given)
        plain, ours = outcome(load(name, fuse="none"), given, names), outcome(function, given, names)
        assert not all(same_bits(plain[each], ours[each]) for each in ("o", "d_q", "d_k", "d_v"))
    assert counter.frame_count == 1


def arguments(library, given, outputs=None, gradients=(), cu_seqlens=None, lengths=None, seqlens=None):
    """The forward op's arguments in its schema's order."""
    outputs = [name for name, _, _ in library.sources] if outputs is None else outputs
    tensors = [given[name] for name in library.inputs]
    return (*tensors, *(None for _ in library.params), cu_seqlens, lengths, seqlens, outputs, list(gradients))


OPCHECK = {
    "plain": dict(sizes=SMALL),
    "without gradients": dict(sizes=SMALL, gradients=()),
    "no initial state": dict(sizes=SMALL, absent=("initial_state",)),
    "one output": dict(sizes=SMALL, outputs=["o"]),
    "one gradient": dict(sizes=SMALL, gradients=("v",)),
    "packed": dict(sizes=PACKED, seqlens=RAGGED, cu_seqlens=ENDS),
    "packed, lengths as a tensor": dict(sizes=PACKED, lengths=torch.tensor(RAGGED)),
    "bf16": dict(sizes=SMALL, io=torch.bfloat16),
}


def of_every_pipeline(cases, everywhere):
    """Some cases for every pipeline, all of them for one that has gated_delta's stages and more."""
    chosen = [(name, each) for name in PIPELINES for each in cases if each in everywhere or name == "qwen3_next_gdn"]
    return pytest.mark.parametrize("name, how", chosen, ids=[f"{name}-{each}" for name, each in chosen])


@of_every_pipeline(OPCHECK, ["packed"])
def test_opcheck(name, how):
    library, how = op(name).library, dict(OPCHECK[how])
    packed = how.get("seqlens") or (RAGGED if "lengths" in how else None)
    absent = [each for each in how.pop("absent", ()) if each in library.inputs]
    made = inputs(op(name), how.pop("io", torch.float32), seqlens=packed, absent=absent, **how.pop("sizes"))
    gradients = how.pop("gradients", able(op(name), made))
    if how.get("seqlens"):
        how["seqlens"] = list(how["seqlens"])
    found = torch.library.opcheck(
        library.forward, arguments(library, leaves(made, gradients), gradients=gradients, **how)
    )
    assert set(found.values()) == {"SUCCESS"} and len(found) == 4


@pytest.mark.parametrize("name", PIPELINES)
def test_opcheck_of_the_backward_op(name, monkeypatch):
    library, seen = op(name).library, []
    run = library.backward
    monkeypatch.setattr(library, "backward", lambda *args: seen.append(args) or run(*args))
    given = inputs(op(name), **SMALL)
    names = able(op(name), given)
    results = library.forward(*arguments(library, leaves(given, names), gradients=names))
    sum(x.sum() for x in results if x.requires_grad).backward()
    args = [x.detach() if isinstance(x, torch.Tensor) else x for x in seen[0]]
    assert set(torch.library.opcheck(run, args).values()) == {"SUCCESS"}


CALLS = {
    "plain": dict(sizes=SMALL),
    "no initial state": dict(sizes=SMALL, absent=("initial_state",)),
    "one output": dict(sizes=SMALL, outputs=["o"]),
    "the other output": dict(sizes=SMALL, outputs=["final_state"]),
    "a param": dict(sizes=SMALL, scale=0.3),
    "packed": dict(sizes=PACKED, cu_seqlens=ENDS),
    "packed, lengths given": dict(sizes=PACKED, cu_seqlens=ENDS, seqlens=list(RAGGED)),
    "packed, lengths alone": dict(sizes=PACKED, seqlens=torch.tensor(RAGGED)),
    "bf16": dict(sizes=SMALL, io=torch.bfloat16),
}


@of_every_pipeline(CALLS, ["packed, lengths given"])
def test_same_bits_as_eager(name, how):
    how = dict(CALLS[how])
    packed = RAGGED if {"cu_seqlens", "seqlens"} & how.keys() else None
    given = inputs(
        op(name), how.pop("io", torch.float32), seqlens=packed, absent=how.pop("absent", ()), **how.pop("sizes")
    )
    assert_same(compiled(op(name), dynamic=True)[0], op(name), given, **how)


@pytest.mark.parametrize("mark", [False, True], ids=["dynamic=True", "mark_dynamic"])
@pytest.mark.parametrize("name", BUSY)
def test_one_compilation_for_every_T(name, mark):
    """C9."""
    function, counter = compiled(op(name), **({} if mark else dict(dynamic=True)))
    for T in (63, 130, 500):
        given = inputs(op(name), **dict(SMALL, T=T))
        given = leaves(given, able(op(name), given))
        for each, value in op(name).whole.inputs.items():
            if mark and "T" in value.axes:
                torch._dynamo.mark_dynamic(given[each], value.axes.index("T"))
        out = function(**given)
        assert same_bits(out.o, op(name)(**given).o)
        (out.o.sum() + out.final_state.sum()).backward()
    assert counter.frame_count == 1


def test_sizes_of_0_and_1():
    """The compiler takes them for constants, and compiles anew."""
    function, _ = compiled(op("gated_delta"), dynamic=True)
    for sizes in (dict(T=0), dict(T=1), dict(B=0), dict(B=1), dict(H=1, HV=1)):
        assert_same(function, op("gated_delta"), inputs(op("gated_delta"), **{**SMALL, **sizes}))


def test_one_compilation_for_every_packing():
    """Lengths as a tensor on the host: any number of sequences, any lengths, one graph."""
    function, counter = compiled(op("gated_delta"), dynamic=True)
    for seqlens in [(33, 0, 1, 64), (5, 6, 7), (100, 50, 3, 1, 2)]:
        given = inputs(op("gated_delta"), seqlens=seqlens, H=1, HV=2, K=16, V=24)
        ends = torch.tensor([0, *seqlens]).cumsum(0)
        assert_same(function, op("gated_delta"), given, cu_seqlens=ends, seqlens=torch.tensor(seqlens))
    assert counter.frame_count == 1


def test_inductor():
    an_op = op("gated_delta")
    function = torch.compile(lambda **given: an_op(**given), fullgraph=True, dynamic=True)
    for T in (63, 130):
        assert_same(function, an_op, inputs(an_op, **dict(SMALL, T=T)))


def test_between_other_operations():
    """Intermediate tensors that require gradients, views that are not contiguous, one output used inside."""
    weight, an_op = torch.randn(16, 3 * 16, requires_grad=True), op("simple_gla")
    rest = inputs(an_op, B=2, T=70, H=1, HV=1, K=16, V=16)

    def model(x, g):
        q, k, v = (x @ weight).tanh().unflatten(-1, (3, 1, 16)).unbind(-3)
        return an_op(q=q, k=k, v=v, g=g, outputs=["o"]).o.square().sum()

    found = []
    for function in (model, torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)):
        weight.grad = None
        function(torch.ones(2, 70, 16) * torch.arange(16) / 16, rest["g"]).backward()
        found.append(weight.grad)
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_gradients_of_some_inputs_only():
    given = inputs(op("gated_delta"), **SMALL)
    function, _ = compiled(op("gated_delta"), dynamic=True)
    for names in (["beta"], ["q", "initial_state"]):
        eager, ours = leaves(given, names), leaves(given, names)
        op("gated_delta")(**eager).o.sum().backward()
        function(**ours).o.sum().backward()
        for name in given:
            assert (ours[name].grad is not None) == (name in names)
            assert name not in names or same_bits(ours[name].grad, eager[name].grad)


def test_an_output_without_gradient_says_so():
    given = leaves(inputs(op("gated_delta"), **SMALL), ["q"])
    out = compiled(op("gated_delta"))[0](**given)
    assert out.o.requires_grad and not out.final_state.requires_grad


def test_outputs_that_are_not_there(tmp_path):
    """An output whose stage lacks its input is None, compiled as well as eager; the same tensor twice is one value."""
    path = tmp_path / "twice.yaml"
    path.write_text(
        "schema: pipeline/v1\nname: twice\n"
        "inputs: {x: B T H K, y: {shape: B T H K, optional: true}}\n"
        "stages: {a: {use: l2norm, in: {x: x}}, b: {use: l2norm, in: {x: y}}}\n"
        "outputs: {first: a.y, second: b.y, again: a.y, itself: x}\n"
    )
    an_op = load(path)
    x = torch.randn(1, 5, 2, 8)
    function, _ = compiled(an_op)
    for given in (dict(x=x), dict(x=x, y=x + 1)):
        assert_same(function, an_op, given)
        assert (function(**given).second is None) == (an_op(**given).second is None) == ("y" not in given)
    for each in (an_op, function):
        copy = x.clone()
        assert each(x=copy).itself.data_ptr() != copy.data_ptr()
        assert same_bits(each(x=copy, outputs=["itself"]).itself, copy)


def test_a_stage_without_a_gradient_of_its_own(tmp_path):
    """Autograd through its reference, behind the backward op too."""
    (tmp_path / "squared.py").write_text(
        '"""Squares."""\n'
        "from chunkwise.stages._contract import Contract, Port\n"
        'CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")})\n'
        "def reference(x):\n"
        '    return {"y": x * x}\n'
    )
    path = tmp_path / "power.yaml"
    path.write_text(
        "schema: pipeline/v1\nname: power\ninputs: {x: B T H K}\n"
        "stages: {a: {use: squared, in: {x: x}}, b: {use: squared, in: {x: a.y}}}\noutputs: {y: b.y}\n"
    )
    an_op = load(path, stages=[tmp_path])
    given = dict(x=torch.randn(2, 3, 1, 4))
    assert_same(compiled(an_op)[0], an_op, given)
    x = given["x"].clone().requires_grad_()
    compiled(an_op)[0](x=x).y.sum().backward()
    torch.testing.assert_close(x.grad, 4 * x.detach() ** 3)


def test_no_gradients_kept_without_them():
    """What backward would read is not returned when nothing asks for it."""
    library = op("gated_delta").library
    results = library.forward(*arguments(library, inputs(op("gated_delta"), **SMALL)))
    kept = [
        x.numel() for name, x in zip(library.values, results) if name not in op("gated_delta").whole.outputs.values()
    ]
    assert kept and set(kept) == {0}
    with torch.inference_mode():
        given = inputs(op("gated_delta"), **SMALL)
        assert same_bits(compiled(op("gated_delta"))[0](**given).o, op("gated_delta")(**given).o)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    an_op, names = op("simple_gla"), ("q", "k", "v", "g")

    def layer(*x):
        return checkpoint(lambda *x: an_op(**dict(zip(names, x))).o, *x, use_reentrant=reentrant)

    given = inputs(an_op, absent=("initial_state",), **SMALL)
    eager, ours = leaves(given, names), leaves(given, names)
    an_op(**eager).o.sum().backward()
    torch.compile(layer, backend="aot_eager")(*(ours[name] for name in names)).sum().backward()
    assert all(same_bits(ours[name].grad, eager[name].grad) for name in names)


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict):
    an_op = op("simple_gla")

    class Layer(torch.nn.Module):
        def forward(self, q, k, v, g):
            return an_op(q=q, k=k, v=v, g=g).o

    sizes = dict(SMALL, B=1)
    T = torch.export.Dim("T", min=2, max=1 << 20)
    given = inputs(an_op, absent=("initial_state",), **sizes)
    args = tuple(given[name] for name in "qkvg")
    program = torch.export.export(Layer(), args, dynamic_shapes=[{1: T}] * 4, strict=strict)
    longer = inputs(an_op, absent=("initial_state",), **dict(sizes, T=201))
    assert same_bits(program.module()(*(longer[name] for name in "qkvg")), an_op(**longer).o)


def test_drop_in_functions():
    """Loaded at their first use, also when that is inside compiled code."""
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(chunk_gated_delta_rule, fullgraph=True, backend=counter, dynamic=True)
    for seqlens in [(33, 0, 1, 64), (5, 6, 7)]:
        given = inputs(op("gated_delta"), seqlens=seqlens, H=1, HV=2, K=16, V=24)
        ends = torch.tensor([0, *seqlens]).cumsum(0)
        keywords = dict(given, output_final_state=True, cu_seqlens=ends, cu_seqlens_cpu=ends, chunk_size=32)
        for ours, eager in zip(function(**keywords), chunk_gated_delta_rule(**keywords)):
            assert same_bits(ours, eager)
    assert counter.frame_count == 1


def test_load_inside_compiled_code():
    with pytest.raises(Exception, match="load the op before"):
        torch.compile(lambda x: load("simple_gla")(q=x), fullgraph=True, backend="eager")(torch.zeros(1, 2, 1, 4))


def test_mistakes_are_told():
    an_op = op("gated_delta")
    given = inputs(an_op, **SMALL)
    wrong = {
        "gated_delta takes no qq": dict(given, qq=given["q"]),
        "the input beta": {name: x for name, x in given.items() if name != "beta"},
        "gated_delta has no output oo": dict(given, outputs=["oo"]),
        "outputs must be a list of names, it is a text": dict(given, outputs="o"),
        "the param scale must be a number": dict(given, scale="1"),
        "must be fp32, it is bf16": dict(given, g=given["g"].bfloat16()),
        "has K = 15, q has 16": dict(given, k=given["k"][..., :15]),
    }
    for text, call in wrong.items():
        for function in (an_op, compiled(an_op)[0]):
            with pytest.raises(Exception, match=text) as caught:
                function(**call)
            assert "error[CW604]: " in str(caught.value)
        torch._dynamo.reset()


def test_no_gradient_of_a_gradient():
    library = op("simple_gla").library
    given = leaves(inputs(op("simple_gla"), **SMALL), ["q"])
    results = library.forward(*arguments(library, given, gradients=["q"]))
    with pytest.raises(ChunkwiseError, match="CW609"):
        torch.autograd.grad(results[0].sum(), given["q"], create_graph=True)


def test_one_registration_for_each_op(tmp_path):
    """By what it computes: not by where the file lies, nor how often it is loaded."""
    text = (op("simple_gla").spec.file and open(op("simple_gla").spec.file).read()).replace("simple_gla", "here")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "here.yaml").write_text(text)
    (tmp_path / "here.yaml").write_text("\n\n" + text)
    (tmp_path / "other.yaml").write_text(text.replace("C: 64", "C: 32"))
    first, moved, other = (load(tmp_path / each) for each in ("a/here.yaml", "here.yaml", "other.yaml"))
    assert first.library is moved.library is load(tmp_path / "here.yaml").library
    assert other.library is first.with_axes({"C": 32}).library is not first.library
    assert load(tmp_path / "here.yaml", backend="reference").library is not first.library
    assert first.library.name.startswith("here_") and hasattr(torch.ops.chunkwise, first.library.name)


def test_threads_register_once(tmp_path):
    path = tmp_path / "many.yaml"
    path.write_text(open(op("simple_gla").spec.file).read().replace("simple_gla", "many"))
    found, start = [], threading.Barrier(4)

    def run():
        start.wait()
        found.append(load(path).library)

    threads = [threading.Thread(target=run) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(found) == 4 and len(set(map(id, found))) == 1


@pytest.mark.parametrize("name", PIPELINES)
def test_whatever_is_kept_has_a_place(name):
    """For every pattern of absent inputs, every single gradient and every single output."""
    whole, optional = op(name).whole, [each for each, entry in op(name).spec.inputs.items() if entry.optional]
    places = set(may_be_kept(whole))
    for absent in [frozenset(), *(frozenset([each]) for each in optional), frozenset(optional)]:
        trained = [each for each in whole.inputs if each not in absent and op(name).has_gradient(each, absent)]
        for wanted in [trained, *([each] for each in trained)]:
            for outputs in [list(whole.outputs), *([each] for each in whole.outputs)]:
                joint = op(name).joint_graph(absent, frozenset(wanted), frozenset(outputs))
                assert set(joint.kept) <= places


def test_a_memory_budget(tmp_path):
    """Sizes are symbols under the compiler: under any budget everything is rebuilt, and comes out the same."""
    an_op = load("gated_delta", backend="reference", memory_budget=1 << 30)
    assert an_op.library is not op("gated_delta").library
    assert set(an_op.library.values) == set(an_op.whole.outputs.values())
    assert_same(compiled(an_op, dynamic=True)[0], op("gated_delta"), inputs(op("gated_delta"), **SMALL))
