"""The op in PyTorch on a GPU: streams, CUDA graphs, torch.compile, other devices, memory, bits. Kernels of one size."""

import gc
import threading

import pytest
import torch
from support.ops import RAGGED, check, inputs, op, same_bits
from torch.utils.checkpoint import checkpoint

from chunkwise.runner import chunk_gated_delta_rule
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.planning.sequences import tables_by_stream

pytestmark = pytest.mark.gpu

NAMES = ["gated_delta", "qwen3_next_gdn"]
SIZES = dict(B=2, T=130, H=2, HV=4, K=64, V=64)
PACKED = dict(SIZES, B=1, T=sum(RAGGED) + 5)
NAP = 20_000_000
"""Cycles for which a stream is kept busy: about 10 ms."""


def triton(name):
    return op(name, None, "triton")


def given_for(name, device="cuda", io=torch.bfloat16, **how):
    return inputs(triton(name), io, device=device, **{**SIZES, **how})


def leaves(given):
    return {name: x.detach().clone().requires_grad_() for name, x in given.items() if x is not None}


def loss(out):
    """Different weights for every number, so that no gradient is trivial."""
    parts = [x.double() * torch.linspace(-1, 2, x.numel(), device=x.device, dtype=torch.double).view_as(x) for x in out]
    return sum(part.sum() for part in parts)


def both(an_op, given, **keywords):
    """Outputs, and every gradient of loss."""
    made = leaves(given)
    out = an_op(**made, **keywords)
    loss(out).backward()
    return {**{name: x.detach() for name, x in out._asdict().items()}, **{f"d_{n}": x.grad for n, x in made.items()}}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        assert x.isfinite().all(), name
        assert same_bits(found[name].cpu(), x.cpu()), name


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_again(name):
    assert_same(both(triton(name), given_for(name)), both(triton(name), given_for(name)))


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_d2_d8_gradients_in_budget(name, io):
    """Every stage's and the op's; the budgets of float32 leave no room for tf32."""
    check(triton(name), given_for(name, io=io, seed=1), backward=True)


@pytest.mark.parametrize("name", NAMES)
def test_x1_x4_batches(name):
    """A sample's outputs and gradients keep their bits in a batch of 1, 4 or 8, whatever the others hold."""
    an_op = triton(name)
    given, others = given_for(name, B=8), given_for(name, B=8, seed=1)
    names = [each for each in given if {"B", "N"} & set(an_op.whole.inputs[each].axes)]

    def first(tensors, B):
        made = leaves({each: x[:B] if each in names else x for each, x in tensors.items()})
        out = an_op(**made)
        generator = torch.Generator("cuda").manual_seed(0)
        d = [torch.randn((8, *x.shape[1:]), generator=generator, device="cuda").to(x.dtype)[:B] for x in out]
        torch.autograd.backward(list(out), d)
        return {"o": out.o[:1].detach(), "s": out.final_state[:1].detach(), **{n: made[n].grad[:1] for n in names}}

    alone = first(given, 1)
    for B in (4, 8):
        assert_same(first(given, B), alone)
    mixed = {each: torch.cat([x[:1], others[each][1:]]) if each in names else x for each, x in given.items()}
    assert_same(first(mixed, 8), alone)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_another_stream(name):
    """Made on a side stream that is busy, used there, and ready when it is."""
    expected = both(triton(name), given_for(name))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(NAP)
        found = both(triton(name), given_for(name))
    torch.cuda.current_stream().wait_stream(stream)
    assert_same(found, expected)


def test_lengths_first_seen_on_a_busy_stream():
    """Another stream does not read the tables that the busy one has yet to copy."""
    an_op, seqlens = triton("gated_delta"), (40, 1, 0, 57)
    given = given_for("gated_delta", seqlens=seqlens, **dict(SIZES, B=1, T=98))
    expected = both(an_op, given, cu_seqlens=torch.tensor([0, *seqlens], device="cuda").cumsum(0))
    tables_by_stream.cache_clear()
    busy, free = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(NAP)
        slow = both(an_op, given, seqlens=seqlens)
    with torch.cuda.stream(free):
        fast = both(an_op, given, seqlens=seqlens)
    torch.cuda.synchronize()
    assert_same(fast, expected)
    assert_same(slow, expected)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_waits_for_the_device(name):
    """C11: with the lengths on the host, not even when they are new; with plain batches neither."""
    an_op = triton(name)
    plain, packed = given_for(name), given_for(name, seqlens=RAGGED, **PACKED)
    ends = torch.tensor([0, *RAGGED], device="cuda").cumsum(0)
    both(an_op, plain), both(an_op, packed, cu_seqlens=ends, seqlens=RAGGED)
    tables_by_stream.cache_clear()
    made = [leaves(plain), leaves(packed)]
    d = [torch.ones_like(x["v"]) for x in made]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        an_op(**made[0]).o.backward(d[0])
        an_op(**made[1], cu_seqlens=ends, seqlens=RAGGED).o.backward(d[1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(x.grad is not None for x in made[1].values())


def captured(function):
    """A CUDA graph of a function, and what it returned; warmed up on a side stream, as PyTorch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()
    return graph, results


@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
@pytest.mark.parametrize("name", NAMES)
def test_cuda_graph_of_forward(name, seqlens):
    an_op, sizes = triton(name), SIZES if seqlens is None else PACKED
    static, other = (given_for(name, seqlens=seqlens, seed=seed, **sizes) for seed in (0, 1))
    with torch.no_grad():
        graph, results = captured(lambda: an_op(**static, seqlens=seqlens))
        expected = an_op(**other, seqlens=seqlens)
    for each, x in static.items():
        x.copy_(other[each])
    graph.replay()
    assert_same(results._asdict(), expected._asdict())


@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
@pytest.mark.parametrize("name", NAMES)
def test_cuda_graph_of_forward_and_backward(name, seqlens):
    """Replayed with other numbers, after the cache of tables has forgotten them and their memory was offered anew."""
    an_op, sizes = triton(name), SIZES if seqlens is None else PACKED
    static = leaves(given_for(name, seqlens=seqlens, **sizes))
    other = given_for(name, seqlens=seqlens, seed=1, **sizes)

    def step():
        out = an_op(**static, seqlens=seqlens)
        return [x.detach() for x in out], torch.autograd.grad(loss(out), list(static.values()))

    graph, (outputs, gradients) = captured(step)
    tables_by_stream.cache_clear()
    gc.collect()
    rubbish = [torch.full((n,), 1 << 30, dtype=torch.int32, device="cuda") for n in (1, 2, 4, 8, 16, 64) * 8]
    with torch.no_grad():
        for each, x in static.items():
            x.copy_(other[each])
    graph.replay()
    torch.cuda.synchronize()
    del rubbish
    expected = both(an_op, other, seqlens=seqlens)
    found = dict(zip(expected, [*outputs, *gradients]))
    assert_same(found, expected)


def test_new_lengths_in_a_cuda_graph_are_refused():
    """And so are lengths that are on the device alone; the capture ends, and the op goes on."""
    an_op, given = triton("gated_delta"), given_for("gated_delta", B=1, absent=("initial_state",))
    ends = torch.tensor([0, 31, 99], device="cuda")
    expected = an_op(**given, cu_seqlens=ends)
    for keywords, words in [
        (dict(seqlens=(32, 68)), "call once before"),
        (dict(cu_seqlens=ends), "pass the lengths too"),
    ]:
        with pytest.raises(ChunkwiseError, match=words):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                an_op(**given, **keywords)
    assert same_bits(an_op(**given, cu_seqlens=ends).o, expected.o)


def compiled(function, **keywords):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, **keywords)


@pytest.mark.parametrize("name", NAMES)
def test_compiled(name):
    """torch.compile in one graph for every T, with Inductor: the bits of an eager call."""
    an_op = triton(name)
    function = compiled(lambda **tensors: an_op(**tensors), dynamic=True)
    torch._dynamo.utils.counters.clear()
    for T in (63, 130, 500):
        given = given_for(name, T=T)
        assert_same(both(function, given), both(an_op, given))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_compiled_packed():
    an_op = triton("gated_delta")
    function = compiled(lambda **tensors: an_op(**tensors), dynamic=True)
    for seqlens in (RAGGED, (5, 60, 33)):
        given = given_for("gated_delta", seqlens=seqlens, **dict(PACKED, T=sum(seqlens) + 5))
        ends = torch.tensor([0, *seqlens], device="cuda").cumsum(0)
        expected = both(an_op, given, cu_seqlens=ends, seqlens=torch.tensor(seqlens))
        assert_same(both(function, given, cu_seqlens=ends, seqlens=torch.tensor(seqlens)), expected)
        assert_same(both(function, given, cu_seqlens=ends), expected)


def test_compiled_into_cuda_graphs():
    an_op = triton("gated_delta")
    function = compiled(lambda **tensors: an_op(**tensors), mode="reduce-overhead")
    with torch.no_grad():
        for seed in range(4):
            given = given_for("gated_delta", seed=seed)
            torch.compiler.cudagraph_mark_step_begin()
            found = {name: x.clone() for name, x in function(**given)._asdict().items()}
            assert_same(found, an_op(**given)._asdict())


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name):
    library, given = triton(name).library, leaves(given_for(name))
    outputs = [output for output, _, _ in library.sources]
    arguments = (*(given[each] for each in library.inputs), *(None for _ in library.params), None, None, None, outputs)
    found = torch.library.opcheck(library.forward, (*arguments, list(library.inputs)))
    assert set(found.values()) == {"SUCCESS"} and len(found) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    an_op, given = triton("gated_delta"), given_for("gated_delta", io=torch.float32)

    def under(**tensors):
        with torch.autocast("cuda", dtype=dtype):
            return an_op(**tensors)

    assert_same(both(under, given), both(an_op, given))
    with torch.autocast("cuda", dtype=dtype):
        q = torch.nn.functional.linear(given["q"], torch.eye(64, device="cuda"))
        with pytest.raises(ChunkwiseError, match="must share one dtype"):
            an_op(**given | {"q": q})


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_checkpoint(name, reentrant):
    an_op, given = triton(name), given_for(name)

    def again(**tensors):
        function = lambda *x: tuple(an_op(**dict(zip(tensors, x))))  # noqa: E731
        return an_op.result(*checkpoint(function, *tensors.values(), use_reentrant=reentrant))

    assert_same(both(again, given), both(an_op, given))


def test_saved_on_the_host():
    an_op, given = triton("gated_delta"), given_for("gated_delta")

    def away(**tensors):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return an_op(**tensors)

    assert_same(both(away, given), both(an_op, given))


@pytest.mark.parametrize("how", ["sliced", "transposed", "expanded", "one number off"])
@pytest.mark.parametrize("name", NAMES)
def test_l6_views(name, how):
    """Memory that is not contiguous, or that starts where no 16 bytes do."""

    def view(x):
        if how == "sliced":
            return torch.cat([torch.full_like(x, torch.nan), x], dim=-1)[..., x.shape[-1] :]
        if how == "transposed":
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        if how == "expanded":
            return x[:1].expand_as(x)
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)

    an_op = triton(name)
    views = {each: view(x).requires_grad_() for each, x in given_for(name).items()}
    copies = leaves({each: x.clone(memory_format=torch.contiguous_format) for each, x in views.items()})
    found = []
    for tensors in (views, copies):
        out = an_op(**tensors)
        d_o = torch.ones((), device="cuda", dtype=out.o.dtype).expand_as(out.o)
        d_o = d_o if tensors is views else d_o.contiguous()
        gradients = torch.autograd.grad(
            [out.o, out.final_state], list(tensors.values()), [d_o, torch.ones_like(out[1])]
        )
        found.append({"o": out.o.detach(), "s": out.final_state.detach(), **dict(zip(tensors, gradients))})
    assert_same(*found)


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_v4_rows_past_the_end(name, io):
    """Poisoned, with output gradients to match: no bit of any gradient changes, and theirs are exactly 0."""
    an_op, tokens = triton(name), sum(RAGGED)
    given = given_for(name, io=io, seqlens=RAGGED, **PACKED)
    timed = [each for each in given if "T" in an_op.whole.inputs[each].axes]
    found = []
    for poison in (0.0, torch.nan):
        made = {each: x.clone() for each, x in given.items()}
        d_o = torch.randn(made["v"].shape, generator=torch.Generator("cuda").manual_seed(0), device="cuda").to(io)
        for x in (*(made[each] for each in timed), d_o):
            x[:, tokens:] = poison
        out = an_op(**{each: x.requires_grad_() for each, x in made.items()}, seqlens=RAGGED)
        assert not out.o[:, tokens:].any()
        torch.autograd.backward([out.o, out.final_state], [d_o, torch.ones_like(out.final_state)])
        assert not any(made[each].grad[:, tokens:].any() for each in timed)
        found.append({each: x.grad for each, x in made.items()})
    assert_same(*found)


@pytest.mark.parametrize("empty", [dict(T=0), dict(B=0)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_e10_nothing_there(name, empty):
    given = leaves(given_for(name, **empty))
    out = triton(name)(**given)
    assert same_bits(out.final_state.detach(), given["initial_state"].detach())
    torch.autograd.backward([out.o, out.final_state], [torch.ones_like(out.o), torch.ones_like(out.final_state)])
    for each, x in given.items():
        assert torch.equal(x.grad, (torch.ones_like if each == "initial_state" else torch.zeros_like)(x)), each


def test_memory_that_is_held():
    """Without gradients the outputs alone; with them, what backward keeps: the chunk sums and the inverse."""
    an_op, sizes = triton("gated_delta"), dict(SIZES, T=4096)
    given = given_for("gated_delta", **sizes)
    an_op(**given)

    def held(tensors):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        out = an_op(**tensors)
        return torch.cuda.memory_allocated() - before - sum(x.nbytes for x in out)

    rounding = 4 * 512
    assert held(given) <= rounding
    kept = 2 * 4096 * 4 * (4 + 64 * 2)
    assert kept - rounding <= held({name: x.requires_grad_() for name, x in given.items()}) <= kept + rounding


def test_threads():
    """Each with a stream and inputs of its own."""
    an_op = triton("gated_delta")
    cases = [given_for("gated_delta", seed=seed, T=130 + seed) for seed in range(4)]
    expected, found = [both(an_op, each) for each in cases], {}
    torch.cuda.synchronize()
    start = threading.Barrier(4)

    def run(at):
        start.wait()
        with torch.cuda.stream(torch.cuda.Stream()):
            found[at] = both(an_op, cases[at])
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(found) == [0, 1, 2, 3]
    for at, each in found.items():
        assert_same(each, expected[at])


def test_drop_in_compiled():
    given = given_for("gated_delta")
    function = compiled(chunk_gated_delta_rule)
    o, state = function(**given, output_final_state=True)
    expected = chunk_gated_delta_rule(**given, output_final_state=True)
    assert same_bits(o, expected[0]) and same_bits(state, expected[1])


second = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")


@second
@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
@pytest.mark.parametrize("name", NAMES)
def test_the_second_gpu(name, seqlens):
    """While the first is the current one; also in a CUDA graph, and compiled."""
    an_op, sizes = triton(name), SIZES if seqlens is None else PACKED
    given = given_for(name, seqlens=seqlens, **sizes)
    there = {each: x.to("cuda:1") for each, x in given.items()}
    expected = both(an_op, given, seqlens=seqlens)
    found = both(an_op, there, seqlens=seqlens)
    assert {x.device.index for x in found.values()} == {1} and torch.cuda.current_device() == 0
    assert_same(found, expected)
    ours = both(compiled(lambda **tensors: an_op(**tensors)), there, seqlens=seqlens and list(seqlens))
    assert_same(ours, expected)
    with torch.cuda.device(1), torch.no_grad():
        graph, results = captured(lambda: an_op(**there, seqlens=seqlens))
        graph.replay()
        torch.cuda.synchronize()
    assert same_bits(results.o.cpu(), expected["o"].cpu())


@second
def test_tensors_on_two_gpus_are_refused():
    given = given_for("gated_delta")
    with pytest.raises(ChunkwiseError, match="g .* is on cuda:1, q is on cuda:0"):
        triton("gated_delta")(**{**given, "g": given["g"].to("cuda:1")})
