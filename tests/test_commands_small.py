"""list, show, explain, doctor: what they print, as text and as JSON."""

import json
from types import SimpleNamespace

import pytest

from chunkwise.runner import load
from chunkwise.runner.commands import _machine, doctor
from chunkwise.runner.definition.functions import DENSE, FUNCTIONS, RULES
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.loading import spec_keys, variant_keys
from chunkwise.runner.loading.pipelines import FOLDER
from chunkwise.runner.main import main
from chunkwise.runner.reporting.known_bad import known_bad, unmeasured
from chunkwise.runner.workloads import WORKLOADS
from chunkwise.stages._units import UNITS

BROKEN_STAGE = '"""A stage without a contract."""\n\n\ndef reference(x):\n    return {"y": x}\n'
OWN_STAGE = '''"""Twice the input: [bold]no markup[/bold].

    y = 2 x
"""

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(
    inputs={"x": Port("B T HV", unit="{u}", doc="any unit")},
    outputs={"y": Port("B T HV", unit="{u}")},
    params={"factor": None, "eps": 1e-6},
    requires=("HV % 2 == 0",),
    flops="B * T * HV",
)


def reference(x, *, factor, eps):
    return {"y": 2 * x}
'''


@pytest.fixture
def chunkwise(capsys):
    """(exit code, stdout, stderr) of a command line."""

    def run(*argv):
        code = main(list(argv))
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def document(chunkwise):
    """The JSON that a command prints, and nothing else."""

    def run(*argv):
        code, out, err = chunkwise(*argv, "--json")
        result = json.loads(out)
        assert result["ok"] == (code == 0) and err == ""
        return result

    return run


@pytest.fixture
def own_stages(tmp_path):
    (tmp_path / "twice.py").write_text(OWN_STAGE)
    return tmp_path


def test_list_names_everything(chunkwise, document):
    code, out, err = chunkwise("list")
    assert (code, err) == (0, "")
    listed = document("list")
    for pipeline in listed["pipelines"]:
        assert f"\n{pipeline['name']} " in out and pipeline["summary"] in out
    for stage in listed["stages"]:
        assert f"\n{stage['name']} " in out and stage["summary"].removesuffix(":") in out
    assert {"gated_delta", "simple_gla", "qwen3_next_gdn"} <= {each["name"] for each in listed["pipelines"]}
    by_name = {each["name"]: each for each in listed["stages"]}
    assert by_name["chunk_local_cumsum"]["kernels"] == ["triton"]
    assert listed["workloads"] == {name: dict(sizes) for name, sizes in WORKLOADS.items()}


def test_list_finds_stages_of_ones_own(document, own_stages):
    by_name = {each["name"]: each for each in document("list", "--stages", str(own_stages))["stages"]}
    assert (by_name["twice"]["kernels"], by_name["twice"]["gradient"]) == ([], "autograd")


def test_list_shows_the_rest_beside_a_broken_stage(chunkwise, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN_STAGE)
    code, out, err = chunkwise("list", "--stages", str(tmp_path))
    assert code == 2 and "chunk_o" in out
    assert "error[CW502]" in err and "broken" in err


def test_show_stage(chunkwise, document):
    code, out, err = chunkwise("show", "chunk_scaled_dot_kkt")
    assert (code, err) == (0, "")
    assert "A[i, j] = beta[i] <k[i], k[j]>" in out
    assert "log_decay/log2/chunk_sum: base-2 log decay summed" in out
    assert "{gating}: gated with g, ungated without" in out
    assert "sm_80 sm_90 sm_100" in out
    shown = document("show", "chunk_scaled_dot_kkt")
    g = next(port for port in shown["inputs"] if port["name"] == "g")
    assert (g["shape"], g["dtype"], g["optional"]) == (["B", "T", "HV"], "f32", True)
    grams = {"gram/strict_lower/gated", "gram/strict_lower/ungated"}
    assert set(shown["units"]) == {g["unit"], "{gating}"} | grams
    assert all(row["configs"] and row["refused"] is None for row in shown["launchers"])


def test_show_stage_of_ones_own(chunkwise, own_stages):
    _, out, _ = chunkwise("show", "twice", "--stages", str(own_stages))
    assert "Twice the input: [bold]no markup[/bold]." in out
    for line in (
        "param     factor (a pipeline must bind it)",
        "param     eps = 1e-06",
        "requires  HV % 2 == 0",
        "flops     B * T * HV",
        "no kernel: the reference runs on every device",
        "gradient: autograd through the reference",
        "  {u}: whatever the edges bring, the same at every port",
    ):
        assert f"\n{line}\n" in out


def test_show_pipeline(chunkwise, document):
    code, out, err = chunkwise("show", "gated_delta")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "g <- cumsum.y [B T HV] f32 log_decay/log2/chunk_sum non_increasing(T in chunk)" in lines
    assert "out chunk_o q <- q [B T H K] io - -" in lines
    assert "scale = scale" in lines
    assert "final_state <- scan.final_state [N HV K V] f32 state/sequence_end -" in lines
    assert "param scale = K ** -0.5" in lines
    assert "step S = S + outer(k, beta * (v - k @ S))" in lines
    shown = document("show", "gated_delta.yaml")
    kkt = next(each for each in shown["stages"] if each["id"] == "kkt")
    assert kkt["inputs"]["g"]["source"] == "cumsum.y"
    assert kkt["outputs"]["A"]["unit"] == "gram/strict_lower/gated"
    assert shown["definition"]["final"] == {"final_state": "S"}


def test_show_pipeline_of_a_path(chunkwise, tmp_path):
    path = tmp_path / "no_such.yaml"
    code, out, err = chunkwise("show", str(path))
    assert (code, out) == (2, "") and err.startswith("error[CW101]")


@pytest.mark.parametrize("name, hint", [("chunk_deltah", "chunk_delta_h"), ("gated_delt", "gated_delta")])
def test_show_of_a_name_that_is_neither(chunkwise, name, hint):
    code, out, err = chunkwise("show", name)
    assert (code, out) == (2, "")
    assert err == f"error[CW221]: there is no stage and no pipeline '{name}'\nhelp: did you mean {hint}?\n\n"


@pytest.mark.parametrize("text", ["CW304", "cw304", "304", "error[CW304]:"])
def test_explain(chunkwise, text):
    code, out, err = chunkwise("explain", text)
    assert (code, err) == (0, "")
    assert out.startswith("CW304: unit mismatch (exit code 2)\n")


def test_explain_has_every_code(document):
    listed = document("explain")["codes"]
    assert [each["code"] for each in listed] == list(codes.CODES)
    for each in listed:
        shown = document("explain", each["code"])
        assert shown["title"] == each["title"] and shown["why"] and shown["example"] and shown["fix"]


def tables(keys, before=""):
    """Every key of the loader's table, as the page names it."""
    for name, key in keys.items():
        inside = key.kind.item if isinstance(key.kind, spec_keys.Named) else key.kind
        yield f"{before}{name}", key
        if isinstance(inside, spec_keys.Table):
            named = "NAME." if isinstance(key.kind, spec_keys.Named) else ""
            yield from tables(inside.keys, f"{before}{name}.{named}")


def test_explain_pipeline_has_every_key_that_the_loader_takes(chunkwise, document):
    keys = dict(tables(spec_keys.PIPELINE.keys))
    shown = document("explain", "pipeline")["keys"]
    own, variant = shown[: len(keys)], [each["key"] for each in shown[len(keys) :]]
    assert [each["key"] for each in own] == list(keys)
    assert all(each["value"] and each["doc"] == keys[each["key"]].doc for each in own)
    assert [each["key"] for each in own if each["required"]] == [name for name, key in keys.items() if key.required]
    assert variant[0] == "extends" and {f"replace.{name}" for name in variant_keys.REPLACE.keys} <= set(variant)
    code, out, err = chunkwise("explain", "pipeline")
    assert (code, err) == (0, "") and "stages.NAME.recompute" in out and "unit_norm(AXIS)" in out
    assert all(f"\n{unit} " in out for unit in UNITS)


def test_explain_definition_has_every_function(chunkwise, document):
    shown = {each["call"].split("(")[0]: each["rule"] for each in document("explain", "definition")["functions"]}
    assert shown == {name: RULES[function.rule] for name, function in (FUNCTIONS | DENSE).items()}
    code, out, err = chunkwise("explain", "definition")
    assert (code, err) == (0, "")
    for call in ("clamp(x, low, high)", "where(condition, a, b)", "sum(x, axis=K)", "outer(a, b)", "index(Sk)"):
        assert call in out


def test_the_functions_are_called_as_the_page_writes_them(tmp_path):
    """The page's calls pass the loader, with vectors over K in place of the arguments."""
    calls = [(name, function) for name, function in FUNCTIONS.items() if function.rule in ("map", "reduce", "along")]
    lines = [
        f"y{at} = {name}({', '.join('q' if '=' not in each else each for each in function.arguments)})"
        for at, (name, function) in enumerate(calls)
    ]
    listed = "\n    - ".join(["  step:", *lines])
    text = (FOLDER / "linear_attn.yaml").read_text().replace("  step:", listed)
    (tmp_path / "called.yaml").write_text(text)
    assert "y0 = exp(q)" in text
    load(tmp_path / "called.yaml")


@pytest.mark.parametrize("text, help", [
    ("definitoin", "did you mean definition?"),
    ("CW399", "did you mean CW401 (expression syntax)?"),
    ("unit mismatches", "did you mean CW304 (unit mismatch)?"),
    ("nonsense", "`chunkwise explain` lists them all"),
])  # fmt: skip
def test_explain_of_an_unknown_code(chunkwise, text, help):
    code, out, err = chunkwise("explain", text)
    assert (code, out, err) == (2, "", f"error[CW608]: there is no error code '{text}'\nhelp: {help}\n\n")


@pytest.fixture
def bare_machine(monkeypatch):
    """A machine that has nothing but PyTorch; the interpreter is not tried."""
    monkeypatch.setattr(_machine, "find_spec", lambda name: None)
    monkeypatch.setattr(_machine.shutil, "which", lambda name: None)
    monkeypatch.setattr(_machine, "output_of", lambda *command: None)
    monkeypatch.setattr(_machine.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(_machine.torch.cuda, "device_count", lambda: 0)


def with_versions(monkeypatch, **versions):
    facts = {**doctor.machine_facts(), **versions}
    monkeypatch.setattr(doctor, "machine_facts", lambda: facts)


def test_a_bare_machine_is_usable(bare_machine, monkeypatch, chunkwise, document):
    with_versions(monkeypatch, triton="3.7.1", torch="2.13.0+cpu", numpy="2.4.6")
    code, out, err = chunkwise("doctor")
    assert (code, err) == (0, "") and "no known trouble" in out and "not measured" not in out
    told = document("doctor")
    assert {each["name"]: each["ok"] for each in told["findings"]} == dict.fromkeys(_machine.NAMES, False)
    assert told["environment"]["torch"] == "2.13.0+cpu" and told["not_measured"] == []


@pytest.mark.parametrize("versions", [{"triton": "9.9.9"}, {"torch": "9.9.9"}, {"triton": None}], ids=str)
def test_versions_that_nobody_ran_are_not_called_good(bare_machine, monkeypatch, chunkwise, document, versions):
    with_versions(monkeypatch, **{"triton": "3.7.1", "torch": "2.13.0", "numpy": "2.4.6", **versions})
    out = chunkwise("doctor")[1]
    assert "no known trouble" not in out and "not measured: this triton with this torch without a GPU\n" in out
    assert document("doctor")["not_measured"] == ["without a GPU"]


@pytest.mark.parametrize("triton, torch, majors, places", [
    ("3.6.0", "2.11.0+cu130", {9}, []),
    ("3.7.1", "2.13.0", {9}, ["on compute capability 9.x"]),
    ("3.6.0", "2.11.0", {9, 10}, ["on compute capability 10.x"]),
    ("3.6.0", "2.11.0", set(), ["without a GPU"]),
    (None, "2.13.0", set(), ["without a GPU"]),
])  # fmt: skip
def test_where_versions_were_measured(triton, torch, majors, places):
    assert unmeasured(triton, torch, majors) == places


@pytest.mark.parametrize("need", _machine.NAMES)
def test_what_was_asked_for_and_is_missing_is_an_error(bare_machine, chunkwise, need):
    code, out, err = chunkwise("doctor", "--need", need)
    assert code == 3 and "has" in out
    error = "CW701" if need == "gpu" else "CW702"
    assert err.startswith(f"error[{error}]: {need} was asked for: ")


def test_a_gpu_that_pytorch_was_not_built_for(bare_machine, monkeypatch):
    monkeypatch.setattr(_machine, "output_of", lambda *command: "NVIDIA H200")
    monkeypatch.setattr(_machine.torch.version, "cuda", None)
    found = _machine.gpu()
    assert not found.ok and found.detail.startswith("NVIDIA H200 is there, and PyTorch")


def test_doctor_shows_gpus_and_known_trouble(bare_machine, monkeypatch, chunkwise):
    h200 = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=150_000_000_000)
    monkeypatch.setattr(_machine.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(_machine.torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(_machine.torch.cuda, "get_device_properties", lambda index: h200)
    monkeypatch.setattr(_machine, "driver", lambda: "580.159.03")
    with_versions(monkeypatch, triton="3.6.0", torch="2.11.0", numpy="2.5.2")
    code, out, _ = chunkwise("doctor", "--need", "gpu")
    assert code == 0
    assert "NVIDIA H200, compute capability 9.0, 150000 MB, driver 580.159.03" in out
    assert out.count("known trouble: ") == 2 and out.count("what to do: ") == 2


@pytest.mark.parametrize("triton, numpy, majors, count", [
    ("3.7.1", "2.4.6", {9}, 0),
    ("3.7.0", "2.4.6", {9}, 1),
    ("3.4.0", "2.3.1", {9}, 1),
    ("3.3.1", "2.3.1", {9}, 0),
    ("3.7.0", "2.4.6", {8, 10}, 0),
    ("3.6.0", "2.4.0", set(), 1),
    ("3.6.0", "2.3.5", set(), 0),
    ("3.6.0+git1", "2.5", {8, 9}, 2),
    (None, None, {9}, 0),
])  # fmt: skip
def test_known_bad_pairs(triton, numpy, majors, count):
    assert len(known_bad(triton, numpy, majors)) == count


@pytest.mark.slow
def test_the_interpreter_is_tried(monkeypatch):
    pytest.importorskip("triton")
    assert _machine.interpret().detail == "works"
    monkeypatch.setattr(_machine, "INTERPRET", "raise RuntimeError('only 0-dimensional arrays')")
    found = _machine.interpret()
    assert (found.ok, found.detail) == (False, "RuntimeError: only 0-dimensional arrays")
