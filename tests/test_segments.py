"""An op on a segment of the rows at a time: outputs, states and gradients are those of one call."""

import copy
import gc
import inspect
import pickle
import pydoc
import time
import weakref

import pytest
import torch
from support.stand_in_driver import stand_in_driver

from chunkwise.runner import ChunkwiseError, load
from chunkwise.runner.calling.function import Op
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.loading.pipelines import find_pipeline
from chunkwise.runner.parallel.cut import packed_cut, packed_cuts
from chunkwise.runner.parallel.segment_states import BatchStates
from chunkwise.runner.parallel.split_graph import cut_errors
from chunkwise.runner.verification.generate import make_cotangents, make_inputs
from chunkwise.runner.workloads import other_axes

CLOSE = 1e-11
"""Of two orders of the same float64 sums, relative to the largest number."""


def case(name, lengths, T, absent=()):
    """(op, inputs, cotangents) in float64, chunks of 16, slow decay."""
    op = load(name).with_axes({"C": 16})
    sizes = dict(H=1, HV=2, K=6, V=5, B=2 if lengths is None else 1, T=T)
    sizes = complete(op.whole, sizes | other_axes(sizes), None if lengths is None else len(lengths))
    inputs = make_inputs(op.whole, sizes, torch.float64, "cpu", 0, "weak_gate")
    inputs = {name: x for name, x in inputs.items() if name not in absent}
    call = op.bind(inputs, seqlens=lengths)
    joint = call.joint(call.trainable(), call.wanted)
    cotangents = make_cotangents(joint, call.sizes, torch.float64, "cpu")
    return op, inputs, {name: cotangents[value] for name, value in joint.cotangents.items()}


def passes(op, inputs, cotangents, lengths):
    """Outputs and gradients, by name."""
    leaves = {n: x.detach().requires_grad_(x.is_floating_point() and n != "g_gamma") for n, x in inputs.items()}
    out = op(**leaves, seqlens=lengths)
    wanted = {n: x for n, x in leaves.items() if x.requires_grad}
    grads = torch.autograd.grad(
        [getattr(out, n) for n in cotangents], list(wanted.values()), list(cotangents.values())
    )
    return {n: getattr(out, n) for n in cotangents} | dict(zip(wanted, grads))


def same(one, two):
    assert one.keys() == two.keys()
    for name, x in one.items():
        assert (x - two[name]).abs().max() <= CLOSE * x.abs().max().clamp(min=1), name


@pytest.mark.parametrize("absent", [(), ("initial_state",)], ids=["state", "bare"])
@pytest.mark.parametrize("lengths,T", [(None, 75), ((37, 0, 51, 40), 128), ((0, 100, 3, 0), 110)], ids=str)
@pytest.mark.parametrize("name", "gated_delta simple_gla retention gla kda mamba2".split())
def test_what_one_call_gives(name, lengths, T, absent):
    op, inputs, cotangents = case(name, lengths, T, absent)
    same(passes(op, inputs, cotangents, lengths), passes(op.in_segments(chunks=2), inputs, cotangents, lengths))


def test_each_segment_keeps_its_own(monkeypatch):
    """Called a segment at a time, each from the state of the one before, and only what is wanted."""
    op, inputs, _ = case("gated_delta", None, 70)
    segmented, calls, bind = op.in_segments(chunks=2), [], Op.bind

    def spy(self, given, cu_seqlens=None, seqlens=None, outputs=None):
        calls.append((given["q"].shape[1], outputs))
        return bind(self, given, cu_seqlens, seqlens, outputs)

    monkeypatch.setattr(Op, "bind", spy)
    out = segmented(**inputs, outputs=["o"])
    (whole, _), *each = calls
    assert whole == 70 and [rows for rows, _ in each] == [32, 32, 6]
    assert [names for _, names in each] == [["o", "final_state"], ["o", "final_state"], ["o"]]
    assert out.final_state is None and torch.allclose(out.o, op(**inputs).o, rtol=0, atol=1e-12)


LENGTHS = (37, 0, 51, 40)


@pytest.mark.parametrize("wanted", [("A_log", "dt_bias"), ("initial_state",), ("v", "beta"), ("q",)], ids=str)
@pytest.mark.parametrize("outputs", [("o",), ("final_state",), ("o", "final_state")], ids=str)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["plain", "packed"])
def test_some_gradients_of_some_outputs(wanted, outputs, lengths):
    """A gradient that is None in one call is None in segments too."""
    op, inputs, cotangents = case("kda", lengths, 128)
    wanted = [name if name in inputs else "b" for name in wanted]
    found = []
    for each in (op, op.in_segments(chunks=2)):
        leaves = {n: x.detach().requires_grad_(n in wanted) for n, x in inputs.items()}
        out = each(**leaves, seqlens=lengths)
        reached = [name for name in outputs if getattr(out, name).requires_grad]
        loss, d = [getattr(out, name) for name in reached], [cotangents[name] for name in reached]
        leaves = [leaves[name] for name in wanted]
        grads = torch.autograd.grad(loss, leaves, d, allow_unused=True) if loss else [None] * len(wanted)
        found.append(dict(zip(wanted, grads)) | {"reached": reached})
    one, two = found
    assert one.pop("reached") == two.pop("reached")
    assert [x is None for x in one.values()] == [x is None for x in two.values()]
    same({n: x for n, x in one.items() if x is not None}, {n: x for n, x in two.items() if x is not None})


def test_a_loss_that_some_segments_do_not_reach():
    """Of the second document's last rows alone: before it nothing moves, exactly."""
    op, inputs, _ = case("gated_delta", (48, 80), 128)
    leaves = {n: x.detach().requires_grad_() for n, x in inputs.items()}
    op.in_segments(chunks=2)(**leaves, seqlens=(48, 80)).o[:, 100:].sum().backward()
    assert not leaves["v"].grad[:, :48].any() and leaves["v"].grad[:, 48:].any()
    assert not leaves["initial_state"].grad[0].any() and leaves["initial_state"].grad[1].any()


def test_what_is_refused_as_in_one_call():
    op, inputs, _ = case("simple_gla", None, 40)
    segmented = op.in_segments(chunks=1)
    leaves = {n: x.detach().requires_grad_() for n, x in inputs.items()}
    out = segmented(**leaves)
    with pytest.raises(ChunkwiseError, match="gradient of its gradient"):
        torch.autograd.grad(out.o.sum(), list(leaves.values()), create_graph=True)
    with pytest.raises(ChunkwiseError, match="torch.vmap"):
        torch.vmap(lambda v: segmented(**{**inputs, "v": v}).o)(inputs["v"][None])
    with pytest.raises(ChunkwiseError, match="torch.func.grad"):
        torch.func.grad(lambda v: segmented(**{**inputs, "v": v}).o.sum())(inputs["v"])


def test_no_rows_and_one_segment():
    op, inputs, cotangents = case("gated_delta", None, 0)
    assert torch.equal(op.in_segments(chunks=2)(**inputs).final_state, inputs["initial_state"])
    op, inputs, cotangents = case("gated_delta", None, 20)
    same(passes(op, inputs, cotangents, None), passes(op.in_segments(chunks=2), inputs, cotangents, None))


def test_lengths_on_the_device():
    op, inputs, _ = case("simple_gla", (37, 51), 88)
    ends = torch.tensor([0, 37, 88], dtype=torch.int32)
    one, two = op(**inputs, cu_seqlens=ends), op.in_segments(chunks=1)(**inputs, cu_seqlens=ends)
    assert torch.allclose(one.o, two.o, rtol=0, atol=1e-11) and two.final_state.shape == one.final_state.shape


def test_compiled():
    op, inputs, cotangents = case("simple_gla", None, 40)
    segmented = op.in_segments(chunks=1)
    compiled = torch.compile(lambda **given: segmented(**given), backend="aot_eager", fullgraph=True)
    leaves = {n: x.detach().requires_grad_() for n, x in inputs.items()}
    out = compiled(**leaves)
    torch.autograd.backward([out.o, out.final_state], [cotangents["o"], cotangents["final_state"]])
    found = {"o": out.o, "final_state": out.final_state} | {n: x.grad for n, x in leaves.items()}
    same(passes(op, inputs, cotangents, None), found)


def test_compiled_packed():
    lengths = (13, 0, 27)
    op, inputs, cotangents = case("simple_gla", lengths, 40)
    segmented = op.in_segments(chunks=1)
    compiled = torch.compile(lambda **given: segmented(**given), backend="aot_eager", fullgraph=True)
    out = compiled(**inputs, seqlens=lengths)
    whole = op(**inputs, seqlens=lengths)
    same(whole._asdict(), out._asdict())
    with pytest.raises(Exception, match="in segments needs seqlens, the lengths on the host"):
        compiled(**inputs, cu_seqlens=torch.tensor([0, 13, 13, 40]))
    with pytest.raises(Exception, match="initial_state has 3 states, and the number of sequences is 1"):
        compiled(**inputs)


def test_what_is_kept_for_the_backward_pass():
    """Of a batch, whose segments are not contiguous, no copies; and a write to an input is seen."""
    op, inputs, _ = case("simple_gla", None, 128)
    leaves = {name: x.detach().requires_grad_() for name, x in inputs.items()}
    kept, given = {}, {x.untyped_storage().data_ptr() for x in leaves.values()}

    def pack(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = op.in_segments(chunks=4)(**leaves)
    own = sum(bytes for address, bytes in kept.items() if address not in given)
    assert own < 0.5 * sum(x.nbytes for x in inputs.values())
    out = op.in_segments(chunks=4)(**leaves)
    with torch.no_grad():
        leaves["v"].zero_()
    with pytest.raises(RuntimeError, match="modified .*inplace"):
        out.o.sum().backward()


def test_lengths_and_names_that_can_be_read_once():
    op, inputs, _ = case("simple_gla", (13, 27), 40)
    out = op.in_segments(chunks=1)(**inputs, seqlens=iter((13, 27)), outputs=(n for n in ["o"]))
    assert out.final_state is None and torch.allclose(out.o, op(**inputs, seqlens=(13, 27)).o, rtol=0, atol=1e-12)


@pytest.mark.parametrize("absent", [(), ("initial_state",)], ids=["state", "bare"])
def test_no_batch(absent):
    op, inputs, _ = case("simple_gla", None, 40, absent)
    nothing = {name: x[:0] for name, x in inputs.items()}
    one, two = op(**nothing), op.in_segments(chunks=1)(**nothing)
    assert (one.o.shape, one.final_state.shape) == (two.o.shape, two.final_state.shape)


def test_many_sequences_in_many_segments():
    """The cuts of 2,048 sequences in 1,024 segments, all at once."""
    lengths, rows = [64] * 2048, [128] * 1024
    start = time.process_time()
    cuts = packed_cuts(lengths, rows)
    assert time.process_time() - start < 1
    assert cuts[5] == packed_cut(lengths, rows, 5) and [cut.of for cut in cuts[:2]] == [(0, 1), (2, 3)]


@pytest.mark.parametrize("change", ["two scans", "no state comes in"])
def test_states_that_are_not_those_of_one_scan(tmp_path, change):
    text = find_pipeline("simple_gla").read_text()
    text = text[: text.index("definition:")] + text[text.index("stages:") :]
    scan = next(line for line in text.splitlines() if "use: chunk_h," in line)
    bare = scan.replace(", initial_state: initial_state", "")
    if change == "two scans":
        text = text.replace(scan, f"{bare.replace('scan:', 'other:')}\n{scan}").replace("h: scan.h", "h: other.h")
    else:
        text = "\n".join(line for line in text.splitlines() if not line.startswith("  initial_state:"))
        text = text.replace(scan, bare)
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ChunkwiseError, match="has no one scan that takes its state from an input"):
        load(tmp_path / "p.yaml").in_segments(chunks=1)


def test_what_is_made_chunk_by_chunk_is_not_cut():
    """Inside a chunk another sum begins."""
    op = load("gated_delta").given({"cumsum": "b"})
    message = "the input b is made chunk by chunk, and a cut may lie inside a chunk"
    with pytest.raises(ChunkwiseError, match=message):
        op.in_segments(chunks=1)
    assert [each.message for each in cut_errors(op.whole, op.stages)] == [message]


REFUSED = [
    ("gated_delta", 0, "a segment is a whole number of chunks, from 1, not 0"),
    ("gated_delta", True, "a segment is a whole number of chunks, from 1, not True"),
    ("gated_delta", 1.5, "a segment is a whole number of chunks, from 1, not 1.5"),
    ("flash", 2, "flash needs the rows of all segments at once"),
    ("gla_serial", 2, "scan (gla_chunk_scan) holds a state of each sequence, and does not say how it crosses a cut"),
]


@pytest.mark.parametrize("name,chunks,message", REFUSED)
def test_refused(name, chunks, message):
    with pytest.raises(ChunkwiseError, match=message.replace("(", r"\(").replace(")", r"\)")):
        load(name).in_segments(chunks=chunks)


def test_what_does_not_fit_is_said_before_any_segment_runs():
    op, inputs, _ = case("gated_delta", None, 70)
    with pytest.raises(ChunkwiseError, match=r"k \[B T H K\] has T = 64, q has 70"):
        op.in_segments(chunks=2)(**{**inputs, "k": inputs["k"][:, :64]})


def test_a_state_that_no_gradient_reaches():
    """q is in no state: the last one has no gradient, as in one call, however many segments it went through."""
    op, inputs, _ = case("lightning", None, 70)
    for each in (op, op.in_segments(chunks=2)):
        out = each(**inputs | {"q": inputs["q"].clone().requires_grad_()})
        assert out.o.requires_grad and not out.final_state.requires_grad


def test_one_call_after_another():
    """What calls of a signature share depends on no tensor, and other signatures share nothing with them."""
    op, inputs, cotangents = case("gated_delta", None, 75)
    _, packed, of_packed = case("gated_delta", (37, 0, 51, 40), 128)
    segmented, other = op.in_segments(chunks=2), {name: x.flip(1) for name, x in inputs.items()}
    bare = {name: x for name, x in inputs.items() if name != "initial_state"}
    for given in (inputs, other, {**inputs, "scale": 0.5}, bare, {**other, "scale": 0.25}, inputs):
        leaves, given = {n: x for n, x in given.items() if n != "scale"}, {"scale": given.get("scale")}
        one, two = (lambda each=each, **x: each(**x, **given) for each in (op, segmented))  # noqa: B023
        same(passes(one, leaves, cotangents, None), passes(two, leaves, cotangents, None))
        assert torch.allclose(op(**leaves, **given).o, segmented(**leaves, **given).o, rtol=0, atol=1e-12)
    for lengths in ((37, 0, 51, 40), (60, 8, 0, 60), (37, 0, 51, 40)):
        same(passes(op, packed, of_packed, lengths), passes(segmented, packed, of_packed, lengths))


def test_a_second_call_is_looked_up_and_keeps_no_tensor(monkeypatch):
    op, inputs, _ = case("gated_delta", None, 70)
    segmented, checked, bound, allowed, bind = op.in_segments(chunks=2), [], [], Op.allowed, Op.bind
    monkeypatch.setattr(Op, "allowed", lambda self, *args: checked.append(None) or allowed(self, *args))
    monkeypatch.setattr(Op, "bind", lambda self, *args: bound.append(None) or bind(self, *args))
    for more in range(3):
        leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
        segmented(**leaves, outputs=("o",)).o.sum().backward()
        assert len(checked) == 3 and len(bound) == 4 + more  # the whole call, first and second segment, last one
    held = [weakref.ref(x) for x in leaves.values()]
    del leaves
    gc.collect()
    assert not any(each() is not None for each in held)


def test_kernels_read_and_write_rows_where_they_lie():
    """Of each segment in its turn: the inputs, the outputs and the gradients of the whole call."""
    with stand_in_driver() as driver:
        op = load("gated_delta", backend="triton").in_segments(chunks=1)
        shapes = dict(q=(1, 192, 2, 64), k=(1, 192, 2, 64), v=(1, 192, 2, 64), beta=(1, 192, 2))
        given = {name: torch.zeros(shape, dtype=torch.bfloat16).requires_grad_() for name, shape in shapes.items()}
        given["g"] = torch.zeros(1, 192, 2, requires_grad=True)
        for _ in range(2):
            driver.launches.clear()
            o = op(**given, outputs=["o"]).o
            forward = len(driver.launches)
            grads = torch.autograd.grad(o, list(given.values()), torch.ones_like(o))
        first, last = driver.launches[:forward], driver.launches[forward:]
        for whole, launches in ((given["q"], first), (o, first), (given["q"], last[::-1]), (grads[0], last[::-1])):
            rows = [x.data_ptr() for x in whole.split(64, 1)]
            read = [x for *_, arguments in launches for x in arguments if x in rows]
            assert list(dict.fromkeys(read)) == rows


def test_without_gradients_no_state_but_the_last_two_is_held(monkeypatch):
    op, inputs, _ = case("gated_delta", None, 160)
    states, held, leave = [], [], BatchStates.leave

    def spy(self, cut, found):
        held.append(sum(each() is not None for each in states))
        states.append(weakref.ref(found))
        leave(self, cut, found)

    monkeypatch.setattr(BatchStates, "leave", spy)
    op.in_segments(chunks=1)(**inputs)
    assert len(held) == 10 and max(held) <= 1


def test_a_write_to_an_output_that_is_read_again_is_seen(tmp_path):
    """The gradient of a norm reads what it norms."""
    text = find_pipeline("simple_gla").read_text()
    text = text[: text.index("definition:")] + text[text.index("stages:") :]
    text = text.replace("inputs:\n", "inputs:\n  z: B T HV V\n  weight: {shape: V, dtype: f32}\n")
    norm = "  norm: {use: gated_rms_norm, in: {o: out.o, z: z, weight: weight}}\n"
    text = text.replace("outputs: {", f"{norm}outputs: {{y: norm.y, ")
    (tmp_path / "normed.yaml").write_text(text)
    shapes = dict(q=(1, 40, 1, 16), k=(1, 40, 1, 16), v=(1, 40, 1, 16), g=(1, 40, 1), z=(1, 40, 1, 16), weight=(16,))
    dtypes = {name: torch.float32 if name in ("g", "weight") else torch.bfloat16 for name in shapes}
    inputs = {name: torch.rand(shape).neg().to(dtypes[name]).requires_grad_() for name, shape in shapes.items()}
    with stand_in_driver():
        op = load(tmp_path / "normed.yaml", backend="triton").with_axes({"C": 16})
        for each in (op, op.in_segments(chunks=1)):
            each(**inputs)
            out = each(**inputs)
            with torch.no_grad():
                out.o.zero_()
            with pytest.raises(RuntimeError, match="modified .*inplace"):
                out.y.sum().backward()


class Tagged(torch.Tensor):
    pass


def test_inputs_that_lie_otherwise():
    """Strided, expanded, from an odd address on, with a sign put off, of a subclass: as in one call."""
    op, inputs, _ = case("gated_delta", None, 75)
    inputs["q"] = inputs["q"].transpose(1, 2).contiguous().transpose(1, 2)
    inputs["k"] = inputs["k"][:, :1].expand_as(inputs["k"])
    inputs["v"] = torch.cat([inputs["v"].new_zeros(1), inputs["v"].flatten()])[1:].view(inputs["v"].shape)
    inputs["g"] = torch._neg_view(-inputs["g"])
    inputs["beta"] = inputs["beta"].as_subclass(Tagged)
    one, two = op(**inputs), op.in_segments(chunks=2)(**inputs)
    assert inputs["g"].is_neg() and torch.allclose(one.o, two.o, rtol=0, atol=1e-12)
    assert torch.allclose(one.final_state, two.final_state, rtol=0, atol=1e-12)


def test_copies_of_it():
    op, inputs, _ = case("simple_gla", None, 40)
    segmented = op.in_segments(chunks=1)
    one = segmented(**inputs)
    for other in (copy.deepcopy(segmented), pickle.loads(pickle.dumps(segmented))):
        assert repr(other) == repr(segmented) and torch.equal(other(**inputs).o, one.o)
    of_a_copy = pickle.loads(pickle.dumps(op)).in_segments(chunks=1)
    assert torch.equal(of_a_copy(**inputs).o, one.o)


def test_its_help_is_that_of_its_op():
    whole, cut = load("gla"), load("gla").in_segments(chunks=2)
    assert inspect.signature(cut).parameters.keys() == inspect.signature(whole).parameters.keys()
    told = pydoc.plain(pydoc.render_doc(cut))
    assert "g              [B T HV K], f32, log_decay/ln/token, <= 0" in told and "final_state  [N HV K V]" in told
