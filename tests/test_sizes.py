"""Numbers for the axes: which follow from which, what --axes and workloads give, and constraints that do not hold."""

import pytest

from chunkwise.runner import load
from chunkwise.runner.commands._options import fixed_axes, input_sizes, read_axes, read_seqlens, workload
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.graphs.sizes import chunk_slots, complete, parameters, size_errors
from chunkwise.runner.main import main
from chunkwise.runner.workloads import SMALL, WORKLOADS

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
SIZES = dict(B=2, T=100, H=2, HV=4, K=16, V=24)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "op.yaml").write_text(OP)
    return tmp_path


def written(here, *changes):
    text = OP
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (here / "op.yaml").write_text(text)
    return load("op.yaml")


def said(do, *args, **kwargs):
    with pytest.raises(ChunkwiseError) as caught:
        do(*args, **kwargs)
    return str(caught.value)


def test_axes_that_follow():
    graph = load("op.yaml").whole
    assert complete(graph, SIZES) == SIZES | dict(C=64, N=2, NT=2)
    assert complete(graph, SIZES | dict(B=1), n_packed=3) == SIZES | dict(B=1, C=64, N=3, NT=(100 + 3 * 63) // 64)


@pytest.mark.parametrize("lengths", [(100,), (0, 0, 100), (1,) * 100, (64, 36), (33, 67), (50, 25, 25), (65, 34, 1)])
def test_slots_of_chunks_hold_any_lengths(lengths):
    needed = sum(-(-length // 16) for length in lengths)
    assert needed <= chunk_slots(dict(T=100, C=16, N=len(lengths)), packed=True)
    assert chunk_slots(dict(T=100, C=16, N=4), packed=False) == 7


@pytest.mark.parametrize("name", [*WORKLOADS])
def test_workloads_fit_every_constraint(name):
    graph = load("op.yaml").whole
    sizes = input_sizes(graph, workload(name, "cpu"), {}, None)
    assert size_errors(graph, complete(graph, sizes)) == []
    assert size_errors(graph, complete(graph, SMALL)) == []


def test_where_sizes_come_from():
    """A workload, then --seqlens, then --axes; H alone moves HV along."""
    graph, tiny = load("op.yaml").whole, WORKLOADS["tiny"]
    assert input_sizes(graph, tiny, {}, None) == tiny
    assert input_sizes(graph, tiny, {}, (3, 4)) == {**tiny, "B": 1, "T": 7}
    assert input_sizes(graph, tiny, {"T": 9}, (3, 4)) == {**tiny, "B": 1, "T": 9}
    assert input_sizes(graph, tiny, {"H": 3}, None) == {**tiny, "H": 3, "HV": 3}
    assert input_sizes(graph, tiny, {"H": 3, "HV": 6}, None) == {**tiny, "H": 3, "HV": 6}


@pytest.mark.parametrize(
    "text, sizes",
    [("", {}), ("T=3", {"T": 3}), (" T = 3 , K=4,", {"T": 3, "K": 4}), ("T=4k,B=0", {"T": 4096, "B": 0})],
)
def test_axes_as_they_are_written(text, sizes):
    assert read_axes(text) == sizes


AS = "help: write sizes as B=1,T=4096 (T=4k is 4096)"
AXES = {
    "T": f"error[CW602]: --axes: 'T' is not NAME=SIZE\n{AS}",
    "T=": f"error[CW602]: --axes: 'T=' is not NAME=SIZE\n{AS}",
    "T=1.5": f"error[CW602]: --axes: 'T=1.5' is not NAME=SIZE\n{AS}",
    "T=1 B=2": f"error[CW602]: --axes: 'T=1 B=2' is not NAME=SIZE\n{AS}",
    "T=1234567890": "error[CW602]: --axes: T=1234567890: a size has at most nine digits",
    "T=1,B=2,T=1": "error[CW602]: --axes gives T twice",
}


@pytest.mark.parametrize("text", AXES)
def test_axes_that_are_none(text):
    assert said(read_axes, text) == AXES[text]


UNFIT = {
    "HX": "error[CW602]: --axes: op has no axis HX\nhelp: did you mean H?",
    "Z": "error[CW602]: --axes: op has no axis Z\nhelp: its axes are B, C, H, HV, K, N, NT, T, V",
    "N": "error[CW602]: --axes: N, the number of sequences, follows from the other sizes\n"
    "help: --axes B=... or --seqlens sets it",
    "NT": "error[CW602]: --axes: NT, the number of chunks, follows from the other sizes\n"
    "help: --axes T=... or C=... changes it",
}


@pytest.mark.parametrize("name", UNFIT)
def test_axes_that_the_pipeline_does_not_have(name):
    assert said(input_sizes, load("op.yaml").whole, SIZES, {name: 3}, None) == UNFIT[name]


def test_lengths_as_they_are_written():
    assert read_seqlens(None) is None and read_seqlens("100, 0,28") == (100, 0, 28)
    for text in ("", "a", "1,", "-1", "1.5"):
        assert said(read_seqlens, text) == (
            f"error[CW603]: --seqlens {text!r} is not a list of lengths\nhelp: write lengths as 100,0,28"
        )


def test_fixed_axes_from_the_command_line():
    op = load("op.yaml")
    assert fixed_axes(op, {"T": 4}) is op
    assert fixed_axes(op, {"T": 4, "C": 32}).spec.axes["C"].value == 32
    assert said(fixed_axes, op, {"C": 0}).startswith("error[CW602]: C = 0: the size of an axis is a whole number")


def test_an_axis_without_a_size(here, capsys):
    written(here, ("q:    B T H K", "q:    B T H E"), ("k:    B T H K", "k:    B T H E"), ("N HV K V", "N HV E V"),
            ("K ** -0.5", "E ** -0.5"))  # fmt: skip
    assert main(["verify", "op.yaml", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("""\
error[CW307]: no size is known for E
 --> op.yaml:1:1
  |
1 | schema: pipeline/v1
  | ^
help: pass --axes E=...
""")
    assert main(["verify", "op.yaml", "--device", "cpu", "--axes", "E=16,T=20,V=8"]) == 0


def test_an_output_axis_that_no_edge_fixes(here):
    (here / "mine").mkdir()
    (here / "mine" / "widen.py").write_text(
        '"""Wider."""\nfrom chunkwise.stages._contract import Contract, Port\n\n'
        'CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H D")})\n\n\n'
        "def reference(x):\n    return {'y': x}\n"
    )
    (here / "op.yaml").write_text(
        "schema: pipeline/v1\nname: op\ninputs: {x: B T H K}\n"
        "stages: {wide: {use: widen, in: {x: x}}}\noutputs: {y: wide.y}\n"
    )
    assert (
        said(load, "op.yaml", stages=["mine"])
        == """\
error[CW307]: widen.y [B T H D]: no input has the axis D, so it has no size
 --> mine/widen.py:4:61
  |
4 | CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H D")})
  |                                                             ^^^
help: the inputs have B, H, K, T"""
    )


CONSTRAINTS = ("params:", "constraints: [K <= V, is_power_of_two(K), B * T // (K - 20) < 9]\nparams:")


def errors(op, **sizes):
    return "\n\n".join(str(ChunkwiseError(each)) for each in size_errors(op.whole, complete(op.whole, SIZES | sizes)))


def test_constraints_that_hold(here):
    assert errors(written(here, CONSTRAINTS)) == ""


def test_a_constraint_of_the_file(here):
    assert (
        errors(written(here, CONSTRAINTS), K=24, V=16)
        == """\
error[CW306]: the constraint K <= V does not hold for K = 24, V = 16
  --> op.yaml:11:15
   |
11 | constraints: [K <= V, is_power_of_two(K), B * T // (K - 20) < 9]
   |               ^^^^^^

error[CW306]: the constraint is_power_of_two(K) does not hold for K = 24
  --> op.yaml:11:23
   |
11 | constraints: [K <= V, is_power_of_two(K), B * T // (K - 20) < 9]
   |                       ^^^^^^^^^^^^^^^^^^

error[CW306]: the constraint B * T // (K - 20) < 9 does not hold for B = 2, K = 24, T = 100
  --> op.yaml:11:43
   |
11 | constraints: [K <= V, is_power_of_two(K), B * T // (K - 20) < 9]
   |                                           ^^^^^^^^^^^^^^^^^^^^^"""
    )


def test_a_constraint_without_a_value(here):
    text = errors(written(here, ("params:", "constraints: [B * T // (K - 20) < 9]\nparams:")), K=20)
    assert text.startswith(
        "error[CW306]: the constraint B * T // (K - 20) < 9 has no value (division by zero) "
        "for B = 2, K = 20, T = 100\n"
        "  --> op.yaml:11:15\n"
    )


def test_a_constraint_of_stages_is_said_once():
    assert (
        errors(load("op.yaml"), HV=5)
        == """\
error[CW306]: HV % H == 0 does not hold for H = 2, HV = 5, and kkt (chunk_scaled_dot_kkt) requires it
  --> op.yaml:14:3
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: c.y}}
   |   ^^^
note: H = 2 through kkt.k from k
note: HV = 5 through kkt.beta from beta
note: wy (recompute_w_u) requires it too
note: scan (chunk_delta_h) requires it too
note: out (chunk_o) requires it too"""
    )


def test_a_constraint_waits_for_its_axes():
    graph = load("op.yaml").whole
    assert size_errors(graph, {"HV": 5}) == [] and len(size_errors(graph, {"HV": 5, "H": 2})) == 1


def test_params(here):
    op = written(here, ("{scale: K ** -0.5}", "{scale: K ** -0.5, twice: 2 * scale, four: 4}"),
                 ("with: {scale: scale}", "with: {scale: twice * four}"))  # fmt: skip
    sizes = complete(op.whole, SIZES)
    assert parameters(op.whole, sizes, {}) == {"scale": 0.25, "twice": 0.5, "four": 4}
    assert parameters(op.whole, sizes, {"scale": 1.0}) == {"scale": 1.0, "twice": 2.0, "four": 4}


def test_a_param_reads_only_those_before_it(here):
    text = said(written, here, ("{scale: K ** -0.5}", "{scale: 2 * later, later: 1}"))
    assert text.startswith("error[CW402]: the param scale: unknown name 'later'\n  --> op.yaml:11:21\n")
