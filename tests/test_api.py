"""The Python API when it is held wrongly, and what it says of itself.

What an argument is, is a ChunkwiseError with a code and a way out. The names of load's own arguments are Python's to
check: a TypeError. Compiled code can raise a TypeError only; it carries the code.
"""

import copy
import inspect
import pickle
import pydoc
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from support.ops import op, refusal

from chunkwise.runner import load
from chunkwise.runner.backward.derive import derive
from chunkwise.runner.calling import call_reference
from chunkwise.runner.stage_files.stage_library import SHIPPED

LOADS = {
    "no path": ((3,), {}, "a pipeline is a name or a path, not an int", 'load("gated_delta")'),
    "nothing": ((None,), {}, "a pipeline is a name or a path, not a NoneType", 'load("gated_delta")'),
    "an empty name": (("",), {}, "the name of the pipeline is empty", 'load("gated_delta")'),
    "fusions beside none": ((), {"fuse": "none,chunk_h_o"}, "none is among other fusions", "none and auto stand alone"),
    "fusions as a list": ((), {"fuse": ["auto"]}, "fuse is a text, not a list", 'fuse="none", "auto" or "'),
    "one folder": ((), {"stages": "x"}, "stages is a list of folders, not a str", "stages=['x']"),
    "no folders": ((), {"stages": 3}, "stages is a list of folders, each a text or a path", 'stages=["my_stages"]'),
    "a number among them": (
        (),
        {"stages": [3]},
        "stages is a list of folders, each a text or a path",
        'stages=["my_stages"]',
    ),
    "no back end": ((), {"backend": "cuda"}, "there is no back end cuda", "back ends are auto, triton, "),
    "a text for bytes": (
        (),
        {"memory_budget": "500"},
        "memory_budget is a whole number of bytes, from 0, not '500'",
        "memory_budget=500 * 10**6 is 500 MB",
    ),
    "negative bytes": (
        (),
        {"memory_budget": -1},
        "memory_budget is a whole number of bytes, from 0, not -1",
        "memory_budget=500 * 10**6 is 500 MB",
    ),
}


@pytest.mark.parametrize("arguments, keywords, message, help", LOADS.values(), ids=LOADS)
def test_what_load_refuses(arguments, keywords, message, help):
    (error,) = refusal(load, *(arguments or ("gated_delta",)), **keywords)
    assert (error.code, error.message) == ("CW601", message) and error.help.startswith(help)


def test_load_says_all_that_is_wrong_at_once():
    assert len(refusal(load, 3, stages="x", memory_budget=1.5)) == 3


def test_an_argument_that_load_does_not_have():
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        load("gated_delta", axes={"C": 32})


SIZES = "the size of an axis is a whole number from 1 to 999999999"
METHODS = {
    "a size of 0": (lambda an_op: an_op.with_axes({"C": 0}), f"C = 0: {SIZES}"),
    "a size beyond all": (lambda an_op: an_op.with_axes({"C": 10**9}), f"C = 1000000000: {SIZES}"),
    "a text": (lambda an_op: an_op.with_axes({"C": "32"}), f"C = '32': {SIZES}"),
    "no names": (lambda an_op: an_op.with_axes("C"), "sizes of axes are given by name, not as str"),
    "an axis that is not fixed": (lambda an_op: an_op.with_axes({"K": 8}), "gated_delta fixes no axis K"),
    "a name that is none": (lambda an_op: an_op.with_axes({3: 8}), "gated_delta fixes no axis 3"),
    "an unknown stage": (lambda an_op: an_op.until("foo"), "gated_delta has no stage foo"),
    "a stage that is a list": (lambda an_op: an_op.until([]), "gated_delta has no stage []"),
    "inputs for stages as a list": (
        lambda an_op: an_op.given(["wy"]),
        "the inputs that stand for stages are given by name, not as list",
    ),
    "an input for no stage": (lambda an_op: an_op.given({"foo": "w"}), "gated_delta has no stage foo"),
    "an input for two values": (
        lambda an_op: an_op.given({"wy": "w"}),
        "wy makes w and u, and one input cannot stand for them",
    ),
    "an input's name that is no name": (
        lambda an_op: an_op.given({"cumsum": "a b"}),
        "'a b' cannot be the name of an input",
    ),
    "an input's name that is no text": (lambda an_op: an_op.given({"cumsum": 3}), "3 cannot be the name of an input"),
    "an input's name that every call has": (
        lambda an_op: an_op.given({"cumsum": "seqlens"}),
        "'seqlens' cannot be the name of an input",
    ),
    "the name of a param": (
        lambda an_op: an_op.given({"cumsum": "scale"}),
        "scale cannot stand for cumsum: a param has that name",
    ),
    "the name of an input that stays": (
        lambda an_op: an_op.given({"cumsum": "q"}),
        "q cannot stand for cumsum: out reads an input of that name",
    ),
    "one name for two stages": (
        lambda an_op: an_op.given({"cumsum": "x", "kkt": "x"}),
        "x cannot stand for kkt: it stands for two stages",
    ),
    "a stage that is none": (lambda an_op: an_op.until(3), "gated_delta has no stage 3"),
}


@pytest.mark.parametrize("method, message", METHODS.values(), ids=METHODS)
def test_what_an_ops_methods_refuse(method, message):
    (error,) = refusal(method, op("gated_delta"))
    assert error.message == message and "--" not in str(error)


def test_an_input_takes_the_place_of_one_that_nobody_reads_any_more():
    given = op("gated_delta").given({"cumsum": "g"})
    assert given.whole.inputs["g"].unit == op("gated_delta").whole.values["cumsum.y"].unit


def test_sizes_are_whole_numbers_of_any_type():
    assert op("gated_delta").with_axes({"C": np.int64(32)}).spec.axes["C"].value == 32


def test_a_result_is_pickled_and_copied():
    x = torch.ones(1, 2, 1, 4)
    out = op("linear_attn")(q=x, k=x, v=x)
    for again in (pickle.loads(pickle.dumps(out)), copy.deepcopy(out)):
        assert type(again) is type(out) and torch.equal(again.o, out.o) and again.o is not out.o


def test_inputs_by_position():
    q = torch.zeros(1, 4, 1, 8)
    (error,) = refusal(op("gated_delta"), q, q)
    assert (error.code, error.message) == ("CW604", "gated_delta takes its inputs by name")
    assert error.help == "op(q=..., k=..., v=..., g=..., beta=...)"


def test_inputs_by_position_in_compiled_code(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(TypeError, match=re.escape("error[CW604]: gated_delta takes its inputs by name")):
        op("gated_delta")(torch.zeros(1, 4, 1, 8))


@pytest.mark.parametrize("outputs, message", [
    ("o", "outputs must be a list of names, it is a text"),
    (3, "outputs must be a list of names, it is 3"),
    ([3], "simple_gla has no output 3"),
])  # fmt: skip
def test_outputs_that_are_none(outputs, message):
    x = torch.zeros(1, 4, 1, 8)
    (error,) = refusal(op("simple_gla"), q=x, k=x, v=x, g=torch.zeros(1, 4, 1), outputs=outputs)
    assert (error.code, error.message) == ("CW604", message) and error.help


def test_the_signature_of_an_op():
    signature = inspect.signature(op("gated_delta"))
    parameters = signature.parameters
    assert [*parameters] == ["q", "k", "v", "g", "beta", "initial_state", "scale", "cu_seqlens", "seqlens", "outputs"]
    assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    required = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty]
    assert required == ["q", "k", "v", "g", "beta"]
    assert str(parameters["g"]) == "g: '[B T HV], f32, log_decay/ln/token, <= 0'"
    assert str(parameters["initial_state"]).endswith("state/sequence_start' = None")
    assert str(parameters["scale"]) == "scale: 'number' = K ** -0.5"
    assert signature.return_annotation._fields == ("o", "final_state")


def test_the_help_of_an_op():
    text = pydoc.plain(pydoc.render_doc(op("mamba2")))
    for words in (
        f"mamba2: {op('mamba2').spec.summary}",
        "initial_state",
        "optional",
        "Gives",
        "cu_seqlens: [N + 1] int32 or int64",
    ):
        assert words in text
    assert "cu_seqlens" in inspect.getdoc(op("mamba2").__call__)


@pytest.mark.parametrize("name", ["linear_attn", "qwen3_next_gdn"])
def test_help_and_signature_follow_the_file(name):
    an_op = op(name)
    assert {*an_op.spec.inputs, *an_op.spec.params} < inspect.signature(an_op).parameters.keys()
    assert all(entry.doc in an_op.__doc__ for entry in an_op.spec.inputs.values())


STAGE = '''"""Twice."""
from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")})


def reference(x):
    return {"y": 2 * x}


def vjp(d_y, *, needs):
    return 2 * d_y
'''
PIPE = """\
schema: pipeline/v1
name: twice
inputs: {x: B T H K}
stages: {two: {use: twice, in: {x: x}}}
outputs: {y: two.y}
"""


def test_a_vjp_that_gives_no_mapping(tmp_path):
    (tmp_path / "twice.py").write_text(STAGE)
    (tmp_path / "twice.yaml").write_text(PIPE)
    an_op = load(tmp_path / "twice.yaml", stages=[tmp_path], backend="reference")
    y = an_op(x=torch.zeros(1, 4, 1, 8, requires_grad=True)).y
    (error,) = refusal(y.sum().backward)
    assert error.code == "CW506" and error.label is None
    assert error.message == "two.vjp: vjp of twice gives a Tensor, no mapping"
    assert (error.mark.line, error.help) == (11, 'return {"x": d_x}')


def test_stage_files_are_read_for_errors_alone(tmp_path, monkeypatch):
    """A call parses none: not those of one's own, and the stages that are made of a graph count as shipped."""

    def unread(file):
        raise AssertionError(f"{file} is read")

    (tmp_path / "twice.py").write_text(STAGE.replace("return 2 * d_y", 'return {"x": 2 * d_y}'))
    (tmp_path / "twice.yaml").write_text(PIPE.replace("{x: x}}}", "{x: x * x}}}"))
    an_op = load(tmp_path / "twice.yaml", stages=[tmp_path], backend="reference")
    monkeypatch.setattr(call_reference, "StageSource", unread)
    x = torch.ones(1, 4, 1, 8, requires_grad=True)
    an_op(x=x).y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 4))
    graph = derive(load("gated_delta_l2norm").whole, frozenset("qkv"), {"o"})
    made = [node for node in graph.nodes.values() if Path(node.stage.file).stem == "_gradient_sum"]
    assert made and {Path(node.stage.file).parent for node in graph.nodes.values()} == {SHIPPED}
    assert {Path(node.stage.file).parent for node in an_op.whole.nodes.values()} == {SHIPPED, tmp_path}


@pytest.mark.parametrize("name", ["self", "positional", "given", "mode", "Tensor"])
def test_inputs_of_any_other_name(tmp_path, name):
    """What Python, an op's methods or PyTorch's schemas call their own is no argument of a call."""
    (tmp_path / "twice.py").write_text(STAGE)
    (tmp_path / "twice.yaml").write_text(
        PIPE.replace("inputs: {x:", f"inputs: {{{name}:").replace("x: x", f"x: {name}")
    )
    x = torch.ones(1, 4, 1, 8)
    assert torch.equal(load(tmp_path / "twice.yaml", stages=[tmp_path])(**{name: x}).y, 2 * x)
