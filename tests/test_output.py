"""Where results go: places that take nothing, streams that are closed, the version and the help."""

import json
import sys
from pathlib import Path

import pytest

import chunkwise.runner
from chunkwise.runner.__main__ import settle_streams
from chunkwise.runner.main import main
from chunkwise.runner.reporting.environment import package_version

SMALL = ("--axes", "T=20,K=16,V=24,H=1,HV=1", "--device", "cpu")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(capsys):
    """(exit code, stdout, stderr) of a command line."""

    def run(*argv):
        return main(list(argv)), *capsys.readouterr()

    return run


@pytest.mark.parametrize("argv", [["explain"], ["explain", "--json"], ["list"], ["--help"]], ids=" ".join)
def test_a_full_disk_is_one_line(argv, monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = main(argv)
        monkeypatch.undo()
    assert code == 3
    assert capsys.readouterr().err == "error[CW704]: the result cannot be printed: No space left on device\n\n"


def test_no_stream_takes_anything(monkeypatch):
    def refuse(text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.stderr, "write", refuse)
    assert main(["show", "nothing"]) == 2


def test_closed_streams_and_poor_encodings(here, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", open("error", "w"))
    settle_streams()
    assert main(["show", "gated_delta"]) == 0 and main(["show", "nothing"]) == 2
    monkeypatch.setattr(sys, "stdout", open("ascii", "w", encoding="ascii"))
    settle_streams()
    print("\N{GREEK SMALL LETTER ALPHA} \udcff")
    sys.stdout.close()
    assert (here / "ascii").read_text() == "\\u03b1 \\udcff\n"


def test_a_file_that_cannot_be_written(command, here):
    (here / "out" / "simple_gla" / "drawing.dot").mkdir(parents=True)
    code, out, err = command("graph", "simple_gla", "--format", "dot")
    assert (code, out) == (2, "")
    assert err.startswith("error[CW601]: out/simple_gla/drawing.dot cannot be written: Is a directory\nhelp: ")


@pytest.mark.parametrize("name", ["run", "graph"])
def test_a_folder_that_takes_no_files_is_said_before_any_work(command, monkeypatch, name):
    """As a read-only folder is for anyone but root."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    code, out, err = command(name, "simple_gla", "--out", "there")
    assert (code, out) == (2, "")
    assert err.startswith("error[CW601]: --out there: there/simple_gla cannot be written to\nhelp: ")


def test_every_result_is_written_by_write_file():
    """Apart from the traceback, the compile cache, the schema and a user's own file that is repaired, which say by
    themselves what went wrong, and the cache of generated kernels, which goes to another folder then."""
    runner = Path(chunkwise.runner.__file__).parent
    texts = {path.name: path.read_text(encoding="utf-8") for path in runner.rglob("*.py")}
    others = {name for name, text in texts.items() if ".write_text(" in text or ".write_bytes(" in text}
    assert others == {"write_file.py", "main.py", "compile_kernel.py", "schema.py", "load_source.py", "fix_file.py"}


@pytest.mark.parametrize("file, exit_code, message", [
    ("no/op.py", 2, "error[CW601]: no/op.py cannot be written: No such file or directory\nhelp: "),
    ("/dev/full", 3, "error[CW704]: /dev/full cannot be written: No space left on device\nhelp: "),
])  # fmt: skip
def test_export_to_a_place_that_takes_no_file(command, file, exit_code, message):
    code, out, err = command("export", "simple_gla", "-o", file)
    assert (code, out) == (exit_code, "") and err.startswith(message)


def test_a_dash_is_stdout_or_refused(command, here):
    code, out, err = command("run", "simple_gla", *SMALL, "--out", "-")
    assert (code, out) == (2, "") and "error[CW601]: --out -: this command writes several files" in err
    code, out, _ = command("graph", "simple_gla", "--format", "dot", "--out", "-")
    assert code == 0 and out.startswith("digraph") and list(here.iterdir()) == []


def test_a_drawing_leaves_that_of_a_run_alone(command, here):
    (here / "out" / "simple_gla").mkdir(parents=True)
    timed = here / "out" / "simple_gla" / "graph.svg"
    timed.write_text("with times")
    assert command("graph", "simple_gla")[0] == 0 and timed.read_text() == "with times"


FOLDERS = {
    "its --out": (["run", "simple_gla", *SMALL, "--out", "mine"], "mine"),
    "out without one": (["check", "simple_gla"], "out"),
    "out where --out is a file": (["export", "simple_gla", "-o", "op.py"], "out"),
    "out where new writes a file": (["new", "mine", "--from", "a.yaml", "-o", "mine.yaml"], "out"),
    "out where new is told none": (["new", "mine", "--from", "a.yaml"], "out"),
    "out beside a dash": (["graph", "simple_gla", "--out", "-"], "out"),
}


@pytest.mark.parametrize("argv, folder", FOLDERS.values(), ids=FOLDERS)
def test_where_a_traceback_goes(command, here, monkeypatch, argv, folder):
    def fail(*args, **kwargs):
        raise ZeroDivisionError("on purpose")

    for module in ("_subject", "check", "export", "graph"):
        monkeypatch.setattr(f"chunkwise.runner.commands.{module}.load", fail)
    monkeypatch.setattr("chunkwise.runner.commands.new.read", fail)
    code, out, err = command(*argv)
    assert (code, out) == (4, "") and err.endswith(f"please report it with {folder}/traceback.txt\n\n")
    assert "on purpose" in (here / folder / "traceback.txt").read_text()


@pytest.mark.parametrize("argv", [[], ["--help"]], ids=["nothing", "--help"])
def test_the_help_is_a_result(command, argv):
    code, out, err = command(*argv)
    assert (code, err) == (0, "") and out.startswith("usage: chunkwise ") and "\n    verify " in out
    code, out, err = command(*argv, "--json")
    assert (code, err) == (0, "") and json.loads(out)["help"].startswith("usage: chunkwise ")


def test_the_version(command):
    code, out, err = command("--version")
    assert (code, out, err) == (0, f"chunkwise {package_version('chunkwise')}\n", "")
    assert json.loads(command("--version", "--json")[1])["version"] == package_version("chunkwise")


def test_text_is_printed_as_it_is(command, here):
    """Colons and brackets are no emoji and no markup."""
    text = '''"""Smile :smile: and [bold]."""
from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")})


def reference(x):
    return {"y": x}
'''
    (here / "own.py").write_text(text)
    assert "Smile :smile: and [bold]." in command("show", "own", "--stages", ".")[1]
