"""Patterns: both sides of each rewrite are one function, and a match that would change meaning is none."""

import pickle
from pathlib import Path

import pytest
import torch
from support.ops import op

from chunkwise.runner import load
from chunkwise.runner.calling.function import Op
from chunkwise.runner.rewriting.pattern import pattern_graphs, pattern_spec
from chunkwise.runner.rewriting.recurrent import recurrent_graph
from chunkwise.runner.stage_files.stage_library import find_stages

STAGES = find_stages()
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


@pytest.mark.parametrize("name", PATTERNS)
def test_both_sides_are_one_function(name):
    """The pattern as a pipeline, in float64 by its references, against the stage that stands for it."""
    stage, spec = STAGES[name], pattern_spec(STAGES[name])
    torch.manual_seed(0)
    sizes = dict(B=2, T=70, H=2, HV=4, K=5, V=3, N=2)
    given = {}
    for port, declared in stage.contract.inputs.items():
        x = torch.randn([sizes[axis] for axis in declared.axes], dtype=torch.float64)
        given[port] = -x.abs() if declared.where == "<= 0" else x / 3
    for graph in pattern_graphs(stage, STAGES):
        present = {port: None if port in graph.absent else x for port, x in given.items()}
        params = {each: 0.5 for each in stage.contract.params}
        left = Op(spec, STAGES, "reference", mode="chunk")(**present, **params)
        right = stage.reference(**present, **params)
        for output, x in left._asdict().items():
            torch.testing.assert_close(x, right[output], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_fits_itself(name):
    stage = STAGES[name]
    for graph in pattern_graphs(stage, STAGES):
        found = recurrent_graph(graph, STAGES)
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
