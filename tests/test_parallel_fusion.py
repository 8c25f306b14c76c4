"""What one rank of a cut sequence runs: stages fused before the cut, and what stands around them fits."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from test_parallel import REACHES, assert_edges_fit

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.parallel.exchange_stage import ranks_on_paper
from chunkwise.runner.parallel.split_graph import against_cut, sizes_of, split_graph
from chunkwise.runner.parallel.split_op import SplitOp
from chunkwise.runner.planning.plan import absent_gpu
from chunkwise.runner.rewriting.fusion import fused_graph
from chunkwise.runner.workloads import other_axes

SIZES = dict(B=1, T=8192, H=64, HV=64, K=128, V=128)
DELTA = {
    "scan.segment": "chunk_delta_states_segment", "out": "chunk_delta_o", "scan.rebuild": "chunk_delta_states",
    "scan.vjp.segment": "chunk_delta_reverse_segment", "out.vjp.reverse": "chunk_delta_reverse",
    "out.vjp.grads": "chunk_delta_grads",
}  # fmt: skip
SIMPLE = {
    "scan.segment": "chunk_h_segment", "out": "chunk_h_o", "scan.vjp.segment": "chunk_h_reverse_segment",
    "out.vjp.grads": "chunk_h_o_grads", "out.vjp.gate": "chunk_gate_grads",
}  # fmt: skip
AUTO = {
    "gated_delta": {"solve": "delta_prescan", **DELTA},
    "delta_rule": DELTA,
    "simple_gla": SIMPLE,
    "mamba2": {id.replace("out", "read"): name for id, name in SIMPLE.items()},
    "gla": {
        "scan.segment": "chunk_h_k_segment", "out": "chunk_h_o_k", "out.vjp": "chunk_o_k.vjp",
        "scan.vjp.segment": "chunk_h_k.vjp", "scan.vjp": "chunk_h_k.vjp",
    },
    "kda": {
        "scan.segment": "chunk_delta_h_k_segment", "out": "chunk_delta_o_k", "out.vjp": "chunk_o_k.vjp",
        "scan.vjp.segment": "chunk_delta_h_k.vjp", "scan.vjp": "chunk_delta_h_k.vjp",
    },
}  # fmt: skip
"""What auto runs on sm_90 for scan, output and the gradients of both, by node."""
AROUND = {
    "states": ("scan.gather", "scan.enter", "scan.vjp.gather", "scan.vjp.enter"),
    "next": ("scan.pass", "scan.enter", "scan.vjp.pass", "scan.vjp.enter"),
}
AROUND["maps"] = AROUND["states"]


def planned(op, ranks, reach, backward=True, **sizes):
    """The graph of one rank on an H200, in 16 bits."""
    view, sizes = SplitOp(op, ranks_on_paper(ranks), reach), {**SIZES, **sizes}
    sizes = complete(op.whole, sizes | other_axes(sizes))
    whole = frozenset(op.whole.inputs) - {"initial_state"}
    graph = view.joint_graph(frozenset(), whole, frozenset(op.whole.outputs)) if backward else view.graph(frozenset())
    with absent_gpu("sm_90"):
        return view.fused(graph, sizes | sizes_of(graph, reach, ranks, 1, 0), torch.device("cuda"), torch.bfloat16)


@pytest.mark.parametrize("ranks,reach", REACHES)
@pytest.mark.parametrize("name", AUTO)
def test_what_auto_runs(name, ranks, reach):
    """The scan, its rebuild and its gradient start from what comes in; every edge fits."""
    graph = planned(load(name), ranks, reach)
    found = {id: node.stage.name for id, node in graph.nodes.items()}
    assert {id: found.get(id) for id in AUTO[name]} == AUTO[name] and {*AROUND[reach]} <= {*found}
    assert not {"scan", *(["out.vjp", "scan.vjp"] if "out.vjp.grads" in AUTO[name] else [])} & {*found}
    assert_edges_fit(graph, graph.nodes)
    starts = {id: node.inputs["initial_state"] for id, node in graph.nodes.items() if "initial_state" in node.inputs}
    own = {"scan.segment", "scan.enter"}
    assert {starts.pop(id) for id in own} == {"initial_state"} and {*starts.values()} == {"scan.enter.start"}
    ends = {id: node.inputs["d_final_state"] for id, node in graph.nodes.items() if "d_final_state" in node.inputs}
    assert {ends.pop(id) for id in ("scan.vjp.segment", "scan.vjp.enter")} == {graph.cotangents["final_state"]}
    assert {*ends.values()} == {"scan.vjp.enter.end"}
    assert bool(graph.nodes["scan.segment"].outputs.keys() & {"map", "decay"}) == (reach == "maps")


def test_sizes_that_stay_apart():
    """They are cut all the same, and the note says why they are not fused."""
    graph = planned(load("gated_delta"), 3, "maps", False, K=256, T=1 << 15, H=2, HV=2)
    why = "T = 32768 and HV = 2: chunk_delta_h alone is faster, in 32 pieces"
    assert graph.notes[0] == f"out: chunk_delta_o not in place of wy, scan, out: {why}"
    assert graph.nodes["scan.segment"].stage.name == "chunk_delta_h_segment" and "solve" in graph.nodes


def test_a_stage_whose_state_does_not_cross():
    op = load("simple_gla")
    stages = {**op.stages, "chunk_h_o": replace(op.stages["chunk_h_o"], segment=None)}
    graph = planned(type(op)(op.spec, stages), 2, "states", False)
    why = "it does not say how its state crosses a cut"
    assert graph.notes == (f"out: chunk_h_o not in place of scan, out: {why}",)
    assert graph.nodes["scan"].inputs["initial_state"] == "scan.enter.start"
    flash = load("flash").whole
    attend = flash.nodes["attend"]
    alone = replace(attend, stage=replace(attend.stage, gathered=None))
    assert against_cut(flash, attend) is None
    assert against_cut(flash, alone) == "it does not say that it needs the rows of all ranks"


TWICE = """schema: pipeline/v1
name: twice
axes: {C: 64}
inputs: {q: B T H K, k: B T H K, v: B T HV V}
stages:
  one: {use: chunk_h, in: {k: k, v: v}}
  two: {use: chunk_h, in: {k: q, v: v}}
  o1:  {use: chunk_o, in: {q: q, k: k, v: v, h: one.h}, with: {scale: 1}}
  o2:  {use: chunk_o, in: {q: k, k: q, v: v, h: two.h}, with: {scale: 1}}
outputs: {o1: o1.o, o2: o2.o}
"""


def test_ranks_that_fuse_other_stages_exchange_in_the_same_order(tmp_path):
    (tmp_path / "twice.yaml").write_text(TWICE)
    op = load(tmp_path / "twice.yaml")
    whole, device = op.trainable_graph(), torch.device("cpu")
    orders, forms = set(), set()
    for fused in ((), ("o1",), ("o1", "o2")):
        against = partial(lambda fused, node: None if node.id.startswith(fused) else "not here", fused)
        allowed = [op.stages["chunk_h_o"], op.stages["chunk_h_o_grads"]]
        graph = fused_graph(whole, allowed, op.stages, complete(op.whole, SIZES), device, None, against)
        graph = split_graph(graph, op.stages, ranks_on_paper(3), "maps")
        forms.add(tuple(graph.nodes))
        orders.add(tuple(id for id, node in graph.nodes.items() if node.stage.transport))
    assert len(forms) == 3 and orders == {("one.gather", "two.gather", "two.vjp.gather", "one.vjp.gather")}
