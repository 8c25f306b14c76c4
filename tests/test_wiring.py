"""Names, open ports, cycles and unused parts: every error by its exact text."""
# ruff: noqa: E501

import pytest

from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.graphs.build_graph import build_graph, check_graphs
from chunkwise.runner.loading.load_spec import parse_spec
from chunkwise.runner.stage_files.stage_library import find_stages

OP = """\
schema: pipeline/v1
name: op
axes: {C: 64}
inputs:
  q:    B T H K
  k:    B T H K
  v:    B T HV V
  g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  beta: B T HV
  S0:   {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
params: {scale: K ** -0.5}
stages:
  c:     {use: chunk_local_cumsum,   in: {x: g}}
  kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: c.y}}
  solve: {use: solve_tril,           in: {A: kkt.A}}
  wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}}
  scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
  out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""
STAGES = find_stages()


def changed(*changes, text=OP):
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def refused(*changes, text=OP):
    """The errors, as a user sees them, of the text with changes (old, new)."""
    with pytest.raises(ChunkwiseError) as caught:
        check_graphs(parse_spec(changed(*changes, text=text), "op.yaml"), STAGES)
    return str(caught.value)


def test_the_unchanged_text_is_right():
    check_graphs(parse_spec(OP, "op.yaml"), STAGES)


def test_unknown_stage():
    text = refused(
        ("use: solve_tril,", "use: solve_trill,"),
    )
    assert (
        text
        == """\
error[CW221]: there is no stage solve_trill
  --> op.yaml:15:16
   |
15 |   solve: {use: solve_trill,           in: {A: kkt.A}}
   |                ^^^^^^^^^^^
help: did you mean solve_tril?"""
    )


def test_unknown_stage_with_no_near_name():
    text = refused(
        ("use: solve_tril,", "use: fft,"),
    )
    assert (
        text
        == """\
error[CW221]: there is no stage fft
  --> op.yaml:15:16
   |
15 |   solve: {use: fft,           in: {A: kkt.A}}
   |                ^^^
help: `chunkwise list` names every stage; --stages DIR adds your own"""
    )


def test_unknown_port():
    text = refused(
        ("in: {A: kkt.A}", "in: {AA: kkt.A}"),
    )
    assert (
        text
        == """\
error[CW222]: solve_tril has no input AA
  --> op.yaml:15:43
   |
15 |   solve: {use: solve_tril,           in: {AA: kkt.A}}
   |                                           ^^
help: did you mean A?"""
    )


def test_unknown_port_with_no_near_name():
    text = refused(
        ("in: {A: kkt.A}", "in: {A: kkt.A, weights: q}"),
    )
    assert (
        text
        == """\
error[CW222]: solve_tril has no input weights
  --> op.yaml:15:53
   |
15 |   solve: {use: solve_tril,           in: {A: kkt.A, weights: q}}
   |                                                     ^^^^^^^
help: its inputs are A"""
    )


def test_unknown_output_port():
    text = refused(
        ("in: {A: kkt.A}", "in: {A: kkt.Gram}"),
    )
    assert (
        text
        == """\
error[CW222]: kkt (chunk_scaled_dot_kkt) has no output Gram
  --> op.yaml:15:46
   |
15 |   solve: {use: solve_tril,           in: {A: kkt.Gram}}
   |                                              ^^^^^^^^
help: its outputs are A"""
    )


def test_unknown_source():
    text = refused(
        ("in: {A: kkt.A}", "in: {A: kk.A}"),
    )
    assert (
        text
        == """\
error[CW223]: there is no stage entry kk
  --> op.yaml:15:46
   |
15 |   solve: {use: solve_tril,           in: {A: kk.A}}
   |                                              ^^^^
help: did you mean kkt?"""
    )


def test_a_stage_where_an_edge_belongs():
    text = refused(
        ("{o: out.o,", "{o: scan,"),
    )
    assert (
        text
        == """\
error[CW223]: there is no input scan
  --> op.yaml:19:14
   |
19 | outputs: {o: scan, final_state: scan.final_state}
   |              ^^^^
help: scan is a stage: write scan.h or scan.v_new or scan.final_state"""
    )


def test_unknown_input_as_source():
    text = refused(
        ("beta: beta, g: c.y", "beta: bta, g: c.y"),
    )
    assert (
        text
        == """\
error[CW223]: there is no input bta
  --> op.yaml:14:55
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: bta, g: c.y}}
   |                                                       ^^^
help: did you mean beta?"""
    )


def test_missing_input_names_what_would_fit():
    text = refused(
        ("h: scan.h, ", ""),
    )
    assert (
        text
        == """\
error[CW224]: out does not bind h, which chunk_o requires
  --> op.yaml:18:3
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, g: c.y}, with: {scale: scale}}
   |   ^^^
help: add h: scan.h to in; it takes [B NT HV K V] state/chunk_entry"""
    )


def test_missing_inputs_without_a_unit():
    text = refused(
        ("beta: beta, g: c.y}}", "g: c.y}}"),
    )
    assert (
        text
        == """\
error[CW224]: kkt does not bind beta, which chunk_scaled_dot_kkt requires
  --> op.yaml:14:3
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, g: c.y}}
   |   ^^^
help: add beta: SOURCE to in; it takes [B T HV]"""
    )


def test_unknown_parameter():
    text = refused(
        ("with: {scale: scale}", "with: {scal: scale}"),
    )
    assert (
        text
        == """\
error[CW227]: chunk_o has no parameter scal
  --> op.yaml:18:84
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scal: scale}}
   |                                                                                    ^^^^
help: did you mean scale?"""
    )


def test_parameter_not_bound():
    text = refused(
        (", with: {scale: scale}", ""),
    )
    assert (
        text
        == """\
error[CW228]: out does not bind the parameter scale of chunk_o
  --> op.yaml:18:3
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}}
   |   ^^^
help: add with: {scale: ...}"""
    )


def test_parameter_of_a_stage_that_takes_none():
    text = refused(
        ("use: solve_tril,           in: {A: kkt.A}", "use: solve_tril, in: {A: kkt.A}, with: {eps: 1e-6}"),
    )
    assert (
        text
        == """\
error[CW227]: solve_tril has no parameter eps
  --> op.yaml:15:51
   |
15 |   solve: {use: solve_tril, in: {A: kkt.A}, with: {eps: 1e-6}}
   |                                                   ^^^
help: it takes none"""
    )


def test_parameter_with_an_unknown_name():
    text = refused(
        ("with: {scale: scale}", "with: {scale: 2 * scal}"),
    )
    assert (
        text
        == """\
error[CW402]: out.scale: unknown name 'scal'
  --> op.yaml:18:95
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scale: 2 * scal}}
   |                                                                                               ^^^^
help: did you mean scale?"""
    )


def test_param_of_the_pipeline_with_an_unknown_name():
    text = refused(
        ("scale: K ** -0.5", "scale: D ** -0.5"),
    )
    assert (
        text
        == """\
error[CW402]: the param scale: unknown name 'D'
  --> op.yaml:11:17
   |
11 | params: {scale: D ** -0.5}
   |                 ^
help: the names here are B, C, H, HV, K, N, NT, T, V"""
    )


def test_param_that_is_no_expression():
    text = refused(
        ("scale: K ** -0.5", "scale: K **"),
    )
    assert (
        text
        == """\
error[CW401]: the param scale: expected a value, found the end
  --> op.yaml:11:21
   |
11 | params: {scale: K **}
   |                     ^"""
    )


def test_constraint_with_an_unknown_name():
    text = refused(
        ("params:", "constraints: [K <= 256, HV % heads == 0]\nparams:"),
    )
    assert (
        text
        == """\
error[CW402]: the constraint: unknown name 'heads'
  --> op.yaml:11:30
   |
11 | constraints: [K <= 256, HV % heads == 0]
   |                              ^^^^^
help: the names here are B, C, H, HV, K, N, NT, T, V"""
    )


def test_unused_stage():
    text = refused(
        ("outputs: {o: out.o, ", "outputs: {"),
    )
    assert (
        text
        == """\
error[CW225]: no output depends on out
  --> op.yaml:18:3
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scale: scale}}
   |   ^^^
help: remove it, or name it in outputs"""
    )


def test_unused_input():
    text = refused(
        ("  beta: ", "  mask: B T\n  beta: "),
    )
    assert (
        text
        == """\
error[CW229]: no stage reads the input mask
 --> op.yaml:9:3
  |
9 |   mask: B T
  |   ^^^^
help: remove it, or bind it"""
    )


def test_stage_that_reads_itself():
    text = refused(
        ("in: {x: g}", "in: {x: c.y}"),
    )
    assert (
        text
        == """\
error[CW226]: the stages form a cycle: c -> c
  --> op.yaml:13:46
   |
13 |   c:     {use: chunk_local_cumsum,   in: {x: c.y}}
   |                                              ^^^ a stage cannot read its own output"""
    )


def test_cycle_of_two():
    text = refused(
        ("in: {k: k, beta: beta, g: c.y}", "in: {k: k, beta: beta, g: solve.Ai}"),
    )
    assert (
        text
        == """\
error[CW226]: the stages form a cycle: kkt -> solve -> kkt
  --> op.yaml:14:64
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: solve.Ai}}
   |                                                                ^^^^^^^^ solve.Ai feeds kkt here, which closes the cycle
note: kkt.A feeds solve here
  --> op.yaml:15:46
   |
15 |   solve: {use: solve_tril,           in: {A: kkt.A}}
   |                                              ^^^^^"""
    )


def test_cycle_of_three():
    text = refused(
        ("in: {k: k, beta: beta, g: c.y}", "in: {k: wy.w, beta: beta, g: c.y}"),
    )
    assert (
        text
        == """\
error[CW226]: the stages form a cycle: kkt -> solve -> wy -> kkt
  --> op.yaml:14:46
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: wy.w, beta: beta, g: c.y}}
   |                                              ^^^^ wy.w feeds kkt here, which closes the cycle
note: kkt.A feeds solve here
  --> op.yaml:15:46
   |
15 |   solve: {use: solve_tril,           in: {A: kkt.A}}
   |                                              ^^^^^
note: solve.Ai feeds wy here
  --> op.yaml:16:71
   |
16 |   wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}}
   |                                                                       ^^^^^^^^"""
    )


def test_two_cycles():
    text = refused(
        ("in: {x: g}", "in: {x: c.y}"),
        ("in: {k: k, beta: beta, g: c.y}", "in: {k: wy.w, beta: beta, g: c.y}"),
    )
    assert (
        text
        == """\
error[CW226]: the stages form a cycle: c -> c
  --> op.yaml:13:46
   |
13 |   c:     {use: chunk_local_cumsum,   in: {x: c.y}}
   |                                              ^^^ a stage cannot read its own output

error[CW226]: the stages form a cycle: kkt -> solve -> wy -> kkt
  --> op.yaml:14:46
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: wy.w, beta: beta, g: c.y}}
   |                                              ^^^^ wy.w feeds kkt here, which closes the cycle
note: kkt.A feeds solve here
  --> op.yaml:15:46
   |
15 |   solve: {use: solve_tril,           in: {A: kkt.A}}
   |                                              ^^^^^
note: solve.Ai feeds wy here
  --> op.yaml:16:71
   |
16 |   wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}}
   |                                                                       ^^^^^^^^"""
    )


def test_order_in_the_file_is_free_and_edges_decide():
    head, rest = OP.split("stages:\n")
    body, outputs = rest.split("outputs:")
    turned = "".join(reversed(body.splitlines(keepends=True)))
    graph = build_graph(parse_spec(f"{head}stages:\n{turned}outputs:{outputs}", "op.yaml"), STAGES)
    assert list(graph.nodes) == ["c", "kkt", "solve", "wy", "scan", "out"]
