"""Prepared launches: what reaches compiled kernels is what Triton's own way would hand them, and when that is taken.
On a driver that stands in for a GPU's: support/stand_in_driver.py."""

import gc
import threading
import weakref
from collections import Counter

import pytest
import torch
from support.ops import DECODE, DENSE, PIPELINES, STEPS, inputs
from support.stand_in_driver import stand_in_driver
from triton import knobs
from triton.runtime.jit import JITFunction

from chunkwise.runner import load
from chunkwise.runner.launching import record
from chunkwise.runner.launching.prepared import prepared
from chunkwise.runner.planning.execute import execute

NAMES = [*PIPELINES, *DECODE, *STEPS, *DENSE]
PACKED = ("gated_delta", "kda", "mamba2")
SMALL = dict(B=2, T=70, H=2, HV=4, K=32, V=16)


@pytest.fixture
def driver():
    with stand_in_driver() as found:
        yield found


@pytest.fixture
def by_triton(monkeypatch):
    """The kernels that go through Triton's own way, by name."""
    found, run = [], JITFunction.run

    def counted(self, *args, **keywords):
        found.append(self.__name__)
        return run(self, *args, **keywords)

    monkeypatch.setattr(JITFunction, "run", counted)
    return found


def launched(driver, run):
    """What a function launches."""
    driver.launches.clear()
    run()
    found = list(driver.launches)
    driver.launches.clear()
    return found


class Kept:
    """Makes buffers and keeps them: no address comes twice."""

    def __init__(self, make=torch.empty):
        self.make, self.buffers = make, []

    def __call__(self, *args, **keywords):
        self.buffers.append(self.make(*args, **keywords))
        return self.buffers[-1]


def check_arguments(driver, plan, tensors, call):
    """The same kernels, grids, streams and values; each buffer has one place, of its size, that no other one shares."""
    make = Kept()
    run = prepared(plan, tensors, call.params)
    run(tensors, call.seqs)
    plain = launched(driver, lambda: execute(plan, tensors, call.params, call.seqs, make=make))
    quick = launched(driver, lambda: run.program(tensors, call.seqs))
    sizes = {x.data_ptr(): x.nbytes for x in make.buffers if x.nbytes}
    place = {}
    assert plain and [each[:3] for each in plain] == [each[:3] for each in quick]
    for (*_, one), (*_, two) in zip(plain, quick, strict=True):
        for a, b in zip(one, two, strict=True):
            if type(a) is int and a in sizes:
                assert place.setdefault(a, b) == b and b % 16 == 0
            elif a != 0 or type(a) is not int:
                assert (type(a), repr(a)) == (type(b), repr(b))
    places = sorted((place[a], sizes[a]) for a in place)
    assert all(start + size <= after for (start, size), (after, _) in zip(places, places[1:]))


def plans_of(call, backward):
    """(plan, what it takes) of a call: forward, or forward and backward with made up values between them."""
    given = call.contiguous
    if not backward:
        return [(call.forward_plan(), given)]
    joint = call.joint(call.trainable(), call.wanted)
    forward, back = call.forward_plan(joint), call.backward_plan(joint)
    made = {step.node.outputs[port]: x for step in forward.steps for port, x in step.outputs.items() if x}
    between = {name: made[name] for name in joint.kept}
    between |= {value: made[joint.outputs[output]] for output, value in joint.cotangents.items()}
    zeros = {name: torch.zeros(x.shape, dtype=x.dtype) for name, x in between.items()}
    return [(forward, given), (back, {**given, **zeros})]


def is_prepared(plan):
    return all(step.launcher for step in plan.steps)


CASES = [(name, backward, None) for name in NAMES for backward in (False, True) if not (backward and name in DECODE)]
CASES += [(name, backward, (40, 0, 25)) for name in PACKED for backward in (False, True)]


@pytest.mark.parametrize("name, backward, seqlens", CASES)
def test_a_program_hands_over_what_triton_would(name, backward, seqlens, driver):
    op = load(name, backend="triton", mode="chunk")
    call = op.bind(inputs(op, torch.bfloat16, seqlens=seqlens, **SMALL | ({"B": 1, "T": 70} if seqlens else {})),
                   seqlens=seqlens)  # fmt: skip
    for plan, tensors in plans_of(call, backward):
        if is_prepared(plan):
            check_arguments(driver, plan, tensors, call)


@pytest.mark.parametrize("name", ["gated_delta", "kda"])
def test_large_buffers_are_made_one_by_one(name, driver, monkeypatch):
    """As all of them are here. None is kept longer than by execute."""
    monkeypatch.setattr(record, "POOLED", 0)
    monkeypatch.setattr(torch, "empty_strided", Kept(torch.empty_strided))  # what was freed would be another's address
    op = load(name, backend="triton")
    call = op.bind(inputs(op, torch.bfloat16, **SMALL))
    for plan, tensors in plans_of(call, True):
        check_arguments(driver, plan, tensors, call)
        program = prepared(plan, tensors, call.params).program
        assert not program.pool
        released = {name for each in program.stretches for name in each.release}
        made = {each.name for stretch in program.stretches for each in stretch.made}
        assert made - released == set(plan.results.values()) & made
        for step, stretch in zip(reversed(plan.steps), reversed(program.stretches)):
            assert set(step.release) & made <= set(stretch.release)


def test_which_plans_have_no_program(driver):
    """One with a stage that runs its reference; the others of the shipped pipelines have one."""
    op = load("gla_step", backend="triton")
    (_, _), (back, tensors) = plans_of(call := op.bind(inputs(op, torch.bfloat16, **SMALL)), True)
    assert not is_prepared(back)
    run = prepared(back, tensors, call.params)
    for _ in range(2):
        run(tensors, call.seqs)
        assert run.program is None and not run.able


def gated(**sizes):
    op = load("gated_delta", backend="triton", mode="chunk", fuse="none")
    return op, inputs(op, torch.bfloat16, **SMALL | sizes)


def test_triton_is_asked_once(driver, by_triton):
    op, given = gated()
    first = launched(driver, lambda: op(**given))
    assert len(by_triton) == len(first) == 6
    assert len(launched(driver, lambda: op(**given))) == 6 and len(by_triton) == 6


def test_other_tensors_of_the_same_signature(driver, by_triton):
    op, given = gated()
    op(**given)
    other = {name: x.clone() for name, x in given.items()}
    found = launched(driver, lambda: op(**other))
    addresses = {x for *_, arguments in found for x in arguments if type(x) is int}
    assert {x.data_ptr() for x in other.values()} <= addresses
    assert not {x.data_ptr() for x in given.values()} & addresses
    assert len(by_triton) == 6


def test_one_tensor_under_two_names(driver):
    """What is prepared at such a call holds for two tensors as well."""
    op, given = gated()
    op(**{**given, "q": given["k"]})
    (first, *_) = [arguments for (kernel, *_), *_, arguments in launched(driver, lambda: op(**given))
                   if kernel == "chunk_o_kernel"]  # fmt: skip
    assert first[0] == given["q"].data_ptr() and first[1] == given["k"].data_ptr()


@pytest.mark.parametrize("change", ["strided", "offset", "memory of somebody else's"])
def test_inputs_that_are_copied_first(change, driver, by_triton):
    """Not contiguous, or not from a multiple of 16 bytes on: their copies are read, and nothing is compiled, whether
    calls of the signature have been prepared or not."""
    op, given = gated()
    op(**given)
    odd = {**given, "q": lying_otherwise(given["q"], change)}
    fresh, _ = gated()
    fresh(**odd)
    asked = len(by_triton)
    for each in (op, fresh, fresh):
        found = launched(driver, lambda: each(**odd))  # noqa: B023
        assert len(by_triton) == asked and len(found) == 6
        assert not any(odd["q"].data_ptr() in arguments for *_, arguments in found)


def lying_otherwise(x, change):
    if change == "strided":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if change == "offset":
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    memory = torch.zeros(x.nbytes + 16, dtype=torch.uint8).numpy()
    odd = torch.from_numpy(memory[memory.ctypes.data % 16 + 2 or 2 :][: x.nbytes]).view(x.dtype).view(x.shape)
    assert odd.data_ptr() % 16 and odd.storage_offset() == 0
    return odd


@pytest.mark.parametrize("name", DECODE)
def test_autograd_is_told_what_kernels_write_over(name, driver):
    """At every call, prepared or not; a tensor of inference mode has no version."""
    an_op = load(name, backend="triton")
    given = {**inputs(an_op, torch.bfloat16, **SMALL | {"T": 1, "SLOTS": 2}), "state_indices": None}
    for call in range(4):
        an_op(**given)
        assert given["state"]._version == call + 1
    with torch.inference_mode():
        an_op(**given | {"state": given["state"].clone()})
    assert len(driver.launches) >= 5


def test_params_arrive(driver):
    op, given = gated()
    for scale in (0.5, 0.25, 0.5, 0.25):
        found = launched(driver, lambda: op(**given, scale=scale))  # noqa: B023
        assert [scale in arguments for *_, arguments in found].count(True) == 1


def test_params_that_do_not_come_again_are_not_prepared(driver, by_triton):
    """A seed, say: what is prepared pays from the third call with the same params on."""
    op, given = gated()
    op(**given)
    for at, asked in enumerate((6, 12, 18, 24, 30)):
        op(**given, scale=1 / (at + 2))
        assert len(by_triton) == 6 + asked
    (plan,) = op.plans.items.values()
    assert [run.program is not None for run in plan.prepared.items.values()] == [True] + [False] * 5
    for asked in (42, 42):
        op(**given, scale=0.5)
        assert len(by_triton) == asked


def test_whole_numbers_of_both_widths(driver):
    op = load("gated_delta_decode", backend="triton")
    given = inputs(op, torch.bfloat16, **SMALL)
    keys = {}
    for dtype in (torch.int32, torch.int64, torch.int32, torch.int64):
        given["state_indices"] = given["state_indices"].to(dtype)
        keys.setdefault(dtype, []).append([each[0] for each in launched(driver, lambda: op(**given))])
    narrow, wide = keys.values()
    assert narrow[0] == narrow[1] != wide[0] == wide[1]


def test_caches_of_both_dtypes(driver):
    op = load("paged_decode_quant", backend="triton")
    given = inputs(op, torch.bfloat16, Sq=1, Sk=20, HQ=2, H=1, D=16, DV=16)
    held = [name for name, value in op.whole.inputs.items() if value.dtype == "q8"]
    keys = {}
    for dtype in (torch.int8, torch.float8_e4m3fn, torch.int8, torch.float8_e4m3fn):
        given.update({name: given[name].to(dtype) for name in held})
        keys.setdefault(dtype, []).append([each[0] for each in launched(driver, lambda: op(**given))])
    small, floating = keys.values()
    assert held and small[0] == small[1] != floating[0] == floating[1]


def test_new_lengths_are_read_from_their_own_tables(driver, by_triton):
    """As many sequences in as many tokens: the same program."""
    op, given = gated(B=1)
    del given["initial_state"]
    tables = []
    for lengths in ((30, 40), (69, 1), (1, 69)):
        table = op.bind(given, None, lengths).seqs.chunk_table.data_ptr()
        found = launched(driver, lambda: op(**given, seqlens=lengths))  # noqa: B023
        assert any(table in arguments for *_, arguments in found)
        assert not any(set(tables) & set(filter(bool, arguments)) for *_, arguments in found)
        tables.append(table)
    assert len(by_triton) == 6


def test_the_current_stream(driver):
    op, given = gated()
    op(**given)
    driver.stream = 9
    assert {stream for _, _, stream, _ in launched(driver, lambda: op(**given))} == {9}


def test_hooks_see_every_launch(driver, by_triton):
    op, given = gated()
    op(**given)
    by_triton.clear()
    hook = lambda metadata: None  # noqa: E731
    for chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        chain.add(hook)
        op(**given)
        chain.remove(hook)
        assert len(by_triton) == 6
        op(**given)
        assert len(by_triton) == 6
        by_triton.clear()


def test_hooks_of_one_kernel(driver, by_triton):
    from chunkwise.kernels.chunk_o import chunk_o_kernel

    op, given = gated()
    op(**given)
    seen = []
    chunk_o_kernel.add_pre_run_hook(lambda *args, **keywords: seen.append(keywords["scale"]))
    try:
        op(**given)
    finally:
        chunk_o_kernel.pre_run_hooks.clear()
    assert len(seen) == 1 and len(by_triton) == 12


def test_states_are_written_where_they_lie(driver):
    op = load("gated_delta_decode", backend="triton")
    given = inputs(op, torch.bfloat16, **SMALL)
    for _ in range(3):
        out = op(**given)
        assert out[-1] is given["state"]


def test_threads(driver):
    """Each call launches on its own tensors, whoever prepares."""
    op, _ = gated()
    made = [inputs(op, torch.bfloat16, **SMALL) for _ in range(4)]
    errors = []

    def calls(given):
        try:
            for _ in range(20):
                op(**given)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=calls, args=(given,)) for given in made]
    found = launched(driver, lambda: [*map(threading.Thread.start, threads), *map(threading.Thread.join, threads)])
    assert not errors and len(found) == 4 * 20 * 6
    reads = Counter(x for *_, arguments in found for x in arguments if type(x) is int)
    for name in made[0]:
        assert len({reads[given[name].data_ptr()] for given in made}) == 1


def test_gradients_go_the_same_way(driver, by_triton):
    op, given = gated()
    given = {name: x.requires_grad_() for name, x in given.items()}

    def step():
        out = op(**given)
        torch.autograd.grad(out.o.float().sum() + out.final_state.sum(), list(given.values()))

    first = len(launched(driver, step))
    assert len(by_triton) == first
    assert len(launched(driver, step)) == first and len(by_triton) == first


def test_caches_are_bounded_and_hold_no_tensors(driver):
    op, given = gated()
    for at in range(300):
        op(**given, scale=1 / (at + 1))
    (plan,) = op.plans.items.values()
    assert len(plan.prepared.items) == plan.prepared.limit == 8
    assert len(op.known.items) == op.known.limit == 256
    out = op(**given)
    refs = [weakref.ref(x) for x in (*given.values(), *out)]
    del out, given
    gc.collect()
    assert not any(ref() is not None for ref in refs)


@pytest.mark.parametrize("backward", [False, True])
def test_results_are_written_where_they_are_asked_for(backward, driver):
    """Kernels are handed the places; one that they could not write is left alone, and the result is one of its own."""
    op = load("gated_delta", backend="triton", mode="chunk")
    call = op.bind(inputs(op, torch.bfloat16, **SMALL | {"B": 1}))
    plan, given = plans_of(call, backward)[-1]
    run = prepared(plan, given, call.params)
    shapes = {name: x for name, x in run(given, call.seqs).items() if x is not None}
    name = "v" if backward else "o"
    whole = torch.empty([1, 300, *shapes[name].shape[2:]], dtype=torch.bfloat16)
    place, odd = whole[:, 64 : 64 + SMALL["T"]], torch.empty([*shapes[name].shape, 2], dtype=torch.bfloat16)[..., 0]
    found = run(given, call.seqs, {name: place})
    assert found[name] is place and all(found[other] is not place for other in shapes if other != name)
    handed = launched(driver, lambda: run(given, call.seqs, {name: place}))
    assert any(place.data_ptr() in arguments for *_, arguments in handed)
    handed = launched(driver, lambda: run(given, call.seqs, {name: odd}))
    assert not any(odd.data_ptr() in arguments for *_, arguments in handed)
