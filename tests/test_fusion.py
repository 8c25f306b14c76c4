"""Fused stages in pipelines: what they stand for, where they are refused, and that nothing else changes."""

import gc
import pickle
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support.ops import RAGGED, check, inputs, same_bits

from chunkwise.runner import load
from chunkwise.runner.compiling.meta_launches import meta_launches
from chunkwise.runner.loading.pipelines import find_pipeline
from chunkwise.runner.main import main
from chunkwise.runner.planning.plan import offers
from chunkwise.runner.rewriting.fusion import fusions
from chunkwise.runner.stage_files.stage_library import find_stages

SIZES = dict(B=2, T=70, H=1, HV=2, K=24, V=16)
BOTH = "delta_prescan,chunk_delta_o"
PRESCAN = "solve: delta_prescan in place of cumsum, kkt, solve"
SCAN = "out: chunk_delta_o in place of wy, scan, out"


def nowhere(stage, pipeline):
    return f"{stage} not used: no part of {pipeline}, by itself, is what it stands for"


FUSED = {
    "gated_delta": [PRESCAN, SCAN],
    "delta_rule": [SCAN, nowhere("delta_prescan", "delta_rule")],
    "qwen3_next_gdn": [PRESCAN, SCAN],
}
"""Pipeline -> what both do in it."""


BACKWARD = "chunk_delta_grads,chunk_delta_states"
STATES = "scan.rebuild: chunk_delta_states in place of wy.rebuild, scan.rebuild"
GRADIENT = "out.vjp.reverse, out.vjp.grads: chunk_delta_reverse, chunk_delta_grads in place of "
VJPS = GRADIENT + "out.vjp, scan.vjp, wy.vjp, solve.vjp, kkt.vjp, "
BACKWARDS = {
    "gated_delta": [STATES, f"{VJPS}d(cumsum.y), d(k)"],
    "delta_rule": [STATES, f"{VJPS}d(k)"],
    "qwen3_next_gdn": [STATES, f"{VJPS}d(cumsum.y), d(beta.y), d(knorm.y)"],
}
"""The same of the backward pass."""
SCANS = "chunk_h_o_grads"
BY_SCANS = {
    "simple_gla": "out.vjp.grads, out.vjp.gate: chunk_h_o_grads, chunk_gate_grads in place of out.vjp, scan.vjp, "
    "d(cumsum.y), d(k), d(v)",
    "retention": "out.vjp.grads: chunk_h_o_grads in place of out.vjp, scan.vjp, d(k), d(v)",
    "lightning": "out.vjp.grads: chunk_h_o_grads in place of out.vjp, scan.vjp, d(k), d(v)",
    "linear_attn": "out.vjp.grads: chunk_h_o_grads in place of out.vjp, scan.vjp, d(k), d(v)",
    "mamba2": "read.vjp.grads, read.vjp.gate: chunk_h_o_grads, chunk_gate_grads in place of read.vjp, scan.vjp, "
    "d(write.v), d(cumsum.y), d(b)",
}
"""The same by scans of the forward pass's form."""

CHANNELS = [
    ("gla", "gla_prescan", "cumsum, intra", "chunk_h_o_k", "scan, out"),
    ("kda_core", "kda_prescan", "cumsum, intra", "chunk_delta_wy_o_k", "wy, scan, out"),
    ("kda", "kda_norm_prescan", "qnorm, knorm, cumsum, intra", "chunk_delta_wy_o_k", "wy, scan, out"),
]
"""Pipeline under a decay per channel, what stands for its sums and scores, and for its scan and output, in place of
what."""
GATED = ("kda", "kda_gate_norm_prescan", "qnorm, knorm, gate, cumsum, intra", "chunk_delta_wy_o_k", "wy, scan, out")
"""The same with the gate, whose log decays nobody reads."""


def notes(an_op, given):
    return list(an_op.bind(given).forward_plan().notes)


@pytest.mark.parametrize("name", FUSED)
def test_what_is_fused(name):
    """Both with and without gradients; the rebuild and backward phases keep their stages."""
    an_op = load(name, fuse=BOTH)
    given = inputs(an_op, **SIZES)
    call = an_op.bind(given)
    assert notes(an_op, given) == FUSED[name]
    joint = call.joint(call.trainable(), call.wanted)
    assert list(call.forward_plan(joint).notes) == FUSED[name]
    assert {"wy.rebuild", "scan.rebuild", "scan.vjp", "out.vjp", "solve.vjp"} <= joint.nodes.keys()


@pytest.mark.parametrize("name", ["simple_gla", "retention", "lightning", "linear_attn"])
def test_the_scan_without_a_correction(name):
    """With a gate, with slopes, with neither."""
    an_op = load(name, fuse="chunk_h_o")
    assert notes(an_op, inputs(an_op, **SIZES)) == ["out: chunk_h_o in place of scan, out"]


@pytest.mark.parametrize("name,scores,before,scan,after", CHANNELS)
def test_under_a_decay_per_channel(name, scores, before, scan, after):
    """The chunk sums are an output for the backward pass alone: in the forward pass nobody reads them."""
    an_op = load(name, fuse=f"{scores},{scan}")
    given = inputs(an_op, **SIZES)
    call = an_op.bind(given)
    joint = call.joint(call.trainable(), call.wanted)
    both = [f"intra: {scores} in place of {before}", f"out: {scan} in place of {after}"]
    for plan, made in ((call.forward_plan(), False), (call.forward_plan(joint), True)):
        [step] = [step for step in plan.steps if step.node.id == "intra"]
        assert list(plan.notes) == both and (step.outputs["y"] is not None) == made


def test_a_name_that_has_no_place_is_said():
    """Whoever asks for a fusion is told; auto, which asks for none, is not."""
    an_op = load("simple_gla", fuse="chunk_delta_o,chunk_h_o,chunk_delta_grads")
    given = inputs(an_op, **SIZES)
    elsewhere = nowhere("chunk_delta_o", "simple_gla")
    no_gradient = "chunk_delta_grads not used: it stands for gradients, and none are asked for"
    fused = "out: chunk_h_o in place of scan, out"
    assert notes(an_op, given) == [fused, elsewhere, no_gradient]
    call = an_op.bind(given)
    with_gradients = list(call.forward_plan(call.joint(call.trainable(), call.wanted)).notes)
    missing = nowhere("chunk_delta_grads", "simple_gla")
    assert with_gradients[:1] == [fused] and {elsewhere, missing} <= {*with_gradients}
    assert notes(load("simple_gla", fuse="auto"), given) == []


def test_verify_says_what_it_verified():
    """The stage that stood for others, and the name that stood for none."""
    an_op = load("gla", fuse="gla_prescan,kda_prescan")
    fused, none = "intra: gla_prescan in place of cumsum, intra", nowhere("kda_prescan", "gla")
    assert check(an_op, inputs(an_op, **SIZES)).notes == (fused, none)


def test_the_delta_scan_on_what_is_resolved():
    an_op = load("kda", fuse="chunk_delta_o_k")
    assert notes(an_op, inputs(an_op, **SIZES)) == ["out: chunk_delta_o_k in place of scan, out"]


def test_log_decays_that_gradients_read_are_made_apart():
    an_op = load("kda", fuse="kda_gate_norm_prescan,kda_norm_prescan")
    call = an_op.bind(inputs(an_op, **SIZES))
    assert call.forward_plan().notes[0] == f"intra: {GATED[1]} in place of {GATED[2]}"
    with_gradients = call.forward_plan(call.joint(call.trainable(), call.wanted))
    assert with_gradients.notes[0] == f"intra: {CHANNELS[2][1]} in place of {CHANNELS[2][2]}"


@pytest.mark.parametrize("name,scores,before,scan,after", [*CHANNELS[:2], GATED])
def test_auto_on_hopper(monkeypatch, name, scores, before, scan, after):
    """The notes are those of a plan for sm_90, in 16 bits alone, at the sizes of the kernels written for it."""
    monkeypatch.setattr("chunkwise.runner.rewriting.fusion.device_class", lambda device: "sm_90")
    an_op = load(name, fuse="auto")
    taken = {**SIZES, "K": 128, "V": 64}
    both = [f"intra: {scores} in place of {before}", f"out: {scan} in place of {after}"]
    assert notes(an_op, inputs(an_op, torch.bfloat16, **taken)) == both
    why = "K = 24: on sm_90 128; sm_90: no faster than the stages apart"
    assert f"intra: {scores} not in place of {before}: {why}" in notes(an_op, inputs(an_op, torch.bfloat16, **SIZES))
    assert notes(an_op, inputs(an_op, **taken)) == []


def test_fp16_on_hopper(monkeypatch):
    """The scan that resolves a chunk's dependences is refused; the one on what is resolved stays."""
    monkeypatch.setattr("chunkwise.runner.rewriting.fusion.device_class", lambda device: "sm_90")
    given = inputs(load("kda_core"), torch.float16, **{**SIZES, "K": 128, "V": 64})
    assert notes(load("kda_core", fuse="auto"), given) == [
        "intra: kda_prescan in place of cumsum, intra",
        "out: chunk_delta_o_k in place of scan, out",
        "out: chunk_delta_wy_o_k not in place of wy, scan, out: fp16: not verified: alone, on random inputs, its "
        "states pass 65504; sm_90: no faster than the stages apart",
    ]


def backward(an_op, given, **keywords):
    call = an_op.bind(given)
    return call.joint(**{"wanted": call.trainable(), "cotangents": call.wanted, **keywords})


def backward_notes(an_op, given, **keywords):
    return list(an_op.bind(given).backward_plan(backward(an_op, given, **keywords)).notes)


@pytest.mark.parametrize("name", BACKWARDS)
def test_what_is_fused_of_the_backward_pass(name):
    an_op = load(name, fuse=BACKWARD)
    assert backward_notes(an_op, inputs(an_op, **SIZES)) == BACKWARDS[name]


@pytest.mark.parametrize("name", BY_SCANS)
def test_a_backward_pass_by_scans(name):
    """Nothing reads the states any more: they are not rebuilt."""
    an_op = load(name, fuse=SCANS)
    given = inputs(an_op, **SIZES)
    plan = an_op.bind(given).backward_plan(backward(an_op, given))
    assert list(plan.notes) == [BY_SCANS[name]]
    assert "scan.rebuild" not in [step.node.id for step in plan.steps]


def test_only_the_scans_that_are_wanted():
    """An initial state is read though the plain stages read the rebuilt states alone."""
    an_op = load("simple_gla", fuse=SCANS)
    given = inputs(an_op, **SIZES)

    def made(**keywords):
        steps = an_op.bind(given).backward_plan(backward(an_op, given, **keywords)).steps
        return {step.node.id: list(step.node.outputs) for step in steps}

    assert made(wanted=["v"]) == {"out.vjp.grads": ["d_v"]}
    assert made(wanted=["q", "initial_state"]) == {"out.vjp.grads": ["d_q", "d_initial_state"]}
    assert made(wanted=["g"]) == {"out.vjp.grads": ["h", "d_s"], "out.vjp.gate": ["d_g"], "cumsum.vjp": ["d_x"]}
    assert backward_notes(an_op, given, cotangents=["final_state"]) == [nowhere(SCANS, "simple_gla")]


REFERENCES = [
    *((name, fuse) for name in FUSED for fuse in (BOTH, BACKWARD)),
    ("simple_gla", "chunk_h_o"),
    ("retention", "chunk_h_o"),
    *((name, f"{scores},{scan}") for name, scores, _, scan, _ in (CHANNELS[0], CHANNELS[-1])),
    *((name, SCANS) for name in ("simple_gla", "retention", "mamba2")),
]


@pytest.mark.parametrize("name, fuse", REFERENCES)
def test_fused_references_are_the_op(name, fuse):
    an_op = load(name, fuse=fuse)
    check(an_op, inputs(an_op, **SIZES), backward=True)


@pytest.mark.parametrize("fuse", [BOTH, BACKWARD, f"{BOTH},{BACKWARD}"])
def test_gradients_are_those_of_the_plain_stages(fuse):
    plain, fused = load("gated_delta"), load("gated_delta", fuse=fuse)
    given = inputs(plain, torch.float64, seqlens=RAGGED, **{**SIZES, "B": 1, "T": sum(RAGGED) + 3})
    found = []
    for an_op in (plain, fused):
        leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
        out = an_op(**leaves, seqlens=RAGGED)
        (out.o.sum() + (out.final_state**2).sum()).backward()
        found.append([out.o.detach(), out.final_state.detach(), *(x.grad for x in leaves.values())])
    for one, two in zip(*found):
        torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)


def test_a_graph_that_was_asked_about_keeps_its_id():
    """Else another one could be taken for it; here nothing is replaced, and only the refusal is noted."""
    an_op = load("gated_delta", fuse="chunk_delta_o")
    sizes = {**an_op.bind(inputs(an_op, **SIZES)).sizes, "K": 300}
    graph = replace(an_op.whole)
    alive = weakref.ref(graph)
    an_op.fused(graph, sizes, torch.device("cpu"))
    del graph
    gc.collect()
    assert alive() is not None


def test_auto_takes_what_was_timed_faster_on_this_device():
    stages = find_stages()
    assert fusions("auto", stages, torch.device("cpu")) == []
    quick = {name: replace(stage, faster_on=("cpu",)) for name, stage in stages.items() if name == "chunk_delta_o"}
    assert fusions("auto", quick, torch.device("cpu")) == list(quick.values())
    assert fusions("auto", quick, torch.device("cpu"), torch.bfloat16) == list(quick.values())
    assert fusions("auto", quick, torch.device("cpu"), torch.float32) == []


@pytest.mark.parametrize("fuse", ["auto", BACKWARD])
def test_a_dtype_that_a_kernel_refuses(monkeypatch, fuse):
    """Its part of the backward pass stays as it is, and a note says why."""
    monkeypatch.setattr("chunkwise.runner.rewriting.fusion.device_class", lambda device: "sm_90")
    an_op = load("gated_delta", fuse=fuse)
    assert BACKWARDS["gated_delta"][-1] in backward_notes(an_op, inputs(an_op, torch.bfloat16, **SIZES))
    found = backward_notes(an_op, inputs(an_op, torch.float16, **SIZES))
    assert [note for note in found if "chunk_delta_grads" in note] == [
        "out.vjp.grads: chunk_delta_grads not in place of out.vjp, scan.vjp, wy.vjp, solve.vjp, kkt.vjp, d(cumsum.y), "
        "d(k): fp16: d_q was not finite on an H200 (NOTES.md)"
    ]


@pytest.mark.parametrize("name", ["gated_delta", "simple_gla", "mamba2"])
@pytest.mark.parametrize("budget", [None, 20_000, 10**12])
def test_what_is_kept_is_what_the_stages_left_read(name, budget):
    """Whatever the budget keeps in place of rebuilding it: fused, some of that is not made any more."""
    found = []
    for fuse in ("none", f"{BOTH},{BACKWARD},chunk_h_o,{SCANS}"):
        an_op = load(name, fuse=fuse, memory_budget=budget)
        given = inputs(an_op, torch.float64, **SIZES)
        leaves = {each: x.requires_grad_() for each, x in given.items()}
        out = an_op(**leaves)
        found.append([out.o, *torch.autograd.grad(out.o.sum(), list(leaves.values()), allow_unused=True)])
    for plain, fused in zip(*found):
        torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-9)


def test_none_is_the_file_and_names_choose():
    given = inputs(load("gated_delta"), **SIZES)
    plain = load("gated_delta")
    assert notes(plain, given) == [] and same_bits(load("gated_delta", fuse="none")(**given).o, plain(**given).o)
    assert notes(load("gated_delta", fuse="chunk_delta_o"), given) == [SCAN]
    assert notes(load("gated_delta", fuse="chunk_delta_o,delta_prescan"), given) == [PRESCAN, SCAN]


def test_what_a_fused_stage_would_keep_to_itself_is_not_fused(tmp_path):
    """The states are an output of this variant."""
    text = find_pipeline("gated_delta").read_text()
    text = text[: text.index("definition:")] + text[text.index("stages:") :]
    (tmp_path / "p.yaml").write_text(text.replace("outputs: {o: out.o,", "outputs: {h: scan.h, o: out.o,"))
    an_op = load(tmp_path / "p.yaml", fuse=BOTH)
    assert notes(an_op, inputs(an_op, **SIZES)) == [PRESCAN, nowhere("chunk_delta_o", "gated_delta")]


def test_a_backward_pass_that_reads_more_is_not_fused(tmp_path):
    """A gradient comes in for the states of this variant: the reverse scan would not take it."""
    an_op = gated_delta(tmp_path, ("outputs: {o: out.o,", "outputs: {h: scan.h, o: out.o,"))
    given = inputs(an_op, **SIZES)
    assert backward_notes(an_op, given) == [nowhere("chunk_delta_grads", "gated_delta")]
    assert backward_notes(an_op, given, cotangents=["o", "final_state"]) == BACKWARDS["gated_delta"]


def test_a_sum_that_others_add_to_stays(tmp_path):
    """Another stage of this variant reads the keys: of the sum only what the fused stages give is one number."""
    an_op = gated_delta(
        tmp_path, ("outputs: {o: out.o,", "  again: {use: l2norm, in: {x: k}}\noutputs: {y: again.y, o: out.o,")
    )
    given = inputs(an_op, **SIZES)
    assert backward_notes(an_op, given) == [STATES, f"{VJPS}d(cumsum.y)"]
    total = backward(an_op, given).nodes["d(k)"]
    assert list(total.inputs.values()) == ["again.vjp.d_x", "out.vjp.grads.d_k"]
    assert total.stage.doc == "Sum of the 2 contributions to the gradient of k."
    check(an_op, given, backward=True)


def gated_delta(tmp_path, *changes):
    text = find_pipeline("gated_delta").read_text()
    text = text[: text.index("definition:")] + text[text.index("stages:") :]
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "p.yaml").write_text(text)
    return load(tmp_path / "p.yaml", fuse=BACKWARD)


def test_only_what_is_wanted_is_made():
    """Nothing is fused where no gradient comes in at o, or where the plain stages keep too little: no inverse here."""
    an_op = load("gated_delta", fuse=BACKWARD)
    given = inputs(an_op, **SIZES)
    made = [step.node.outputs for step in an_op.bind(given).backward_plan(backward(an_op, given, wanted=["v"])).steps]
    assert made[1:] == [{"d_x": "out.vjp.reverse.d_x", "d_s": "out.vjp.reverse.d_s"}, {"d_v": "wy.vjp.d_v"}]
    none = [nowhere("chunk_delta_grads", "gated_delta")]
    assert [line for line in backward_notes(an_op, given, cotangents=["final_state"]) if line != STATES] == none
    assert [line for line in backward_notes(an_op, given, wanted=["initial_state"]) if line != STATES] == none


def test_sizes_that_a_fused_kernel_refuses():
    an_op = load("gated_delta", fuse=BOTH)
    sizes = an_op.bind(inputs(an_op, **SIZES)).sizes
    refused = an_op.fused(an_op.whole, {**sizes, "K": 300}, torch.device("cpu"))
    assert refused.notes == ("out: chunk_delta_o not in place of wy, scan, out: K = 300: at most 256",)
    refused = an_op.fused(an_op.whole, {**sizes, "T": 1 << 15, "NT": 1 << 9}, torch.device("cpu"))
    why = "T = 32768 and HV = 2: chunk_delta_h alone is faster, in 32 pieces"
    assert refused.notes == (f"out: chunk_delta_o not in place of wy, scan, out: {why}",)


@pytest.mark.parametrize(
    "T, HV, V, taken",
    [(8192, 1, 64, True), (8193, 32, 128, True), (8193, 31, 128, False), (1 << 15, 63, 64, False)],
)
def test_scans_of_few_heads_over_long_sequences_stay_apart(T, HV, V, taken):
    why = f"T = {T}, HV = {HV} and V = {V}: with so few heads scan and output are faster apart"
    for name, place in (("chunk_h_o_k", 1), ("chunk_delta_o_k", 0), ("chunk_delta_wy_o_k", 0)):
        launcher = find_stages()[name].launchers[place]
        found = {launcher.when(dict(B=B, T=T, HV=HV, K=128, V=V, C=64), "sm_90") for B in (1, 8)}
        assert found == {None if taken else why}


@pytest.mark.parametrize(
    "axes, why",
    [
        (dict(K=128, V=256, C=64), None),
        (dict(K=64, V=64, C=64), None),
        (dict(K=128, V=128, C=32), "C = 32: on sm_90 64"),
        (dict(K=256, V=128, C=64), "K = 256: on sm_90 64 or 128"),
        (dict(K=128, V=96, C=64), "V = 96: on sm_90 a multiple of 64"),
    ],
)
def test_sizes_of_the_kernel_for_hopper(axes, why):
    [launcher] = find_stages()["chunk_h_o"].launchers
    assert launcher.when(axes, "sm_90") == why and launcher.when(axes, "sm_80") is None


@pytest.mark.parametrize(
    "axes, why",
    [
        (dict(K=64, V=192, C=64), None),
        (dict(K=128, V=128, C=32), "C = 32: on sm_90 64"),
        (dict(K=96, V=128, C=64), "K = 96: on sm_90 64 or 128"),
        (dict(K=128, V=96, C=64), "V = 96: on sm_90 a multiple of 64"),
    ],
)
def test_sizes_of_the_scan_for_hopper_under_a_decay_per_channel(axes, why):
    """Where there is none, the scan for all devices comes next, but that of chunk_delta_wy_o_k only elsewhere."""
    plain, resolved = (find_stages()[name].launchers for name in ("chunk_h_o_k", "chunk_delta_wy_o_k"))
    sizes = dict(B=1, T=128, HV=2) | axes
    assert plain[0].when(sizes, "sm_90") == resolved[0].when(sizes, "sm_90") == why
    assert plain[1].when(sizes, "sm_90") is None
    assert resolved[1].when(sizes, "sm_90") == "sm_90: no faster than the stages apart"
    assert plain[0].when(sizes, "sm_80") == resolved[0].when(sizes, "sm_80") == "sm_80: it is written for sm_90"
    assert plain[1].when(sizes, "sm_80") is resolved[1].when(sizes, "sm_80") is None


@pytest.mark.parametrize("HV, V, first", [(66, 128, 64), (67, 128, 128), (200, 64, 64)])
def test_columns_of_the_resolving_scan_for_hopper(HV, V, first):
    """They follow from one sequence's programs, whatever the batch."""
    launcher = find_stages()["chunk_delta_wy_o_k"].launchers[0]
    for B in (1, 100):
        assert launcher.configs(dict(B=B, HV=HV, K=128, V=V, C=64), "sm_90")[0]["BV"] == first


@pytest.mark.parametrize("HV, V", [(16, 128), (66, 128), (67, 128), (96, 64)])
def test_which_kernel_for_hopper(HV, V):
    """The same whatever the batch: a sequence keeps its bits."""
    [launcher] = find_stages()["chunk_h_o"].launchers
    for B in (1, 3, 100):
        axes = dict(B=B, N=B, T=4096, HV=HV, K=128, V=V, C=64)
        assert launcher.configs(axes, "sm_90")[0].items() >= {"groups": 3, "BV": 64}.items()


@pytest.mark.parametrize(
    "axes, why",
    [
        (dict(K=128, V=128, C=64), None),
        (dict(K=128, V=128, C=32), "C = 32: on sm_90 64"),
        (dict(K=64, V=128, C=64), "K = 64: on sm_90 128"),
        (dict(K=128, V=256, C=64), "V = 256: on sm_90 128"),
    ],
)
def test_sizes_of_the_scans_for_hopper(axes, why):
    for launcher, heads in zip(find_stages()[SCANS].launchers, (dict(H=2, HV=2), dict(H=1, HV=2)), strict=True):
        assert launcher.when(axes | heads, "sm_90") == why and launcher.when(axes | heads, "sm_80") is None


@pytest.mark.parametrize("io, grids", [(torch.bfloat16, [(6,)]), (torch.float32, [(8,), (8,), (8,)])])
def test_scans_for_hopper_are_one_launch(io, grids):
    """In 16 bits: three scans of two slices each; else a launch by scan."""
    stage, axes = find_stages()[SCANS], dict(B=1, T=64, H=1, HV=1, K=128, V=128, C=64)
    [config] = stage.launchers[0].configs(axes, "sm_90")
    launches = meta_launches(stage.contract, stage.launchers[0], False, axes, io, "plain", config)
    assert [each.grid for each in launches] == grids


@pytest.mark.parametrize(
    "io, K, V, C, H, kernels",
    [
        (torch.bfloat16, 64, 128, 64, 4, ["chunk_delta_grads_sm90_kernel"]),
        (torch.bfloat16, 128, 64, 64, 2, ["chunk_delta_grads_sm90_kernel"]),
        (torch.bfloat16, 128, 64, 64, 1, ["chunk_delta_grads_sm90_kernel", "group_sums_kernel", "group_sums_kernel"]),
        (torch.bfloat16, 128, 256, 64, 4, ["chunk_delta_grads_kernel"]),
        (torch.bfloat16, 128, 128, 32, 4, ["chunk_delta_grads_kernel"]),
        (torch.bfloat16, 128, 128, 32, 1, ["chunk_delta_grads_kernel", "group_sums_kernel", "group_sums_kernel"]),
        (torch.float32, 128, 128, 64, 1, ["chunk_delta_grads_kernel", "group_sums_kernel", "group_sums_kernel"]),
    ],
)
def test_which_gradients_inside_chunks_on_hopper(io, K, V, C, H, kernels):
    """The kernel for Hopper holds a chunk's values whole, in 16 bits; value heads that share keys add up in turns."""
    stage, axes = find_stages()["chunk_delta_grads"], dict(B=1, T=64, H=H, HV=4, K=K, V=V, C=C)
    launcher, refused = offers(SimpleNamespace(id="grads", stage=stage), axes, "sm_90", io)[-1]
    assert refused is None
    config = launcher.configs(axes, "sm_90")[0]
    launches = meta_launches(stage.contract, launcher, False, axes, io, "plain", config)
    assert [each.kernel.__name__ for each in launches] == kernels


@pytest.mark.parametrize("B, T, grid", [(1, 0, 0), (1, 64, 2), (2, 6400, 2 * 200), (3, 6400, 2 * 512)])
def test_value_heads_in_turns(B, T, grid):
    """A program for each of two value heads; chunks and key heads fill bands of 256, but for fewer."""
    stage, axes = find_stages()["chunk_delta_grads"], dict(B=B, T=T, H=1, HV=2, K=128, V=128, C=64)
    launcher = next(each for each in stage.launchers if each.name == "turns")
    [config] = launcher.configs(axes, "sm_90")
    [launch] = meta_launches(stage.contract, launcher, False, axes, torch.bfloat16, "plain", config)
    assert launch.grid == (grid,)


def test_sizes_that_fused_gradients_refuse():
    an_op = load("gated_delta", fuse=BACKWARD)
    call = an_op.bind(inputs(an_op, **SIZES))
    joint = an_op.trainable_graph(absent=call.graph.absent)
    refused = an_op.fused(joint, {**call.sizes, "K": 300}, torch.device("cpu"))
    vjps = BACKWARDS["gated_delta"][1].removeprefix(GRADIENT)
    assert refused.notes == (
        f"out.vjp.reverse: chunk_delta_reverse not in place of {vjps}: K = 300: at most 256",
        "scan: chunk_delta_states not in place of wy, scan: K = 300: at most 256",
    )
    assert {"out.vjp", "kkt.vjp", "wy.rebuild"} <= refused.nodes.keys()
    long = an_op.fused(joint, {**call.sizes, "T": 65536}, torch.device("cpu"))
    why = "T = 65536 and HV = 2: the plain scan goes in 64 pieces"
    assert long.notes[0] == f"out.vjp.reverse: chunk_delta_reverse not in place of {vjps}: {why}"


def test_a_pickled_op_keeps_its_fusions():
    an_op = pickle.loads(pickle.dumps(load("gated_delta", fuse=BACKWARD)))
    assert backward_notes(an_op, inputs(an_op, **SIZES)) == BACKWARDS["gated_delta"]


@pytest.mark.parametrize(
    "name, message",
    [
        ("chunk_delta_p", "error[CW601]: there is no fusion chunk_delta_p\nhelp: did you mean chunk_delta_o?"),
        (",chunk_delta_o", "error[CW601]: one of the fusions in ',chunk_delta_o' has no name\nhelp: fusions are "),
        ("chunk_o", "error[CW601]: chunk_o stands for no other stages\nhelp: fusions are none, auto, "),
    ],
)
def test_an_unknown_fusion(capsys, name, message):
    assert main(["run", "gated_delta", "--fuse", name]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_fusion_of_the_chunked_form_where_a_call_goes_token_by_token():
    an_op = load("gated_delta", fuse="chunk_delta_o")
    assert an_op.bind(inputs(an_op, **{**SIZES, "T": 5})).forward_plan().notes == (
        "out: fused_recurrent_delta in place of cumsum, kkt, solve, wy, scan, out",
        "chunk_delta_o not used: fused_recurrent_delta goes token by token here; mode chunk runs other stages",
    )


def test_run_says_what_is_fused(capsys, tmp_path):
    assert main(["run", "gated_delta", "--fuse", BOTH, "--axes", "T=70", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert PRESCAN in text and SCAN in text
    cells = [[cell.strip() for cell in line.split("│")[1:3]] for line in text.splitlines() if "reference" in line]
    assert ["solve", "delta_prescan"] in cells and ["out", "chunk_delta_o"] in cells
    assert (tmp_path / "gated_delta" / "graph.svg").exists()
