"""What the host does: no waiting (C11), no recompilation (C9), CUDA graphs, streams, the second device."""

import pytest
import torch
from support.guarded import Guarded
from support.ops import OPS, check, inputs, op, same_bits

from chunkwise.runner.main import main
from chunkwise.runner.planning.execute import execute

pytestmark = pytest.mark.gpu

SIZES = dict(H=2, HV=4, K=64, V=64)


def equal(one, two):
    return all(same_bits(a, b) for a, b in zip(one, two, strict=True))


@pytest.fixture
def no_waiting():
    """Anything that waits for the device raises."""

    def switch(mode):
        torch.cuda.set_sync_debug_mode(mode)

    yield switch
    switch("default")


@pytest.mark.parametrize("with_tensor", [False, True], ids=["seqlens", "cu_seqlens and seqlens"])
@pytest.mark.parametrize("name", OPS)
def test_c11_no_copy_to_the_host_when_lengths_are_given(name, with_tensor, no_waiting):
    """New lengths at every call, and rows past the last sequence."""
    kernel = op(name, backend="triton")
    calls = []
    for lengths in ((100, 28, 72), (1, 0, 199), (64, 64, 50)):
        given = inputs(kernel, torch.bfloat16, seqlens=lengths, device="cuda", **SIZES, T=220)
        ends = torch.tensor([0, *lengths], device="cuda").cumsum(0) if with_tensor else None
        calls.append((given, lengths, ends))
    kernel(**calls[0][0], seqlens=calls[0][1], cu_seqlens=calls[0][2])
    torch.cuda.synchronize()
    no_waiting("error")
    found = [kernel(**given, seqlens=lengths, cu_seqlens=ends) for given, lengths, ends in calls]
    no_waiting("default")
    for out, (given, lengths, _) in zip(found, calls):
        assert equal(out, kernel(**given, seqlens=lengths))


def test_c11_the_alarm_works(no_waiting):
    """Without host lengths cu_seqlens is read back, once, and that is seen."""
    kernel = op("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, seqlens=(30, 40), device="cuda", **SIZES)
    ends = torch.tensor([0, 30, 70], device="cuda")
    kernel(**given, cu_seqlens=ends)
    no_waiting("error")
    with pytest.raises(RuntimeError, match="synchroniz"):
        kernel(**given, cu_seqlens=ends)


@pytest.mark.parametrize("name", OPS)
def test_plain_batches_never_wait(name, no_waiting):
    kernel = op(name, backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    kernel(**given)
    torch.cuda.synchronize()
    no_waiting("error")
    kernel(**given)


@pytest.mark.parametrize("name", OPS)
def test_c9_other_sizes_compile_nothing(name, monkeypatch):
    """T, B, H and the lengths change at every call; also to 1, and to and from multiples of 16."""
    import triton

    kernel, compiled = op(name, backend="triton"), []
    for seqlens in (None, (60, 40)):
        kernel(**inputs(kernel, torch.bfloat16, seqlens=seqlens, device="cuda", **{**SIZES, "T": 100}), seqlens=seqlens)
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **keywords: compiled.append(keywords["repr"]))
    for T, B, H in ((64, 2, 2), (65, 1, 1), (1, 3, 2), (77, 16, 16), (1024, 1, 2), (2, 1, 1)):
        sizes = dict(SIZES, B=B, T=T, H=H, HV=2 * H)
        kernel(**inputs(kernel, torch.bfloat16, device="cuda", **sizes))
        lengths = (T // 2, 0, T - T // 2)
        packed = inputs(kernel, torch.bfloat16, seqlens=lengths, device="cuda", **{**sizes, "B": 1})
        kernel(**packed, seqlens=lengths)
    assert compiled == []


@pytest.mark.parametrize("name", OPS)
def test_a_cuda_graph(name):
    kernel = op(name, backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    other = inputs(kernel, torch.bfloat16, seed=1, device="cuda", **SIZES)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kernel(**given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(**given)
    for each, x in other.items():
        given[each].copy_(x)
    graph.replay()
    torch.cuda.synchronize()
    assert equal(out, kernel(**other))


@pytest.mark.parametrize("name", OPS)
def test_the_current_stream(name):
    """Kernels run behind what the caller's stream holds, not on another one."""
    kernel, stream = op(name, backend="triton"), torch.cuda.Stream()
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    expected = kernel(**given)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        late = {each: torch.zeros_like(x) for each, x in given.items()}
        torch.cuda._sleep(50_000_000)
        for each, x in given.items():
            late[each].copy_(x)
        out = kernel(**late)
    stream.synchronize()
    assert equal(out, expected)


@pytest.mark.parametrize("name", OPS)
def test_the_second_device(name):
    """The tensors' device counts, not the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    kernel = op(name, backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda:1", **SIZES)
    with torch.cuda.device(0):
        out = kernel(**given)
        check(kernel, given)
        packed = inputs(kernel, torch.bfloat16, seqlens=(30, 0, 41), device="cuda:1", **SIZES)
        check(kernel, packed, seqlens=(30, 0, 41))
    assert {x.device for x in out} == {torch.device("cuda:1")}
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("command", ["run", "verify", "bench"])
def test_commands_on_the_second_device(command, tmp_path, capsys):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    options = ["--axes", "B=1,T=130,H=2,HV=4,K=64,V=64", "--device", "cuda:1", "--backward"]
    options += [] if command == "verify" else ["--out", str(tmp_path)]
    assert main([command, "gated_delta", *options]) == 0, capsys.readouterr()
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("K,V", [(48, 60), (60, 100), (100, 48), (128, 128)])
@pytest.mark.parametrize("seqlens", [None, (33, 0, 1, 64)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", OPS)
def test_e1_nan_beside_every_tensor(name, seqlens, K, V):
    """Inputs, edges, scratch and outputs each lie between nan: nothing leaks in, and nobody writes beside his own."""
    kernel, guarded = op(name, backend="triton"), Guarded()
    given = inputs(kernel, torch.bfloat16, seqlens=seqlens, device="cuda", **{**SIZES, "K": K, "V": V})
    call = kernel.bind({each: guarded.holding(x) for each, x in given.items()}, None, seqlens)
    found = execute(call.forward_plan(), call.contiguous, call.params, call.seqs, make=guarded)
    assert guarded.unhurt()
    plain = kernel(**given, seqlens=seqlens)
    assert all(same_bits(x, getattr(plain, each)) and x.isfinite().all() for each, x in found.items())
