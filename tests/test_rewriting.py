"""Patterns: both sides of each rewrite are one function, and a match that would change meaning is none."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.one_stage import ATTENTION, BY_TOKEN, PARAM, stage_inputs, stage_op
from support.ops import op

from chunkwise.runner import load
from chunkwise.runner.calling.function import Op
from chunkwise.runner.rewriting.apply import with_gradients_replaced, with_replaced
from chunkwise.runner.rewriting.gradient_pattern import absences, gradient_of
from chunkwise.runner.rewriting.pattern import pattern_graphs, pattern_spec
from chunkwise.runner.rewriting.recurrent import recurrent_graph
from chunkwise.runner.stage_files.stage_library import find_stages

STAGES = find_stages()
GRADIENTS = [name for name, stage in STAGES.items() if stage.gradient_of]
PATTERNS = [name for name, stage in STAGES.items() if stage.pattern]
PIPELINES = Path(__file__).parents[1] / "pipelines"


TURN = '''"""The end of one sequence as the start of another."""
from chunkwise.stages._contract import F32, Contract, Port

CONTRACT = Contract(
    inputs={"end": Port("N HV K V", F32, unit="state/sequence_end")},
    outputs={"state": Port("N HV K V", F32, unit="state/sequence_start")},
)


def reference(end):
    return {"state": end}
'''


def variant(tmp_path, name, *changes):
    text = (PIPELINES / f"{name}.yaml").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "p.yaml").write_text(text)
    return load(tmp_path / "p.yaml")


@pytest.mark.parametrize(
    "name,seqlens",
    [(name, seqlens) for name in PATTERNS for seqlens in [None, (33, 0, 1, 36)] if not seqlens or name in BY_TOKEN],
)
def test_both_sides_are_one_function(name, seqlens, tmp_path):
    """The pattern as a pipeline against the stage that stands for it: values, and the gradients of all inputs, in
    float64 by the references, with every optional input there and with ever more of them absent."""
    stage, sizes = STAGES[name], dict(B=2 if seqlens is None else 1, T=70, H=2, HV=4, K=5, V=3, D=4) | ATTENTION
    for graph in pattern_graphs(stage, STAGES):
        one = stage_op(tmp_path, name, graph.absent)
        given = stage_inputs(one, torch.float64, seqlens=seqlens, **sizes)
        left = Op(settled(stage, graph.absent), STAGES, "reference", mode="chunk")
        unbound = {each: PARAM for each, default in stage.contract.params.items() if default is None}
        able = [port for port, x in given.items() if x.is_floating_point() and left.has_gradient(port, graph.absent)]
        both = [
            results(each, given, seqlens, numbers, able)
            for each, numbers in ((one, unbound), (left, stage.contract.params | unbound))
        ]
        for right, found in zip(*both):
            torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)


def settled(stage, absent):
    """The pattern for these absent inputs; those that a unit depends on are there or not, and no longer optional."""
    spec, deciding = pattern_spec(stage, absent), {port for port, _, _ in stage.contract.presence.values()}
    inputs = {
        name: replace(each, optional=each.optional and name not in deciding)
        for name, each in spec.inputs.items()
        if name not in deciding & absent
    }
    stages = {
        id: replace(each, edges=tuple(edge for edge in each.edges if edge.source not in deciding & absent))
        for id, each in spec.stages.items()
    }
    return replace(spec, inputs=inputs, stages=stages)


def results(an_op, given, seqlens, numbers, able):
    """Outputs, then the gradients of the inputs that are able to have one, by name."""
    leaves = {name: x.clone().requires_grad_(name in able) for name, x in given.items()}
    out = {name: x for name, x in an_op(**leaves, **numbers, seqlens=seqlens)._asdict().items() if x is not None}
    generator = torch.Generator().manual_seed(1)
    d = {name: torch.randn(x.shape, generator=generator, dtype=x.dtype) for name, x in sorted(out.items())}
    ends = [out[name] for name in d if out[name].requires_grad]
    come_in = [d[name] for name in d if out[name].requires_grad]
    grads = torch.autograd.grad(ends, [leaves[name] for name in able], come_in, allow_unused=True)
    return {name: x.detach() for name, x in out.items()}, dict(zip(able, grads))


def asked(able, outputs):
    """Inputs whose gradients are wanted, and outputs that gradients flow into: all, one of each, none of the others."""
    yield able, outputs
    yield from (([name], outputs) for name in able)
    yield from ((able, [name]) for name in outputs)


@pytest.mark.parametrize("seqlens", [None, (33, 0, 1, 36)])
@pytest.mark.parametrize("name", GRADIENTS)
def test_both_sides_are_one_gradient(name, seqlens):
    """The pattern's backward pass against the stages that stand for it, in float64 by the references: gradients by
    every input and of every output, alone and together, with ever more of the optional inputs absent; and what is
    between them and the rest of a graph keeps its type."""
    stage, sizes = STAGES[name], dict(B=2 if seqlens is None else 1, T=70, H=2, HV=4, K=5, V=3)
    plain = Op(gradient_of(stage), STAGES, "reference", mode="chunk")
    fused = Op(gradient_of(stage), STAGES, "reference", mode="chunk", fuse=name)
    given = stage_inputs(plain, torch.float64, seqlens=seqlens, **sizes)
    d = {each: torch.randn_like(x) for each, x in plain(**given, seqlens=seqlens)._asdict().items()}
    for absent in absences(stage):
        there = {each: x for each, x in given.items() if each not in absent}
        able = [each for each in there if plain.has_gradient(each, absent)]
        for wanted, cotangents in asked(able, list(d)):
            left, right = (
                gradients(each, there, seqlens, wanted, {name: d[name] for name in cotangents})
                for each in (plain, fused)
            )
            torch.testing.assert_close(right, left, rtol=1e-10, atol=1e-10)
        graphs = [each.joint_graph(absent, frozenset(able), frozenset(d)) for each in (plain, fused)]
        after = with_gradients_replaced(graphs[1], [stage], STAGES)
        assert any(node.replaces for node in after.nodes.values()), absent
        for value in graphs[0].values.keys() & after.values.keys():
            one, other = graphs[0].values[value], after.values[value]
            assert (one.axes, one.dtype, one.unit) == (other.axes, other.dtype, other.unit), value


def gradients(an_op, given, seqlens, wanted, cotangents):
    leaves = {name: x.clone().requires_grad_(name in wanted) for name, x in given.items()}
    out = an_op(**leaves, seqlens=seqlens, outputs=list(cotangents))
    ends = [(getattr(out, name), x) for name, x in cotangents.items() if getattr(out, name).requires_grad]
    if not ends:
        return {}
    grads = torch.autograd.grad([x for x, _ in ends], [leaves[name] for name in wanted], [x for _, x in ends],
                                allow_unused=True)  # fmt: skip
    return dict(zip(wanted, grads))


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_fits_itself(name):
    stage = STAGES[name]
    for graph in pattern_graphs(stage, STAGES):
        found = with_replaced(graph, [stage], STAGES)
        assert [node.stage.name for node in found.nodes.values()][-1] == name
        assert set(found.outputs.values()) <= set(found.values)


def without_definition(tmp_path, name, *changes):
    text = (PIPELINES / f"{name}.yaml").read_text()
    text = text[: text.index("definition:")] + text[text.index("stages:") :]
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "p.yaml").write_text(text)
    return load(tmp_path / "p.yaml", stages=[tmp_path])


def test_a_value_that_someone_else_reads_keeps_its_maker(tmp_path):
    """h is an output of this variant, and one kernel would not make it."""
    an_op = without_definition(tmp_path, "simple_gla", ("outputs: {o:", "outputs: {h: scan.h, o:"))
    assert recurrent_graph(an_op.whole, an_op.stages) is None


def test_other_edges_are_no_match(tmp_path):
    """The keys of scan and out differ: no longer the recurrence."""
    an_op = variant(
        tmp_path,
        "simple_gla",
        ("out:    {use: chunk_o,            in: {q: q, k: k,", "out:    {use: chunk_o,            in: {q: k, k: q,"),
    )
    found = recurrent_graph(an_op.whole, an_op.stages)
    assert found is None


def test_a_number_in_the_pattern_must_be_that_number(tmp_path):
    an_op = variant(tmp_path, "mamba2", ("with: {scale: 1}", "with: {scale: 2}"))
    names = [node.stage.name for node in recurrent_graph(an_op.whole, an_op.stages).nodes.values()]
    assert "fused_recurrent_mamba2" not in names and "fused_recurrent" in names


def test_a_way_out_and_in_again_is_no_match(tmp_path):
    """The values of out come from a second scan that starts at the first one's end: one node in place of scan and out
    would wait for itself."""
    (tmp_path / "turn.py").write_text(TURN)
    an_op = without_definition(
        tmp_path, "simple_gla",
        ("  out: ", "  again: {use: chunk_h, in: {k: k, v: v, initial_state: turn.state}}\n"
         "  turn: {use: turn, in: {end: scan.final_state}}\n  read: {use: chunk_o, in: {q: q, k: k, v: v, h: again.h}, "
         "with: {scale: 1}}\n  out: "),
        ("in: {q: q, k: k, v: v, h: scan.h, g: cumsum.y}", "in: {q: q, k: k, v: read.o, h: scan.h, g: cumsum.y}"),
    )  # fmt: skip
    uses = {node.id: node.stage.name for node in recurrent_graph(an_op.whole, an_op.stages).nodes.values()}
    assert uses["scan"] == "chunk_h" and uses["out"] == "chunk_o"
    assert uses["read"] == "fused_recurrent" and "again" not in uses


def test_node_order_and_names_survive():
    an_op = op("qwen3_next_gdn", mode="recurrent")
    found = an_op.recurrent(frozenset())
    seen = set()
    for node in found.nodes.values():
        assert all(found.values[name].producer in (None, *seen) for name in node.inputs.values() if name)
        seen.add(node.id)
    assert found.outputs == an_op.whole.outputs and "out" in found.nodes


def test_a_pickled_op_keeps_its_mode():
    copy = pickle.loads(pickle.dumps(load("gated_delta", mode="recurrent")))
    assert copy.mode == "recurrent" and copy.recurrent(frozenset()) is not None
