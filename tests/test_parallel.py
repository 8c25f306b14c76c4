"""Sequences cut across ranks: outputs, states and gradients are those of one process, and what goes wrong is said."""

import contextlib
import copy
import importlib.util
import io
import os
import random
import re
import tempfile
import threading
import time
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.ranks import COMPILER, MODULES, SPAWN, on_ranks
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from chunkwise.runner import ChunkwiseError, load
from chunkwise.runner.commands._context_parallel import LEAVES_LAST
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.main import main
from chunkwise.runner.parallel.cut import even_rows, packed_cut, plain_cut, ranks_of, row_axis
from chunkwise.runner.parallel.exchange_stage import ranks_on_paper
from chunkwise.runner.parallel.split_graph import reach_of, split_graph
from chunkwise.runner.parallel.states import states_here
from chunkwise.runner.parallel.verify_ranks import cut_rows, together
from chunkwise.runner.verification.generate import make_cotangents, make_inputs
from chunkwise.runner.workloads import other_axes
from chunkwise.stages import _exchange

SPAWN.set_forkserver_preload([*MODULES, *COMPILER])
ROOT = Path(__file__).resolve().parents[1]
PIPELINES = ["gated_delta", "delta_rule", "simple_gla", "retention", "lightning", "gla", "kda", "mamba2"]
SCANS = ["gated_delta", "simple_gla", "gla", "kda"]
"""One pipeline for each of the four scans."""
FUSED = {
    "gated_delta": "delta_prescan,chunk_delta_o,chunk_delta_states,chunk_delta_grads",
    "delta_rule": "chunk_delta_o,chunk_delta_grads",
    "simple_gla": "chunk_h_o,chunk_h_o_grads",
    "gla": "chunk_h_o_k",
    "kda": "chunk_delta_o_k",
    "mamba2": "chunk_h_o,chunk_h_o_grads",
}
"""What auto fuses on Hopper."""
REACHES = [(2, "states"), (3, "maps"), (3, "next")]
SIZES = dict(H=1, HV=2, K=6, V=5)
CLOSE = 1e-11
"""Of two orders of the same float64 sums, relative to the largest number."""


def case(name, lengths, T=None, C=16):
    """(op, inputs, cotangents) in float64: slow decay, so that what crosses a cut is seen a long way after. name: of a
    pipeline, with ``fused`` after it where its stages are."""
    name, *fused = name.split(" ")
    op = load(name, fuse=FUSED[name] if fused else "none")
    op = op.with_axes({"C": C}) if "C" in op.spec.axes else op
    sizes = SIZES | dict(B=2 if lengths is None else 1, T=T or sum(lengths))
    sizes = complete(op.whole, sizes | other_axes(sizes), None if lengths is None else len(lengths))
    inputs = make_inputs(op.whole, sizes, torch.float64, "cpu", 0, "weak_gate")
    call = op.bind(inputs, seqlens=lengths)
    joint = call.joint(call.trainable(), call.wanted)
    cotangents = make_cotangents(joint, call.sizes, torch.float64, "cpu")
    return op, inputs, {name: cotangents[value] for name, value in joint.cotangents.items()}


def alone(op, inputs, cotangents, lengths):
    """Outputs and gradients (``d_<input>``) of one process."""
    call = op.bind(inputs, seqlens=lengths)
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items() if name in call.trainable()}
    out = op(**{**inputs, **leaves}, seqlens=lengths)._asdict()
    grads = torch.autograd.grad([out[name] for name in cotangents], list(leaves.values()), list(cotangents.values()))
    return {name: x.detach() for name, x in out.items()} | {f"d_{name}": x for name, x in zip(leaves, grads)}


def worst(found, right):
    """The largest relative difference, and where."""
    assert {name: x.shape for name, x in found.items()} == {name: x.shape for name, x in right.items()}
    some = {name: x for name, x in right.items() if x.numel()}
    off = {name: (found[name] - x).abs().max().item() / max(x.abs().max().item(), 1e-30) for name, x in some.items()}
    return max((size, name) for name, size in off.items())


def compare(rank, size, cases, compile_too):
    """On rank 0, the worst difference of each case."""
    found = {}
    for name, lengths, rows in cases:
        too = (name, lengths, rows) in compile_too
        op, inputs, cotangents = case(name, lengths, None if lengths else sum(rows))
        rows = rows or even_rows(sum(lengths), size)
        cut = op.context_parallel()
        right = alone(op.with_fusions("none"), inputs, cotangents, lengths) if rank == 0 or too else None
        made = together(cut, inputs, cotangents, lengths, rows, True)
        if rank == 0:
            found[name, lengths, rows] = worst(made, right)
        if too:
            called = Called(op, inputs, cotangents, right, rows, rank)
            found[f"{name} compiled", lengths, rows] = called.off(compiled(cut, lengths, rows))
    return found


def compiled(cut, lengths, rows=None):
    """A call as one graph of torch.compile."""
    torch._dynamo.reset()
    return torch.compile(lambda **given: cut(**given, seqlens=lengths, rows=rows), backend="aot_eager", fullgraph=True)


class Called:
    """What a rank gets that calls a cut op as a model does, against its rows of what one process gets."""

    def __init__(self, op, inputs, cotangents, right, rows, rank):
        self.right, self.cotangents, self.rows = right, cotangents, (sum(rows[:rank]), rows[rank])
        self.axes = {name: value.axes for name, value in op.whole.inputs.items()}
        self.axes |= {name: op.whole.values[value].axes for name, value in op.whole.outputs.items()}
        self.trained = [name[2:] for name in right if name.startswith("d_")]
        self.mine = {name: cut_rows(x, self.axes[name], *self.rows) for name, x in inputs.items()}

    def off(self, run):
        """The worst difference, gradients and final states added over the ranks."""
        leaves = {name: x.clone().requires_grad_(name in self.trained) for name, x in self.mine.items()}
        out, d = run(**leaves), {name: cut_rows(x, self.axes[name], *self.rows) for name, x in self.cotangents.items()}
        grads = torch.autograd.grad([getattr(out, name) for name in d], [leaves[n] for n in self.trained], d.values())
        made = {name: x.detach().clone() for name, x in out._asdict().items()}
        made |= {f"d_{name}": x for name, x in zip(self.trained, grads)}
        axes = {name: self.axes[name.removeprefix("d_")] for name in made}
        for name, x in made.items():
            if row_axis(axes[name]) is None:
                dist.all_reduce(x)
        return worst(made, {name: cut_rows(self.right[name], axes[name], *self.rows) for name in made})


TWO = [((37, 51, 40), None)]
THREE = [((0, 3, 70, 1, 9), (30, 0, 53)), ((60,), None), ((20, 30, 9, 37), None)]
FOUR = [(None, (17, 0, 30, 5)), ((5, 90, 0), (20, 40, 3, 32))]
ATTENTION = {2: (16, 16), 3: (9, 0, 14), 4: (7, 8, 3, 8)}
"""Rows of flash and flash_varlen, whose documents end anywhere."""


@pytest.mark.parametrize("size,names,kinds", [(2, PIPELINES, TWO), (3, PIPELINES[1::2], THREE), (4, SCANS, FOUR)])
def test_as_one_process(size, names, kinds):
    """Plain and packed; sequences that begin, end, pass through, or have no rows; ranks without rows. On three ranks in
    compiled code too. Fused stages as well."""
    cases = [(f"{name} fused", *kind) for name, kind in product(FUSED, kinds[-1:])]
    cases += [(name, *kind) for name, kind in product(names, kinds)]
    cases += [(name, None, ATTENTION[size]) for name in ("flash", "flash_varlen")]
    too = [cases[0], cases[-1]] if size == 3 else []
    found = on_ranks(size, compare, cases, too)[0]
    assert isinstance(found, dict), found
    assert len(found) == len(cases) + len(too)
    assert {each: off for each, off in found.items() if not off[0] <= CLOSE} == {}


def autograd_and_modes(rank, size):
    """As a model calls it: through autograd, under checkpoint and torch.compile, with a budget, under no_grad."""
    lengths = (37, 51, 40)
    op, inputs, cotangents = case("gated_delta", lengths)
    right, rows = alone(op, inputs, cotangents, lengths), even_rows(128, size)
    called = Called(op, inputs, cotangents, right, rows, rank)
    budget = load("gated_delta", memory_budget=0).with_axes({"C": 16}).context_parallel()
    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("dp", "cp"))
    cut, meshed = op.context_parallel(), op.context_parallel(mesh["cp"])
    assert copy.deepcopy(cut) is cut
    ways = {
        "eager": lambda **given: cut(**given, seqlens=lengths),
        "mesh": lambda **given: meshed(**given, seqlens=lengths, rows=rows),
        "cu_seqlens": lambda **given: cut(**given, cu_seqlens=torch.tensor([0, 37, 88, 128])),
        "budget": lambda **given: budget(**given, seqlens=lengths),
        "checkpoint": lambda **given: torch.utils.checkpoint.checkpoint(
            lambda: cut(**given, seqlens=lengths), use_reentrant=False
        ),
        "compile": compiled(cut, lengths),
        "compile, with a budget": compiled(budget, torch.tensor(lengths)),
    }
    found = {way: called.off(run) for way, run in ways.items()}
    with torch.no_grad():
        out = cut(**called.mine, seqlens=lengths, outputs=["o"])
        assert out.final_state is None
        found["no_grad"] = worst({"o": out.o}, {"o": cut_rows(right["o"], ("B", "T"), *called.rows)})
    found["ops"] = registered(cut.library, called.mine, lengths)
    return found


def registered(library, given, lengths):
    """What torch.library.opcheck says of both ops."""
    seen, run = [], library.backward
    library.backward = lambda *args: seen.append(args) or run(*args)
    leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
    args = (*leaves.values(), *(None for _ in library.params), None, None, list(lengths), None, ["o"], list(leaves))
    found = torch.library.opcheck(library.forward, args)
    library.forward(*args)[0].sum().backward()
    backward = [x.detach() if isinstance(x, torch.Tensor) else x for x in seen[-1]]
    return found | {f"backward {name}": said for name, said in torch.library.opcheck(run, backward).items()}


def nothing_leaks(rank, size):
    """What the tail of one document holds moves nothing in the next, nor a gradient there: exactly 0, nan or not."""
    lengths, found = (37, 51, 40), {}
    for name, filled in product(("gated_delta", "simple_gla"), (7.0, float("nan"))):
        op, inputs, cotangents = case(name, lengths)
        cut, rows = op.context_parallel(), even_rows(128, size)
        changed = {**inputs, "v": inputs["v"].clone()}
        changed["v"][:, 70:88] = filled
        made, again = (together(cut, each, cotangents, lengths, rows, True) for each in (inputs, changed))
        if rank == 0:
            others = [slice(0, 37), slice(88, 128)]
            tokens = [each for each, x in made.items() if x.shape[1] == 128]
            same = all(torch.equal(made[each][:, rows], again[each][:, rows]) for each in tokens for rows in others)
            state = torch.equal(made["final_state"][[0, 2]], again["final_state"][[0, 2]])
            moved = not torch.equal(made["o"][:, 70:88], again["o"][:, 70:88])
            found[name, str(filled)] = same and state and moved
    return found


BESIDE = """schema: pipeline/v1
name: beside
extends: simple_gla
stages: {norm: {use: l2norm, in: {x: v}}}
outputs: {u: norm.y}
definition:
  step: ["u = v / sqrt(sum(v * v, axis=V) + 1e-6)"]
"""


def losses_of_their_own(rank, size):
    """Each rank's loss depends on another output, the first one's on none that went through the scan."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "beside.yaml").write_text(BESIDE)
        op, inputs, cotangents = case(f"{folder}/beside.yaml", None, 16)
    rows = even_rows(16, size)
    own = ["u", *["o"] * (size - 1)][rank]
    lost = {name: x.clone() for name, x in cotangents.items() if name in ("u", "o")}
    lost["u"][:, rows[0] :], lost["o"][:, : rows[0]] = 0, 0
    called = Called(op, inputs, {own: cotangents[own]}, alone(op, inputs, lost, None), rows, rank)
    cut = op.context_parallel()
    ways = {"eager": cut, "compiled": compiled(cut, None)}
    return {way: called.off(run) for way, run in ways.items()}


def threads(rank, size):
    """Two threads, each with a group and an op of its own, at other times on other ranks."""
    op, inputs, _ = case("simple_gla", (8, 8))
    mine = {name: cut_rows(x, op.whole.inputs[name].axes, 8 * rank, 8) for name, x in inputs.items()}
    cuts = [op.context_parallel(dist.new_group(list(range(size)))) for _ in range(2)]
    right, same = op(**inputs, seqlens=(8, 8)).o.narrow(1, 8 * rank, 8), []

    def calls(at):
        waits = random.Random(2 * rank + at)
        for _ in range(10):
            time.sleep(waits.random() / 100)
            same.append(torch.allclose(cuts[at](**mine, seqlens=(8, 8)).o, right))

    both = [threading.Thread(target=calls, args=(at,)) for at in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    return len(same), all(same), len(_exchange.LAST)


COMMANDS = {
    "gated_delta": ["--seqlens", "17,23", "--axes", "T=40,H=1,HV=1,K=8,V=8,C=16", "--fuse", "chunk_delta_o"],
    "flash_varlen": ["--axes", "B=1,Sq=41,Sk=41,H=1,HQ=2,D=8,DV=8,ND=3"],
}


def command(rank, size):
    return {name: run_command(name, options) for name, options in COMMANDS.items()}


def run_command(name, options):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), tempfile.TemporaryDirectory() as folder:
        code = main(["run", name, "--context-parallel", "--backward", "--device", "cpu", *options, "--out", folder])
    return code, text.getvalue()


def example(rank, size):
    """examples/context_parallel/train.py: two layers under FSDP and checkpoint, cut and alone."""
    spec = importlib.util.spec_from_file_location("train", ROOT / "examples" / "context_parallel" / "train.py")
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    cut, alone = (train.train(3, *each, torch.device("cpu")) for each in ((rank, size, True), (0, 1, False)))
    return max(abs(here - there) / there for here, there in zip(cut, alone)), train.CLOSE, alone[0] - alone[-1]


def many(rank, size):
    checks = (autograd_and_modes, losses_of_their_own, nothing_leaks, refused, groups, threads, command, example)
    return {check.__name__: check(rank, size) for check in checks}


def refused(rank, size):
    """Ranks that mean different calls hear of it on every rank, before anything is launched."""
    op, inputs, _ = case("gated_delta", (8, 8))
    mine = {name: cut_rows(x, op.whole.inputs[name].axes, 8 * rank, 8) for name, x in inputs.items()}
    says = {}

    def heard(what, run):
        with pytest.raises((ChunkwiseError, ZeroDivisionError)) as error:
            run()
        found = getattr(error.value, "diagnostics", None)
        says[what] = f"{found[0].code}: {found[0].message}" if found else repr(error.value)

    cut = op.context_parallel()
    heard("lengths", lambda: cut(**mine, seqlens=(8, 8) if rank else (9, 7)))
    heard("rows", lambda: cut(**{**mine, "v": mine["v"][:, :7]} if rank else mine, seqlens=(8, 8)))
    other = load("delta_rule").with_axes({"C": 16}) if rank else op
    given = {name: mine[name] for name in other.whole.inputs}
    heard("pipeline", lambda: other.context_parallel()(**given, seqlens=(8, 8)))
    leaf = {**mine, "q": mine["q"].clone().requires_grad_()} if rank else mine
    heard("gradients", lambda: op.context_parallel()(**leaf, seqlens=(8, 8)))
    heard("states", lambda: cut(**{**mine, "initial_state": mine["initial_state"][:1]}, seqlens=(8, 8)))
    plain = {**mine, "initial_state": None}
    heard("plain rows", lambda: cut(**plain, rows=(8, 7)))
    heard("rows in words", lambda: cut(**plain, rows="ab"))
    heard("uneven", lambda: cut(**mine, seqlens=(8, 7)))
    heard("mesh", lambda: op.context_parallel(init_device_mesh("cpu", (1, size), mesh_dim_names=("dp", "cp"))))
    for lengths in ((8, 8), (16,)):
        cut(**plain, seqlens=lengths)
    heard("known on both", lambda: cut(**plain, seqlens=(16,) if rank else (8, 8)))
    cut(**plain, seqlens=(16,))
    many = [0] * 200 + [16 - rank, rank]
    heard("long", lambda: op.context_parallel()(**{**mine, "initial_state": None}, seqlens=many, rows=(8, 8)))
    heard("serial", lambda: load("gla_serial").context_parallel())
    mapped = torch.vmap(lambda q: cut(**{**plain, "q": q}).o)
    heard("mapped", lambda: mapped(mine["q"][None]) if rank else cut(**plain))
    heard("by position", lambda: cut(mine["q"]) if rank else cut(**plain))
    heard("a list", lambda: cut(**plain, cu_seqlens=[0, 8, 16] if rank else torch.tensor([0, 8, 16])))
    heard("no numbers", lambda: cut(**plain, seqlens=Odd() if rank else (8, 8)))
    ends, (flash, keys, _) = torch.tensor([7 + rank, 16]), case("flash_varlen", None, 16)
    keys = {name: cut_rows(x, flash.whole.inputs[name].axes, 8 * rank, 8) for name, x in keys.items()}
    heard("ends", lambda: flash.context_parallel()(**{**keys, "q_ends": ends, "k_ends": ends}))
    keys = {name: x[:, : 8 - rank] if name in ("q", "k", "v") else x for name, x in keys.items()}
    heard("attention rows", lambda: flash.context_parallel()(**keys))
    return says


class Odd:
    """What raises another error than ours when it is read."""

    def __iter__(self):
        raise ZeroDivisionError("odd")


def groups(rank, size):
    """A group of the same ranks is another group; a mesh in another order, or without this rank, is none."""
    op, inputs, _ = case("simple_gla", (8, 8))
    mine = {name: cut_rows(x, op.whole.inputs[name].axes, 8 * rank, 8) for name, x in inputs.items()}
    two = [dist.new_group(list(range(size))) for _ in range(2)]
    with pytest.raises(ChunkwiseError) as other:
        op.context_parallel(two[rank])(**mine, seqlens=(8, 8))
    with pytest.raises(ChunkwiseError) as order:
        op.context_parallel(DeviceMesh("cpu", [1, 0]))
    mesh = DeviceMesh("cpu", [0])
    with pytest.raises(ChunkwiseError) if rank else contextlib.nullcontext() as outside:
        op.context_parallel(mesh)
    return str(other.value), str(order.value), str(outside.value) if rank else None


@pytest.fixture(scope="module")
def both():
    found = on_ranks(2, many)
    assert all(isinstance(each, dict) for each in found), found
    return found


def test_as_a_model_calls_it(both):
    for found in both:
        ways = dict(found["autograd_and_modes"])
        ops = ways.pop("ops")
        assert len(ops) == 8 and set(ops.values()) == {"SUCCESS"}
        assert len(ways) == 8
        assert {way: off for way, off in ways.items() if not off[0] <= CLOSE} == {}


def test_nothing_leaks_from_one_document_to_the_next(both):
    assert both[0]["nothing_leaks"] == {each: True for each in both[0]["nothing_leaks"]}
    assert len(both[0]["nothing_leaks"]) == 4


def test_ranks_that_differ_are_refused_on_every_rank(both):
    first, second = (found["refused"] for found in both)
    agreed = "CW622: the ranks differ in "
    for said in (first, second):
        assert said["lengths"] == agreed + "lengths: rank 0 has (9, 7), rank 1 has (8, 8)"
        assert said["pipeline"].startswith(agreed + "pipeline: rank 0 has gated_delta ")
        assert said["gradients"] == agreed + "gradients: rank 0 has (), rank 1 has ('q',)"
        assert said["known on both"] == agreed + "lengths: rank 0 has (8, 8), rank 1 has (16,)"
        assert said["states"] == "CW604: initial_state has 1 states, and the sequences of all ranks are 2"
        assert said["mesh"] == "CW601: sequences are cut along one dimension of a mesh, and this one has 2"
        assert said["long"].startswith(agreed + "lengths: rank 0 has ..., 0, 0") and "0, 15, 1)" in said["long"]
        assert said["serial"].startswith("CW621: scan (gla_chunk_scan) holds a state of each sequence")
    assert first["rows"] == "CW622: rank 1 of 2 refuses its call: v [B T HV V] has T = 7, q has 8"
    assert second["rows"] == "CW604: v [B T HV V] has T = 7, q has 8"
    assert first["plain rows"] == "CW622: rank 1 of 2 refuses its call: rank 1 has 8 rows, rows says 7"
    assert second["plain rows"] == "CW603: rank 1 has 8 rows, rows says 7"
    assert first["rows in words"] == "CW603: rows must be whole numbers, it is 'ab'"
    told = "CW622: rank 1 of 2 refuses its call: "
    assert first["mapped"] == told + "gated_delta was called under torch.vmap" and second["mapped"].startswith("CW611")
    assert first["by position"] == told + "gated_delta takes its inputs by name"
    assert first["a list"] == told + "cu_seqlens must be a tensor [N + 1], it is no tensor"
    assert second["a list"] == "CW603: cu_seqlens must be a tensor [N + 1], it is no tensor"
    assert second["no numbers"] == "ZeroDivisionError('odd')"
    assert first["no numbers"] == told + second["no numbers"]
    for said in (first, second):
        assert said["ends"] == agreed + "q_ends: rank 0 has [7, 16], rank 1 has [8, 16]"
        assert said["attention rows"] == agreed + "rows: rank 0 has (8, 8), rank 1 has (7, 7)"
    assert first["uneven"] == "CW622: rank 1 of 2 refuses its call: rank 1 has 8 rows, spread evenly, it has 7"


def test_groups(both):
    first, second = (found["groups"] for found in both)
    assert first[:2] == second[:2]
    assert first[0].startswith("error[CW622]: the ranks differ in group: rank 0 has ('")
    assert first[0].endswith("help: pass the same mesh or process group on every rank")
    assert first[1].startswith(
        "error[CW601]: a mesh has its ranks in ascending order, as its process group has them, and this one has [1, 0]"
    )
    assert second[2].startswith("error[CW601]: a group is a DeviceMesh or a ProcessGroup that this process is in")


def test_threads_of_groups_of_their_own(both):
    """What gloo did last is held, twice: its threads may not be the last to let go."""
    assert [found["threads"] for found in both] == [(20, True, 2)] * 2


def test_losses_of_their_own(both):
    for found in both:
        ways = found["losses_of_their_own"]
        assert len(ways) == 2 and {way: off for way, off in ways.items() if not off[0] <= CLOSE} == {}


def test_the_command_on_two_ranks(both):
    (code, text), (other, silent) = (found["command"]["gated_delta"] for found in both)
    assert (code, other, silent) == (0, 0, "")
    fused = "note: out: chunk_delta_o in place of wy, scan, out"
    for words in ("scan.gather", "all_gather", "gloo", "merge_cotangents", "MB from other ranks", "verified:", fused):
        assert words in text, text
    assert "2 ranks together: 8 outputs and gradients within budget of the definition" in text, text
    code, text = both[0]["command"]["flash_varlen"]
    assert code == 0 and "2 ranks together: 6 outputs and gradients within budget of the definition" in text, text
    for words in ("attend.gather", "attend.vjp.dkdv.scatter", "reduce_scatter", "21 of 41 rows", "MB from other ranks"):
        assert words in text, text


def test_a_model_trains_the_same(both):
    for off, close, learned in (found["example"] for found in both):
        assert off <= close and learned > 0.1


def dies(rank, size):
    op, inputs, _ = case("simple_gla", (8, 8))
    mine = {name: cut_rows(x, op.whole.inputs[name].axes, 8 * rank, 8) for name, x in inputs.items()}
    cut = op.context_parallel()
    cut(**mine, seqlens=(9, 7))
    if rank == 1:
        cut.bind(mine, seqlens=(9, 7))  # it agrees to the call and never makes it
        os.kill(os.getpid(), 9)
    began = time.monotonic()
    with pytest.raises(ChunkwiseError) as error:
        cut(**mine, seqlens=(9, 7))
    return time.monotonic() - began, str(error.value)


def test_a_killed_rank_ends_the_other_with_one_message():
    seconds, text = on_ranks(2, dies, timeout=8, lost=[1])[0]
    assert seconds < 8 + 2
    waited = "error[CW711]: rank 0 of 2 waited for the others in scan.gather, and one of them is gone or did not come: "
    assert text.startswith(waited)
    assert "pytorch/" not in text and "help: what the other rank printed last says why" in text


def stays_away(rank, size):
    op, inputs, _ = case("simple_gla", (8, 8))
    mine = {name: cut_rows(x, op.whole.inputs[name].axes, 8 * rank, 8) for name, x in inputs.items()}
    cut, began = op.context_parallel(), time.monotonic()
    if rank == 1:
        time.sleep(3)
        return None
    with pytest.raises(ChunkwiseError) as error:
        cut(**mine, seqlens=(8, 8))
    return time.monotonic() - began, str(error.value)


def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_the_timeout():
    seconds, text = on_ranks(2, stays_away, timeout=1)[0]
    assert seconds < 3 and text.startswith("error[CW711]: rank 0 of 2 waited for the others in the question whether ")
    assert "same call (no answer of rank 1), and one of them is gone or did not come: wait timeout after 1000ms" in text


@pytest.mark.parametrize("ranks,maps", [(2, False), (3, True)])
def test_the_picture_of_one_rank(ranks, maps, capsys):
    line = f"graph gated_delta --backward --ranks {ranks} --axes B=1,T=64,H=1 --format mermaid --out -"
    assert main(line.split()) == 0
    text = capsys.readouterr().out
    for id in ("scan.segment", "scan.gather", "scan.enter", "scan.vjp.segment", "scan.vjp.gather", "scan.vjp.enter"):
        assert id in text
    assert ("segment/map" in text) == maps
    assert main(["graph", "gated_delta", "--ranks", "1"]) == 2


@pytest.mark.parametrize("name,ranks,reach", [(name, *each) for name, each in product(SCANS, REACHES)])
def test_every_edge_of_a_scan_fits(name, ranks, reach):
    """The rewrite places values by hand: shape, dtype and unit are those of the ports that read them."""
    op = load(name)
    graph = split_graph(op.trainable_graph(), op.stages, ranks_on_paper(ranks), reach)
    placed = [id for id in graph.nodes if id.endswith((".segment", ".gather", ".pass", ".enter", "scan", "scan.vjp"))]
    assert len(placed) == 8
    assert_edges_fit(graph, placed)


GRADIENT = ["attend.vjp.preprocess", "attend.vjp.dkdv", "attend.vjp.dkdv.scatter", "attend.vjp.dq"]


def test_every_edge_of_attention_fits():
    op = load("flash_varlen")
    graph = split_graph(op.trainable_graph(), op.stages, ranks_on_paper(2), "states")
    assert [*graph.nodes] == ["attend.gather", "mask", "attend", *GRADIENT]
    assert_edges_fit(graph, graph.nodes)
    sent = {port: graph.values[name].dtype for port, name in graph.nodes["attend.vjp.dkdv.scatter"].inputs.items()}
    assert sent == {"d_ks": "f32", "d_vs": "f32"}


UNIT_VARIABLE = re.compile(r"\{\w+\}")


def assert_edges_fit(graph, placed):
    for node in map(graph.nodes.get, placed):
        for port, name in node.inputs.items():
            declared, value = node.stage.contract.inputs[port], name and graph.values[name]
            assert declared.optional if value is None else value.dtype == declared.dtype, (node.id, port)
            if value is not None:
                assert value.axes == tuple(node.axes.get(axis, axis) for axis in declared.axes), (node.id, port)
                assert value.unit == declared.unit or fnmatch(value.unit, UNIT_VARIABLE.sub("*", declared.unit))


def test_without_a_process_group():
    with pytest.raises(ChunkwiseError, match="needs a process group"):
        load("gated_delta").context_parallel()


REFUSED = {
    "run gla --fuse chunk_k_o_h": "there is no fusion chunk_k_o_h help: did you mean chunk_h_o_k?",
    "run gla --probe": "--probe is not there with --context-parallel: each rank makes its own rows",
    "run gated_delta --proton": "--proton is not there with --context-parallel: a profile is of one process",
    "run flash --params nope=1": "--params: the pipeline has no param nope",
    "run mla_naive": "attend (rope_attention) reads rows along Sk, and does not say that it needs those of all ranks",
    "run paged_decode": "paged_decode has no scan whose state could cross a cut, nor a stage that gathers",
}


@pytest.mark.parametrize("line,message", REFUSED.items())
def test_what_the_command_has_no_use_for_is_refused(line, message, capsys):
    assert main([*line.split(), "--context-parallel"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_rank_that_says_nothing_leaves_last(capsys, monkeypatch):
    waited = []
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(time, "sleep", waited.append)
    assert main(["run", "nope", "--context-parallel"]) == 2
    assert capsys.readouterr().err == "" and waited == [LEAVES_LAST]


def test_queries_and_keys_of_other_rows_cannot_be_cut(capsys):
    for line in ("plan flash --axes Sq=8,Sk=9", "graph flash --ranks 2 --axes Sq=8,Sk=9 --out -"):
        assert main(line.split()) == 2
        assert (
            "Sq = 8, Sk = 9: queries and keys that are cut across ranks are of the same rows" in capsys.readouterr().err
        )


def test_a_plan_of_nothing(capsys):
    assert main("plan gated_delta --axes B=0 --ranks 2".split()) == 0
    assert states_here(torch.zeros(0, 1), plain_cut(0, 0, 2), ()).shape == (0, 1)


def test_the_command_without_torchrun(capsys):
    assert main(["run", "gated_delta", "--context-parallel"]) == 2
    assert "torchrun --nproc-per-node 2" in capsys.readouterr().err


def test_what_is_exchanged():
    """Of two ranks states, of more the next one's state, unless a sequence passes through a rank: then maps."""
    assert [reach_of(*each) for each in ((2, 2), (2, 3), (3, 3), (2, 64))] == ["states", "next", "maps", "next"]


def test_cuts():
    """Every row of every sequence lies on one rank; a sequence goes from rank to rank without a gap."""
    for lengths, rows in product(
        [(5, 0, 7, 1), (0, 0), (), (13,), (0, 4, 0)], [(13,), (4, 9), (0, 5, 0, 8), (1,) * 13]
    ):
        cuts = [packed_cut(lengths, rows, rank) for rank in range(len(rows))]
        for n, (length, ranks) in enumerate(zip(lengths, ranks_of(lengths, rows))):
            pieces = [cut.lengths[cut.of.index(n)] for cut in cuts if n in cut.of]
            assert sum(pieces) == length and len(pieces) == len(ranks)
            assert [cut.begins[cut.of.index(n)] for cut in cuts if n in cut.of] == [True] + [False] * (len(ranks) - 1)
            assert [cut.ends[cut.of.index(n)] for cut in cuts if n in cut.of] == [False] * (len(ranks) - 1) + [True]
        assert all(sum(cut.lengths) <= own for cut, own in zip(cuts, rows))
        for rank, cut in enumerate(cuts):
            assert not cut.before or cut.before.stop == rank and not cut.begins[0]
            assert not cut.after or cut.after.start == rank + 1 and not cut.ends[-1]
