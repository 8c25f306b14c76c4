"""Calls of a signature after its first, which launch what that one prepared: the same bits as by Triton's own way,
whatever changes between calls. The argument lists themselves: tests/test_prepared_launches.py."""

import threading

import pytest
import torch
from support.ops import OPS, inputs, op, same_bits

from chunkwise.runner import load
from chunkwise.runner.commands.warmup import all_launches, bare_call
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.launching.compile_ahead import compile_ahead
from chunkwise.runner.planning.execute import execute

pytestmark = pytest.mark.gpu

SIZES = dict(H=2, HV=4, K=64, V=64)


def equal(one, two):
    return all(same_bits(a, b) for a, b in zip(one, two, strict=True))


def by_triton(kernel, given, seqlens=None):
    """The outputs by Triton's own way."""
    call = kernel.bind(given, None, seqlens)
    found = execute(call.forward_plan(), call.contiguous, call.params, call.seqs)
    return [found[name] for name in call.wanted]


def prepared(kernel):
    runs = [run for plan in kernel.plans.items.values() for run in plan.prepared.items.values()]
    return [run.program for run in runs if run.program]


@pytest.mark.parametrize("seqlens", [None, (33, 0, 1, 64)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", OPS)
def test_later_calls_have_the_bits_of_the_first(name, seqlens):
    """On other tensors; what the buffers held before does not matter."""
    kernel = load(name, backend="triton", mode="chunk")
    for seed in range(3):
        given = inputs(kernel, torch.bfloat16, seqlens=seqlens, seed=seed, device="cuda", **SIZES)
        expected = by_triton(kernel, given, seqlens)
        torch.full((1 << 24,), torch.nan, device="cuda")  # freed at once: the next buffers lie there
        assert equal(kernel(**given, seqlens=seqlens), expected)
    assert len(prepared(kernel)) == 1


@pytest.mark.parametrize("name", OPS)
def test_gradients(name):
    kernel = load(name, backend="triton", mode="chunk")

    def gradients(given):
        leaves = {each: x.detach().requires_grad_() for each, x in given.items()}
        out = kernel(**leaves)
        cotangents = [torch.ones_like(x) for x in out]
        return [*out, *torch.autograd.grad(out, list(leaves.values()), cotangents)]

    made = [inputs(kernel, torch.bfloat16, seed=seed, device="cuda", **SIZES) for seed in range(2)]
    first = [gradients(given) for given in made]
    assert len(prepared(kernel)) == 2
    assert all(equal(gradients(given), found) for given, found in zip(made, first))


def test_large_buffers_beside_small_ones():
    """Buffers of more than a MiB are made one by one."""
    kernel = load("gated_delta", backend="triton", fuse="none")
    given = inputs(kernel, torch.bfloat16, device="cuda", **{**SIZES, "T": 4096, "HV": 8})
    expected = by_triton(kernel, given)
    for _ in range(3):
        assert equal(kernel(**given), expected)
    (program,) = prepared(kernel)
    assert len(program.stretches) > 1 and any(each.release for each in program.stretches)


def test_memory_is_no_more_than_by_triton():
    kernel = load("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **{**SIZES, "T": 8192, "HV": 16, "H": 16})

    def peak(run):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = torch.cuda.memory_allocated()
        out = run()
        del out
        return torch.cuda.max_memory_allocated() - start

    kernel(**given)
    plain, quick = peak(lambda: by_triton(kernel, given)), peak(lambda: kernel(**given))
    assert quick <= plain + (8 << 20)


@pytest.mark.parametrize("change", ["strided", "offset", "memory of somebody else's"])
def test_how_inputs_lie(change):
    kernel = load("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    expected = by_triton(kernel, given)
    for _ in range(2):
        kernel(**given)
    q = given["q"]
    if change == "strided":
        given["q"] = q.transpose(1, 2).contiguous().transpose(1, 2)
    else:
        given["q"] = torch.cat([q.new_zeros(1), q.flatten()])[1:].view(q.shape)
    if change == "memory of somebody else's":
        given["q"] = torch.from_dlpack(given["q"])
    for _ in range(2):
        assert equal(kernel(**given), expected)


def test_params_and_absent_inputs():
    kernel = load("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    for _ in range(2):
        for scale in (0.5, 0.125):
            for state in (given["initial_state"], None):
                call = {**given, "initial_state": state, "scale": scale}
                assert equal(kernel(**call), by_triton(kernel, call))
                assert kernel(**call, outputs=["o"]).final_state is None


def test_inference_mode():
    kernel = load("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    expected = by_triton(kernel, given)
    for _ in range(2):
        with torch.inference_mode():
            out = kernel(**given)
        assert equal(out, expected) and out.o.is_inference()
        assert not kernel(**given).o.is_inference()


def test_threads_on_streams_of_their_own():
    kernel = load("gated_delta", backend="triton")
    made = [inputs(kernel, torch.bfloat16, seed=seed, device="cuda", **SIZES) for seed in range(4)]
    expected = [by_triton(kernel, given) for given in made]
    torch.cuda.synchronize()
    wrong = []

    def calls(given, right):
        with torch.cuda.stream(torch.cuda.Stream()):
            found = [kernel(**given) for _ in range(50)]
            torch.cuda.current_stream().synchronize()
            wrong.extend(out for out in found if not equal(out, right))

    threads = [threading.Thread(target=calls, args=pair) for pair in zip(made, expected)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_each_device_has_its_own():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    kernel = load("gated_delta", backend="triton")
    made = {at: inputs(kernel, torch.bfloat16, device=f"cuda:{at}", **SIZES) for at in range(2)}
    for _ in range(3):
        for at, given in made.items():
            out = kernel(**given)
            assert out.o.device.index == at and torch.cuda.current_device() == 0
            assert equal(out, by_triton(kernel, given))
    assert len(prepared(kernel)) == 2


def test_a_profiler_sees_every_launch():
    from triton import knobs

    kernel = load("gated_delta", backend="triton", fuse="none")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    expected = [kernel(**given) for _ in range(2)][-1]
    seen = []
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        assert equal(kernel(**given), expected)
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert len(seen) == 6
    assert equal(kernel(**given), expected) and len(seen) == 6


def test_torch_compile():
    kernel = load("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    expected = by_triton(kernel, given)
    compiled = torch.compile(lambda **given: kernel(**given).o * 2)
    for _ in range(3):
        assert same_bits(compiled(**given), expected[0] * 2)


@pytest.fixture
def compiled(monkeypatch):
    """The kernels that are not in this process yet, as they are asked for."""
    import triton

    found = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **keywords: found.append(keywords["repr"]))
    return found


def test_a_second_shape_compiles_nothing(compiled):
    kernel = op("gated_delta", backend="triton")
    kernel(**inputs(kernel, torch.bfloat16, device="cuda", **SIZES))
    compiled.clear()
    for T in (70, 200):
        given = inputs(kernel, torch.bfloat16, device="cuda", **{**SIZES, "T": T})
        for _ in range(2):
            kernel(**given)
    assert compiled == []


def test_what_was_compiled_ahead_is_what_a_call_needs(compiled):
    """Forward and backward, at widths that no other test has."""
    kernel = op("gated_delta", backend="triton")
    odd = {**SIZES, "K": 40, "V": 24}
    sizes = complete(kernel.whole, {**odd, "B": 1, "T": 256})
    call = bare_call(kernel, sizes, None, torch.bfloat16, torch.device("cuda", torch.cuda.current_device()), ())
    assert compile_ahead(all_launches(call, backward=True)) == [] and compiled
    compiled.clear()
    given = {name: x.requires_grad_() for name, x in inputs(kernel, torch.bfloat16, device="cuda", **odd).items()}
    out = kernel(**given)
    torch.autograd.grad(out, list(given.values()), [torch.ones_like(x) for x in out])
    assert compiled == []
