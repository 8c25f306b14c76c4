"""Shapes, layouts, dtypes, units and value laws of the edges: every error by its exact text, in every style of YAML."""
# ruff: noqa: E501

import pytest
import torch

from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.graphs.build_graph import check_graphs
from chunkwise.runner.loading.load_spec import parse_spec
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.stages import _laws

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

BLOCK = """\
schema: pipeline/v1
name: op
axes:
  C: 64
inputs:
  # what comes in
  q: B T H K
  k: B T H K
  v: B T H V
  g:                                # one gate a head
    shape: B T H
    dtype: f32
    unit: log_decay/ln/token        # natural log
    where: "<= 0"
stages:
  c: &sum
    use: chunk_local_cumsum
    in:
      x: g
  scan:
    use: chunk_h
    in: &edges
      k: k
      v: v
      g: c.y
  out:
    use: chunk_o
    in:
      q: q
      k: k
      v: v
      h: scan.h
      # the raw gate, in place of c.y
      g: g
    with:
      scale: 1
outputs:
  o: out.o
  S: scan.final_state
  y: c.y
"""
STAGES = find_stages()


def changed(*changes, text=OP):
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def error(*changes, text=OP):
    """The error for the text with changes (old, new)."""
    with pytest.raises(ChunkwiseError) as caught:
        check_graphs(parse_spec(changed(*changes, text=text), "op.yaml"), STAGES)
    return caught.value


def refused(*changes, text=OP):
    return str(error(*changes, text=text))


def places(*changes, text=OP):
    return [(each.code, each.mark.line, each.mark.column) for each in error(*changes, text=text).diagnostics]


def test_the_unchanged_text_is_right():
    check_graphs(parse_spec(OP, "op.yaml"), STAGES)


def test_unit_of_a_raw_gate_in_chunk_o():
    text = refused(
        ("h: scan.h, g: c.y}", "h: scan.h, g: g}"),
    )
    assert (
        text
        == """\
error[CW304]: unit mismatch at out.g
  --> op.yaml:18:71
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: g}, with: {scale: scale}}
   |                                                                       ^ expected log_decay/log2/chunk_sum, got log_decay/ln/token
note: log_decay/log2/chunk_sum: base-2 log decay summed from the chunk's first token to this one, inclusive
note: log_decay/ln/token: natural log of the factor by which the state decays at this token
note: g gets its unit here
 --> op.yaml:8:43
  |
8 |   g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  |                                           ^^^^^^^^^^^^^^^^^^
help: c (chunk_local_cumsum) converts it: read c.y"""
    )


def test_unit_of_a_raw_gate_in_kkt():
    text = refused(
        ("k: k, beta: beta, g: c.y", "k: k, beta: beta, g: g"),
    )
    assert (
        text
        == """\
error[CW304]: unit mismatch at kkt.g
  --> op.yaml:14:64
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: g}}
   |                                                                ^ expected log_decay/log2/chunk_sum, got log_decay/ln/token
note: log_decay/log2/chunk_sum: base-2 log decay summed from the chunk's first token to this one, inclusive
note: log_decay/ln/token: natural log of the factor by which the state decays at this token
note: g gets its unit here
 --> op.yaml:8:43
  |
8 |   g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  |                                           ^^^^^^^^^^^^^^^^^^
help: c (chunk_local_cumsum) converts it: read c.y"""
    )


def test_ungated_matrix_in_a_gated_step():
    text = refused(
        ("k: k, beta: beta, g: c.y", "k: k, beta: beta"),
    )
    assert (
        text
        == """\
error[CW304]: unit mismatch at wy.Ai
  --> op.yaml:16:71
   |
16 |   wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}}
   |                                                                       ^^^^^^^^ expected gram/unit_lower_inverse/gated, got gram/unit_lower_inverse/ungated
note: gram/unit_lower_inverse/gated: (I + A)^-1 of the gated strict lower Gram matrix
note: gram/unit_lower_inverse/ungated: (I + A)^-1 of the ungated strict lower Gram matrix
note: solve.Ai gets its unit here
  --> op.yaml:15:3
   |
15 |   solve: {use: solve_tril,           in: {A: kkt.A}}
   |   ^^^^^
note: gating was first fixed to gated by wy.g being bound
  --> op.yaml:16:3
   |
16 |   wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}}
   |   ^^"""
    )


def test_gated_matrix_in_an_ungated_step():
    text = refused(
        ("Ai: solve.Ai, g: c.y", "Ai: solve.Ai"),
    )
    assert (
        text
        == """\
error[CW304]: unit mismatch at wy.Ai
  --> op.yaml:16:71
   |
16 |   wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai}}
   |                                                                       ^^^^^^^^ expected gram/unit_lower_inverse/ungated, got gram/unit_lower_inverse/gated
note: gram/unit_lower_inverse/ungated: (I + A)^-1 of the ungated strict lower Gram matrix
note: gram/unit_lower_inverse/gated: (I + A)^-1 of the gated strict lower Gram matrix
note: solve.Ai gets its unit here
  --> op.yaml:15:3
   |
15 |   solve: {use: solve_tril,           in: {A: kkt.A}}
   |   ^^^^^
note: gating was first fixed to ungated by wy.g being absent
  --> op.yaml:16:3
   |
16 |   wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai}}
   |   ^^"""
    )


def test_unit_where_none_belongs():
    text = refused(
        ("v: scan.v_new,", "v: wy.u,"),
    )
    assert (
        text
        == """\
error[CW304]: unit mismatch at out.v
  --> op.yaml:18:45
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: wy.u, h: scan.h, g: c.y}, with: {scale: scale}}
   |                                             ^^^^ expected no unit, got wy/value
note: wy/value: u = Ai (beta v): the row's write if the entering state were zero
note: wy.u gets its unit here
  --> op.yaml:16:3
   |
16 |   wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}}
   |   ^^"""
    )


def test_no_unit_where_one_belongs():
    text = refused(
        ("unit: state/sequence_start, ", ""),
    )
    assert (
        text
        == """\
error[CW304]: unit mismatch at scan.initial_state
  --> op.yaml:17:90
   |
17 |   scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
   |                                                                                          ^^ expected state/sequence_start, got no unit
note: state/sequence_start: the state before a sequence's first token
note: S0 is declared without a unit here
  --> op.yaml:10:3
   |
10 |   S0:   {shape: N HV K V, dtype: f32, optional: true}
   |   ^^
help: declare the input S0 with unit: state/sequence_start, if its numbers are that"""
    )


def test_number_of_axes():
    text = refused(
        ("q:    B T H K", "q:    B T K"),
    )
    assert (
        text
        == """\
error[CW301]: shape mismatch at out.q
  --> op.yaml:18:33
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scale: scale}}
   |                                 ^ expected 4 axes [B T H K], got 3 [B T K]
note: q gets its shape here
 --> op.yaml:5:9
  |
5 |   q:    B T K
  |         ^^^^^"""
    )


def test_one_axis_that_two_edges_fix_otherwise():
    """The one whose axes have other names than the port's is to blame, though it comes first."""
    text = refused(
        ("q:    B T H K", "q:    B T HV K"),
    )
    assert (
        text
        == """\
error[CW301]: shape mismatch at out.q
  --> op.yaml:18:33
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scale: scale}}
   |                                 ^ expected [B T H K], got [B T HV K]
note: axis H was first fixed to H by out.k from k
  --> op.yaml:18:39
   |
18 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scale: scale}}
   |                                       ^
note: q gets its shape here
 --> op.yaml:5:9
  |
5 |   q:    B T HV K
  |         ^^^^^^^^"""
    )


def test_fixed_size_for_a_named_axis():
    text = refused(
        ("S0:   {shape: N HV K V", "S0:   {shape: N HV 4 V"),
    )
    assert (
        text
        == """\
error[CW301]: shape mismatch at scan.initial_state
  --> op.yaml:17:90
   |
17 |   scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
   |                                                                                          ^^ expected [N HV K V], got [N HV 4 V]
note: axis K was first fixed to K by scan.k from k
  --> op.yaml:17:46
   |
17 |   scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
   |                                              ^
note: S0 gets its shape here
  --> op.yaml:10:17
   |
10 |   S0:   {shape: N HV 4 V, dtype: f32, unit: state/sequence_start, optional: true}
   |                 ^^^^^^^^"""
    )


def test_order_of_axes():
    text = refused(
        ("S0:   {shape: N HV K V", "S0:   {shape: N HV V K"),
    )
    assert (
        text
        == """\
error[CW303]: layout mismatch at scan.initial_state
  --> op.yaml:17:90
   |
17 |   scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
   |                                                                                          ^^ expected [N HV K V], got [N HV V K]
note: axis K was first fixed to K by scan.k from k
  --> op.yaml:17:46
   |
17 |   scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
   |                                              ^
note: axis V was first fixed to V by scan.u from wy.u
  --> op.yaml:17:61
   |
17 |   scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
   |                                                             ^^^^
note: S0 gets its shape here
  --> op.yaml:10:17
   |
10 |   S0:   {shape: N HV V K, dtype: f32, unit: state/sequence_start, optional: true}
   |                 ^^^^^^^^
help: the axes are the same, their order is not"""
    )


def test_dtype_of_an_input():
    text = refused(
        ("shape: B T HV, dtype: f32, unit", "shape: B T HV, unit"),
    )
    assert (
        text
        == """\
error[CW302]: dtype mismatch at c.x
  --> op.yaml:13:46
   |
13 |   c:     {use: chunk_local_cumsum,   in: {x: g}}
   |                                              ^ expected f32, got the pipeline's dtype (io)
note: g is declared without a dtype here
 --> op.yaml:8:3
  |
8 |   g:    {shape: B T HV, unit: log_decay/ln/token, where: "<= 0"}
  |   ^
help: declare the input g with dtype: f32"""
    )


def test_dtype_of_a_stage_output():
    text = refused(
        ("k: k, beta: beta, g: c.y", "k: k, beta: c.y, g: c.y"),
    )
    assert (
        text
        == """\
error[CW302]: dtype mismatch at kkt.beta
  --> op.yaml:14:55
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: c.y, g: c.y}}
   |                                                       ^^^ expected the pipeline's dtype (io), got f32
note: c.y gets its dtype here
  --> op.yaml:13:3
   |
13 |   c:     {use: chunk_local_cumsum,   in: {x: g}}
   |   ^

error[CW304]: unit mismatch at kkt.beta
  --> op.yaml:14:55
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: c.y, g: c.y}}
   |                                                       ^^^ expected no unit, got log_decay/log2/chunk_sum
note: log_decay/log2/chunk_sum: base-2 log decay summed from the chunk's first token to this one, inclusive
note: c.y gets its unit here
  --> op.yaml:13:3
   |
13 |   c:     {use: chunk_local_cumsum,   in: {x: g}}
   |   ^"""
    )


def test_law_that_the_input_does_not_state():
    text = refused(
        (', where: "<= 0"', ""),
    )
    assert (
        text
        == """\
error[CW305]: value law not implied at c.x
  --> op.yaml:13:46
   |
13 |   c:     {use: chunk_local_cumsum,   in: {x: g}}
   |                                              ^ expected <= 0, got no promise
note: c.x needs a promise: every value is <= 0
note: g is declared without a law here
 --> op.yaml:8:3
  |
8 |   g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token}
  |   ^
help: declare the input g with where: "<= 0", if its values keep to it"""
    )


def test_law_that_is_too_weak():
    text = refused(
        ('where: "<= 0"', "where: -1..1"),
    )
    assert (
        text
        == """\
error[CW305]: value law not implied at c.x
  --> op.yaml:13:46
   |
13 |   c:     {use: chunk_local_cumsum,   in: {x: g}}
   |                                              ^ expected <= 0, got -1..1
note: c.x needs a promise: every value is <= 0
note: g makes its promise here
 --> op.yaml:8:70
  |
8 |   g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: -1..1}
  |                                                                      ^^^^^
help: declare the input g with where: "<= 0", if its values keep to it"""
    )


def test_law_of_a_sum_on_something_that_is_none():
    text = refused(
        ("h: scan.h, g: c.y}", "h: scan.h, g: s}"),
        (
            'unit: log_decay/ln/token, where: "<= 0"}',
            'unit: log_decay/ln/token, where: "<= 0"}\n  s:    {shape: B T HV, dtype: f32, unit: log_decay/log2/chunk_sum, where: "<= 0"}',
        ),
    )
    assert (
        text
        == """\
error[CW305]: value law not implied at out.g
  --> op.yaml:19:71
   |
19 |   out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: s}, with: {scale: scale}}
   |                                                                       ^ expected non_increasing(T in chunk), got <= 0
note: out.g needs a promise: along T inside a chunk, values start at 0 or below and never rise
note: s makes its promise here
 --> op.yaml:9:77
  |
9 |   s:    {shape: B T HV, dtype: f32, unit: log_decay/log2/chunk_sum, where: "<= 0"}
  |                                                                             ^^^^
help: declare the input s with where: "non_increasing(T in chunk)", if its values keep to it"""
    )


def test_chunk_length_that_the_file_does_not_give():
    text = refused(
        ("axes: {C: 64}\n", ""),
    )
    assert (
        text
        == """\
error[CW307]: c (chunk_local_cumsum) works in chunks, and the pipeline gives no chunk length C
  --> op.yaml:12:16
   |
12 |   c:     {use: chunk_local_cumsum,   in: {x: g}}
   |                ^^^^^^^^^^^^^^^^^^
help: add axes: {C: 64}"""
    )


RAW_GATE_IN_BLOCK_STYLE = """\
error[CW304]: unit mismatch at out.g
  --> op.yaml:34:10
   |
34 |       g: g
   |          ^ expected log_decay/log2/chunk_sum, got log_decay/ln/token
note: log_decay/log2/chunk_sum: base-2 log decay summed from the chunk's first token to this one, inclusive
note: log_decay/ln/token: natural log of the factor by which the state decays at this token
note: g gets its unit here
  --> op.yaml:13:11
   |
13 |     unit: log_decay/ln/token        # natural log
   |           ^^^^^^^^^^^^^^^^^^
help: c (chunk_local_cumsum) converts it: read c.y"""


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        BLOCK.replace("\n", "\r\n"),
        BLOCK.replace("\n", "\r"),
        "\ufeff" + BLOCK,
        BLOCK.replace("  g:                ", "  g: &gate         ").replace("in: &edges", "in:"),
    ],
    ids=["comments", "crlf", "cr", "byte order mark", "anchors"],
)
def test_block_style(text):
    assert refused(text=text) == RAW_GATE_IN_BLOCK_STYLE


def test_quoted_sources_are_marked_inside_their_quotes():
    for quote in "'\"":
        line = refused(("h: scan.h, g: c.y}", f"h: scan.h, g: {quote}g{quote}}}")).splitlines()
        assert (
            line[1].endswith("op.yaml:18:72") and line[4].index("^ expected") == line[3].index(f"{quote}g{quote}") + 1
        )


def test_an_aliased_edge_is_marked_where_it_is_written():
    """Both stages read the same mapping, so one place is wrong twice: for the unit of kkt.g and of wy.g."""
    text = changed(
        ("in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}", "in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: *gate}"),
        ("in: {k: k, beta: beta, g: c.y}", "in: {k: k, beta: beta, g: &gate g}"),
    )
    found = error(text=text).diagnostics
    assert [(each.message, each.mark.line, each.mark.column) for each in found] == [
        ("unit mismatch at kkt.g", 14, 70),
        ("unit mismatch at wy.g", 14, 70),
    ]


def test_every_error_of_a_file_in_one_run_in_the_order_of_the_text():
    """Wiring, types, expressions and the definition; a stage behind a broken one still has its own edges checked."""
    changes = [
        (
            "scale: K ** -0.5}",
            "scale: D ** -0.5}\ndefinition:\n  state: {S: S0}\n  step: [o = q @ Z]\n  final: {final_state: S}",
        ),
        ("in: {x: g}", "in: {x: beta}"),
        ("in: {A: kkt.A}", "in: {A: kkt.B}"),
        ("Ai: solve.Ai, g: c.y", "Ai: solve.Ai, g: g"),
        ("initial_state: S0}", "initial_state: v}"),
        ("with: {scale: scale}", "with: {scal: scale}"),
    ]
    assert places(*changes) == [
        ("CW402", 11, 17),
        ("CW402", 14, 18),
        ("CW302", 17, 46),
        ("CW304", 17, 46),
        ("CW222", 19, 46),
        ("CW304", 20, 84),
        ("CW301", 21, 90),
        ("CW302", 21, 90),
        ("CW304", 21, 90),
        ("CW227", 22, 84),
    ]


def test_a_pipeline_that_fits_only_with_an_optional_input_is_refused():
    """Without the gate kkt gives the ungated matrix, and recompute_w_u with a gate of its own takes the gated one."""
    changes = [
        (
            'where: "<= 0"}',
            'where: "<= 0"}\n  gk:   {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0", optional: true}',
        ),
        ("  kkt:  ", "  ck:    {use: chunk_local_cumsum,   in: {x: gk}}\n  kkt:  "),
        ("k: k, beta: beta, g: c.y", "k: k, beta: beta, g: ck.y"),
    ]
    assert places(*changes) == [("CW304", 18, 71)]


DEFINED = changed(
    (
        "stages:",
        """\
definition:
  state: {S: S0}
  step:
    - S = exp(g) * S
    - S = S + outer(k, beta * (v - k @ S))
    - o = scale * (q @ S)
  final: {final_state: S}
stages:""",
    )
)


def test_the_definition_is_right():
    check_graphs(parse_spec(DEFINED, "op.yaml"), STAGES)


def test_definition_in_block_style():
    text = refused(("- o = scale * (q @ S)", "- o = scale * (q @ transpose(S))"), text=DEFINED)
    assert (
        text
        == """\
error[CW404]: '@' contracts K of (K) with V of (V, K)
  --> op.yaml:17:19
   |
17 |     - o = scale * (q @ transpose(S))
   |                   ^^^^^^^^^^^^^^^^^^
help: right is the wrong way round: transpose(right), or right @ left for a vector on the left"""
    )


@pytest.mark.parametrize(
    "line, column, carets",
    [
        ("o = scale * (qq @ S)", 20, 2),
        ("'o = scale * (qq @ S)'", 21, 2),
        ('"o = scale * (qq @ S)"', 21, 2),
        ("o = scale * (qq @ S)   # a comment", 20, 2),
        ("  o = scale * (qq @ S)", 22, 2),
    ],
)
def test_definition_in_every_style_of_scalar(line, column, carets):
    text = refused(("o = scale * (q @ S)", line), text=DEFINED)
    assert text.startswith(f"error[CW402]: unknown name 'qq'\n  --> op.yaml:17:{column}\n"), text
    assert text.splitlines()[4].count("^") == carets


@pytest.mark.parametrize(
    "line", ['"o = scale * \\x28qq @ S)"', "o = scale *\n        (qq @ S)", "|\n      o = scale * (qq @ S)"]
)
def test_a_scalar_that_is_not_written_as_it_reads_has_no_columns(line):
    """Escapes, folding and block scalars: an error inside could not be shown at its place, so they are refused."""
    text = refused(("o = scale * (q @ S)", line), text=DEFINED)
    assert text.startswith("error[CW401]: definition.step[3] is not written as it reads\n  --> op.yaml:17:7\n")


def test_definition_in_flow_style():
    flow = '[S = exp(g) * S, "S = S + outer(k, beta * (v - k @ S))", o = scale * (qq @ S)]'
    body = "\n    - S = exp(g) * S\n    - S = S + outer(k, beta * (v - k @ S))\n    - o = scale * (q @ S)"
    text = refused((body, " " + flow), text=DEFINED)
    assert (
        text
        == """\
error[CW402]: unknown name 'qq'
  --> op.yaml:14:79
   |
14 |   step: [S = exp(g) * S, "S = S + outer(k, beta * (v - k @ S))", o = scale * (qq @ S)]
   |                                                                               ^^
help: did you mean q?"""
    )


@pytest.mark.parametrize("old, new, edge, label", [
    ("v: scan.v_new", "v: q", "out.v", "expected [B T HV V], got [B T H K]"),
    ("h: scan.h", "h: wy.w", "out.h", "expected 5 axes [B NT HV K V], got 4 [B T HV K]"),
    ("w: wy.w", "w: v", "scan.w", "expected [B T HV K], got [B T HV V]"),
    ("k: k, w: wy.w", "k: v, w: wy.w", "scan.k", "expected [B T HV K], got [B T HV V]"),
])  # fmt: skip
def test_the_edge_that_disagrees_with_all_others_is_the_wrong_one(old, new, edge, label):
    """Whichever comes first in the contract."""
    text = refused((old, new))
    assert text.count("error[CW301]") == 1 and f"error[CW301]: shape mismatch at {edge}\n" in text and label in text


def test_a_line_that_assigns_nothing():
    text = refused(("    - o = scale * (q @ S)", "    - (q - k @ S)"), text=DEFINED)
    assert text.startswith("error[CW401]: not an assignment\n  --> op.yaml:17:7\n")
    assert text.endswith("help: a line is written name = expression")


def test_definition_that_leaves_an_output_open():
    text = refused(("  final: {final_state: S}\n", ""), text=DEFINED)
    assert (
        text
        == """\
error[CW404]: the definition never says what the output final_state is
  --> op.yaml:25:21
   |
25 | outputs: {o: out.o, final_state: scan.final_state}
   |                     ^^^^^^^^^^^
help: a line of step gives a value of each token (final_state = ...), final gives a state after the last one"""
    )


def test_a_definition_that_gives_an_output_over_other_axes():
    text = refused(("    - o = scale * (q @ S)", "    - o = scale * (S @ v)"), text=DEFINED)
    assert (
        text
        == """\
error[CW404]: the output o is [B T HV V], and the definition gives [B T HV K]
  --> op.yaml:26:11
   |
26 | outputs: {o: out.o, final_state: scan.final_state}
   |           ^
note: o of the definition
  --> op.yaml:17:7
   |
17 |     - o = scale * (S @ v)
   |       ^^^^^^^^^^^^^^^^^^^"""
    )


def test_inputs_can_be_made_for_the_law_of_a_sum():
    law = _laws.parse("non_increasing(T in chunk)")
    x = _laws.sample(law, torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0)), ("B", "T", "HV"))
    assert not _laws.violations(law, x, ("B", "T", "HV"), 16).any()


def codes_at(*changes, text=OP):
    """(code, line, what stands there) of every error."""
    return [(each.code, each.mark.line, each.message) for each in error(*changes, text=text).diagnostics]


RAW = ("h: scan.h, g: c.y}", "h: scan.h, g: g}")
"""A unit that is wrong at out.g, on line 18."""


@pytest.mark.parametrize("change, code", [
    (("use: solve_tril,", "use: solve_trill,"), "CW221"),
    (("q: q, k: k, v: scan.v_new, h", "q: q, k: k, vv: scan.v_new, h"), "CW222"),
    (("beta: beta, g: c.y", "beta: bta, g: c.y"), "CW223"),
    (("k: k, beta: beta, g: c.y", "k: k, g: c.y"), "CW224"),
    (("w: wy.w, u: wy.u, g", "w: wy.w, u: scan.v_new, g"), "CW226"),
    (("with: {scale: scale}", "with: {scal: scale}"), "CW227"),
    ((", with: {scale: scale}", ""), "CW228"),
    (("scale: K ** -0.5", "scale: D ** -0.5"), "CW402"),
], ids=["stage", "port", "source", "open port", "cycle", "parameter", "no parameter", "expression"])  # fmt: skip
def test_an_error_of_wiring_hides_no_wrong_unit(change, code):
    """Not elsewhere, and not at another edge of the very same entry."""
    found = codes_at(change, RAW)
    assert code in {each for each, _, _ in found}
    assert ("CW304", 18, "unit mismatch at out.g") in found
    assert {each for each, _, _ in found} == {code, "CW304"}


def test_a_port_that_is_misspelt_is_no_reason_for_another_error():
    """wy.g is not bound; the gated matrix at wy.Ai is no error for all that."""
    assert codes_at(("Ai: solve.Ai, g: c.y", "Ai: solve.Ai, gg: c.y")) == [("CW222", 16, "recompute_w_u has no input gg")]


def test_after_a_wrong_parameter_the_types_go_on():
    parameter = ("initial_state: S0}}", "initial_state: S0}, with: {eps: 1}}")
    assert [code for code, _, _ in codes_at(parameter, ("v: scan.v_new, h", "v: scan.h, h"))] == ["CW227", "CW301", "CW304"]
