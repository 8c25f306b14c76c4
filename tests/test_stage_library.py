"""Stages found and loaded: the shipped ones, a folder of one's own, installed packages; and what is wrong with them."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.diagnostics.render_errors import render
from chunkwise.runner.stage_files import stage_library
from chunkwise.runner.stage_files.stage_library import SHIPPED, find_stages, scan_stages

GOOD = '''\
"""Twice its input,
line by line.

    y = 2 x
"""

from chunkwise.stages._contract import F32, Contract, Launch, Launcher, Port

CONTRACT = Contract(
    inputs={"x": Port("B T HV", F32, unit="log_decay/ln/token", where="<= 0"), "z": Port("B T HV", optional=True)},
    outputs={"y": Port("B T HV", F32)},
    params={"scale": 2.0},
)


def reference(x, z, *, scale, C):
    return {"y": scale * x}


def vjp(d_y, x, *, scale, needs):
    return {"x": scale * d_y}


def launch(x, z, y, part, *, scale, seqs, config):
    return []


LAUNCHERS = [Launcher("triton", launch, lambda axes, device: [{}], scratch={"part": Port("B")})]
'''


def write(folder: Path, text: str, name: str = "twice") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return folder


def errors(folder: Path) -> list[str]:
    """(code line, place, caret line) of each error of a folder's stages."""
    return [render(each) for each in scan_stages([folder])[1]]


def test_every_shipped_file_is_a_stage():
    stages = find_stages()
    names = [file.stem for file in sorted(SHIPPED.glob("*.py")) if not file.stem.startswith("_")]
    assert list(stages) == names
    for stage in stages.values():
        assert Path(stage.file) == SHIPPED / f"{stage.name}.py"
        assert stage.doc and "\n" not in stage.doc
        assert stage.contract.outputs and callable(stage.reference)
        for launchers in (stage.launchers, stage.vjp_launchers):
            assert len({each.name for each in launchers}) == len(launchers), stage.name
    assert stages["chunk_local_cumsum"].launchers[0].name == "triton"


def test_a_stage_from_a_folder(tmp_path):
    write(tmp_path / "own", GOOD)
    write(tmp_path / "own", "raise SystemExit", "_helper")
    stages = find_stages([tmp_path / "own"])
    stage = stages["twice"]
    assert stage.doc == "Twice its input, line by line."
    assert stage.file == str(tmp_path / "own" / "twice.py")
    assert stage.reference(3, None, scale=2.0, C=64) == {"y": 6}
    assert stage.vjp is not None and stage.vjp_launchers == () and len(stage.launchers) == 1
    assert "chunk_o" in stages
    assert find_stages([tmp_path / "own", tmp_path / "own"])["twice"].reference is stage.reference


def test_files_of_a_folder_import_each_other(tmp_path):
    write(tmp_path, "FACTOR = 2\n", "_shared")
    write(tmp_path, GOOD.replace("CONTRACT =", "from ._shared import FACTOR\n\nCONTRACT ="))
    assert "twice" in find_stages([tmp_path])


def test_two_folders_keep_their_modules_apart(tmp_path):
    write(tmp_path / "a", GOOD, "one")
    write(tmp_path / "b", GOOD, "two")
    stages = find_stages([tmp_path / "a", tmp_path / "b"])
    assert stages["one"].reference is not stages["two"].reference


def test_no_such_folder(tmp_path):
    assert errors(tmp_path / "no") == [f"error[CW505]: no such folder of stages: {tmp_path / 'no'}"]


def test_a_shipped_stage_cannot_be_shadowed(tmp_path):
    write(tmp_path, GOOD, "chunk_o")
    stages, found = scan_stages([tmp_path])
    assert Path(stages["chunk_o"].file).parent == SHIPPED
    [text] = map(render, found)
    assert text.startswith(f"error[CW504]: two stages are called chunk_o\n --> {tmp_path}/chunk_o.py:1:1\n")
    assert "note: chunk_o is already there" in text and "stages/chunk_o.py:1:1" in text


def test_other_stages_load_beside_a_broken_one(tmp_path):
    write(tmp_path, "1 / 0\n", "broken")
    write(tmp_path, GOOD)
    stages, found = scan_stages([tmp_path])
    assert "twice" in stages and "broken" not in stages and len(found) == 1
    with pytest.raises(ChunkwiseError):
        find_stages([tmp_path])


@pytest.mark.parametrize(
    "text, place, words",
    [
        ("import os\n\nx = [1][7]\n", "3:1", "IndexError: list index out of range"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "2:1", "ZeroDivisionError: division by zero"),
        ("x = (\n", "1:5", "SyntaxError: '(' was never closed"),
        ("import no_such_thing\n", "1:1", "No module named 'no_such_thing'"),
        ("raise SystemExit('bye')\n", "1:1", "SystemExit: bye"),
        ("x = 1\nx = '\0'\n", "1:1", "source code string cannot contain null bytes"),
    ],
)
def test_a_file_that_does_not_import(tmp_path, text, place, words):
    [found] = errors(write(tmp_path, text))
    assert found.startswith(f"error[CW501]: stage twice cannot be imported\n --> {tmp_path}/twice.py:{place}\n")
    assert words in found


def test_a_relative_import_of_the_contract_is_explained(tmp_path):
    [found] = errors(write(tmp_path, GOOD.replace("chunkwise.stages._contract", "._contract")))
    assert found.endswith("help: outside the checkout: from chunkwise.stages._contract import ...")


def test_an_import_of_triton_is_explained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    [found] = errors(write(tmp_path, "import triton\n"))
    assert "help: import triton and kernels inside launch" in found


REFERENCE = "def reference(x, z, *, scale, C):"
BROKEN = {
    "no contract": ("CONTRACT = ", "OTHER = ", "CW502", "stage twice has no CONTRACT", '"""Twice its input,'),
    "another contract": (
        "\n\n\ndef ref",
        "\nCONTRACT = 3\n\ndef ref",
        "CW502",
        "CONTRACT of stage twice is no Contract",
        "CONTRACT",
    ),
    "no reference": ("def reference", "def refrence", "CW502", "stage twice has no reference", '"""Twice its input,'),
    "no outputs": (
        'outputs={"y": Port("B T HV", F32)}',
        "outputs={}",
        "CW502",
        "stage twice has no outputs",
        "CONTRACT",
    ),
    "no port": ('Port("B T HV", F32)}', '"B T HV"}', "CW502", "twice.y is no Port", '"y"'),
    "no mapping": (
        'params={"scale": 2.0}',
        "params=[2.0]",
        "CW502",
        "twice: params of the contract is no mapping",
        "CONTRACT",
    ),
    "twice": ('outputs={"y"', 'outputs={"x"', "CW502", "twice: x stands in inputs and in outputs", '"x"'),
    "name": ('"z": Port', '"z-": Port', "CW204", "twice: 'z-' is no name", '"z-"'),
    "shape": ('outputs={"y": Port("B T HV"', 'outputs={"y": Port("B,T"', "CW207", "twice.y: 'B,T' is no shape", '"y"'),
    "axis": (
        'outputs={"y": Port("B T HV"',
        'outputs={"y": Port("B T HX"',
        "CW307",
        "twice.y [B T HX]: no input has the axis HX, so it has no size",
        '"y"',
    ),
    "dtype": (
        'outputs={"y": Port("B T HV", F32',
        'outputs={"y": Port("B T HV", "f64"',
        "CW208",
        "twice.y: unknown dtype 'f64'",
        '"y"',
    ),
    "unit": ("log_decay/ln/token", "log_decay/ln/tokn", "CW209", "twice.x: unknown unit 'log_decay/ln/tokn'", '"x"'),
    "law": ('where="<= 0"', 'where="small"', "CW210", "twice.x: unknown value law 'small'", '"x"'),
    "law's axis": (
        'where="<= 0"',
        'where="unit_norm(K)"',
        "CW210",
        "twice.x: unit_norm(K) speaks of K, and the shape is B T HV",
        '"x"',
    ),
    "law of row numbers": (
        'where="<= 0"',
        'where="slots"',
        "CW210",
        "twice.x: slots speaks of row numbers, and the dtype is f32",
        '"x"',
    ),
    "order": (
        REFERENCE,
        "def reference(z, x, *, scale, C):",
        "CW503",
        "twice: reference takes (z, x), and the contract says (x, z)",
        "reference",
    ),
    "missing": (
        REFERENCE,
        "def reference(x, *, scale, C):",
        "CW503",
        "twice: reference takes (x), and the contract says (x, z)",
        "reference",
    ),
    "star": (
        REFERENCE,
        "def reference(*args, **kwargs):",
        "CW503",
        "twice: reference takes (args, kwargs), and the contract says (x, z)",
        "reference",
    ),
    "keyword": (
        REFERENCE,
        "def reference(x, z, *, scal):",
        "CW503",
        "twice: reference takes scal, which is no axis and no param of the contract",
        "scal",
    ),
    "launch": (
        "def launch(x, z, y, part, *",
        "def launch(x, z, part, y, *",
        "CW503",
        "twice: launch takes (x, z, part, y), and the contract says (x, z, y, part)",
        "launch",
    ),
    "launch without seqs": (
        "scale, seqs, config",
        "scale, config",
        "CW503",
        "twice: launch does not take seqs",
        "launch",
    ),
    "vjp": (
        "def vjp(d_y, x,",
        "def vjp(d_z, x,",
        "CW503",
        "twice: vjp takes d_z, which the contract does not have",
        "d_z",
    ),
    "vjp without needs": ("*, scale, needs", "*, scale", "CW503", "twice: vjp does not take needs", "vjp"),
    "no launcher": (
        "LAUNCHERS = [",
        "LAUNCHERS = [launch, ",
        "CW502",
        "LAUNCHERS holds something that is no Launcher",
        "LAUNCHERS",
    ),
    "vjp launchers alone": (
        "def vjp(",
        "VJP_LAUNCHERS = [3]\n\n\ndef other(",
        "CW502",
        "stage twice has VJP_LAUNCHERS and no vjp",
        "VJP_LAUNCHERS",
    ),
}


@pytest.mark.parametrize("old, new, code, message, marked", BROKEN.values(), ids=BROKEN)
def test_a_contract_that_does_not_hold(tmp_path, old, new, code, message, marked):
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    found = scan_stages([write(tmp_path, text)])[1][0]
    line = text.split("\n")[found.mark.line - 1]
    assert (found.code, found.message) == (code, message)
    assert line[found.mark.column - 1 : found.mark.end_column - 1] == marked
    assert found.mark.file == str(tmp_path / "twice.py")


def test_all_errors_of_a_contract_at_once(tmp_path):
    text = GOOD.replace('"<= 0"', '"small"').replace("optional=True", 'dtype="f64"')
    assert [each.code for each in scan_stages([write(tmp_path, text)])[1]] == ["CW210", "CW208"]


UNITS = GOOD.replace("log_decay/ln/token", "gram/strict_lower/{gating}")
PRESENCE = '    presence={"gating": ("z", "gated", "ungated")},\n'


def with_presence(text, line=PRESENCE):
    return text.replace('    params={"scale": 2.0},\n', '    params={"scale": 2.0},\n' + line)


@pytest.mark.parametrize(
    "text, message",
    [
        (UNITS, None),
        (with_presence(UNITS), None),
        (UNITS.replace("gram/strict_lower/{gating}", "{u}"), None),
        (UNITS.replace("gram/strict_lower/{gating}", "gram/{u}"), None),
        (UNITS.replace("gram", "gramm"), "twice.x: unknown unit 'gramm/strict_lower/{gating}'"),
        (
            with_presence(UNITS, PRESENCE.replace('"ungated"', '"none"')),
            "twice.x: unknown unit 'gram/strict_lower/none'",
        ),
        (
            with_presence(UNITS, PRESENCE.replace('"z"', '"x"')),
            "twice: presence variable gating hangs on x, which is no optional input",
        ),
        (with_presence(GOOD), "twice: no unit holds {gating}"),
    ],
)
def test_variables_of_units(tmp_path, text, message):
    found = scan_stages([write(tmp_path, text)])[1]
    assert [each.message for each in found] == ([message] if message else [])


def test_a_file_name_that_is_no_name(tmp_path):
    [found] = errors(write(tmp_path, GOOD, "my-stage"))
    assert found.startswith("error[CW204]: 'my-stage' is no name for a stage")


def entry_point(monkeypatch, value):
    points = [EntryPoint("own", value, stage_library.GROUP)]
    monkeypatch.setattr(stage_library, "entry_points", lambda group: points)


def test_stages_of_an_installed_package(tmp_path, monkeypatch):
    package = write(tmp_path / "some_package", GOOD)
    write(package, "", "__init__")
    write(tmp_path, GOOD, "single_stage")
    monkeypatch.syspath_prepend(tmp_path)
    entry_point(monkeypatch, "some_package")
    assert find_stages()["twice"].file == str(package / "twice.py")
    entry_point(monkeypatch, "single_stage")
    assert find_stages()["single_stage"].reference is sys.modules["single_stage"].reference


@pytest.mark.parametrize(
    "value, reason",
    [("no_such_package", "no such module"), ("math", "no Python file"), ("no_such.deeper", "ModuleNotFoundError")],
)
def test_an_entry_point_that_leads_nowhere(monkeypatch, value, reason):
    entry_point(monkeypatch, value)
    [found] = scan_stages()[1]
    assert found.code == "CW501" and f"entry point own = {value}: " in found.message and reason in found.message
