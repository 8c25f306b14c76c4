"""The Makefile and .ci/run, with a Python that only writes down how it was called."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")

ROOT = Path(__file__).parents[1]
TARGETS = "help setup run check verify bench graph show export list explain doctor test gpu-test lint".split()
TARGETS += ["compile-all", "schema", "bench-peers", "tune"]
FAKE_PYTHON = f"""#!/bin/sh
if [ "$1" = -c ]; then exec {sys.executable} "$@"; fi
printf '%s|' "$@" >> "$CALLS"; echo "PIP_TARGET=$PIP_TARGET" >> "$CALLS"
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) sleep "${{PIP_SECONDS:-0}}"; exit "${{PIP_EXIT:-0}}" ;;
  chunkwise.runner) echo "result of $3"; exit "${{RUNNER_EXIT:-0}}" ;;
  pytest) exit "${{PYTEST_EXIT:-0}}" ;;
esac
"""


class Checkout:
    """A folder with the Makefile, what it depends on, and a Python of its own on PATH."""

    def __init__(self, folder, bin):
        self.folder, self.calls_file = folder, bin / "calls"
        inherited = ("MAKE", "MFLAGS", "PIP_", "VENV", "PYTHON", "PIPE", "ARGS", "VIRTUAL_ENV")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(inherited)}
        self.environment |= {"PATH": f"{bin}:{os.environ['PATH']}", "CALLS": str(self.calls_file)}

    def start(self, *command, **environment):
        return subprocess.Popen(
            command, cwd=self.folder, env={**self.environment, **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def make(self, *arguments, **environment):
        """(exit code, stdout, stderr)"""
        return self.run("make", *arguments, **environment)

    def run(self, *command, **environment):
        process = self.start(*command, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    @property
    def calls(self):
        """The calls of the Python, each as its arguments; the last one is the PIP_TARGET that it saw."""
        text = self.calls_file.read_text() if self.calls_file.exists() else ""
        return [line.split("|") for line in text.splitlines()]

    def count(self, module):
        return sum(call[1] == module for call in self.calls)


@pytest.fixture
def checkout(tmp_path):
    folder, bin = tmp_path / "check out", tmp_path / "bin"
    for path in (folder / "pipelines", folder / ".ci", bin):
        path.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/run"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "pipelines" / "some.yaml").touch()
    (bin / "python3").write_text(FAKE_PYTHON)
    (bin / "python3").chmod(0o755)
    return Checkout(folder, bin)


def test_make_alone_lists_every_target_and_sets_nothing_up(checkout):
    code, out, _ = checkout.make()
    assert code == 0 and checkout.calls == []
    assert sorted(line.split()[0] for line in out.splitlines()) == sorted(TARGETS)
    assert all(len(line.split()) > 2 for line in out.splitlines())


def test_the_first_use_sets_up_and_the_next_does_not(checkout):
    code, out, err = checkout.make("list")
    assert (code, out) == (0, "result of list\n")
    assert "setting up .venv" in err
    pip = "-m pip install -qq --disable-pip-version-check -c constraints.txt -e .[dev]"
    assert checkout.calls[1][:-1] == pip.split()
    assert (checkout.folder / ".dev/chunkwise/runner").readlink() == Path("../../runner")
    assert checkout.make("list")[1:] == ("result of list\n", "")
    assert (checkout.count("venv"), checkout.count("pip")) == (1, 1)


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_installed_sets_up_again(checkout, file):
    checkout.make("setup")
    (checkout.folder / ".venv/kept").touch()
    later = time.time() + 5
    os.utime(checkout.folder / file, (later, later))
    assert checkout.make("setup")[0] == 0
    assert checkout.count("pip") == 2 and (checkout.folder / ".venv/kept").exists()


def test_a_set_up_that_broke_off_starts_over(checkout):
    assert checkout.make("list", PIP_EXIT="1")[0] != 0
    assert checkout.count("chunkwise.runner") == 0
    (checkout.folder / ".venv/half").touch()
    assert checkout.make("list")[0] == 0
    assert not (checkout.folder / ".venv/half").exists()


def test_a_set_up_that_was_killed_starts_over(checkout):
    process = checkout.start("make", "list", PIP_SECONDS="30")
    while checkout.count("pip") == 0:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)
    assert (checkout.folder / ".venv/.unfinished").exists()
    assert checkout.make("list")[0] == 0
    assert checkout.count("venv") == 2


def test_two_at_once_set_up_once(checkout):
    both = [checkout.start("make", "list", PIP_SECONDS="1") for _ in range(2)]
    results = [(process.communicate(timeout=60)[0], process.returncode) for process in both]
    assert results == [("result of list\n", 0)] * 2
    assert (checkout.count("venv"), checkout.count("pip")) == (1, 1)


def test_a_venv_that_came_along_from_another_folder_is_set_up_again(checkout):
    checkout.make("setup")
    moved = checkout.folder.with_name("moved")
    shutil.copytree(checkout.folder, moved, symlinks=True)
    checkout.folder = moved
    checkout.make("setup")
    assert checkout.count("pip") == 2


def test_a_venv_made_by_hand_is_installed_into(checkout):
    (checkout.folder / ".venv").mkdir()
    (checkout.folder / ".venv/by hand").touch()
    assert checkout.make("setup")[0] == 0
    assert (checkout.folder / ".venv/by hand").exists()


def test_a_callers_settings_for_pip_do_not_count(checkout):
    checkout.make("setup", PIP_TARGET="/elsewhere", VIRTUAL_ENV="/another/venv")
    assert [call[-1] for call in checkout.calls] == ["PIP_TARGET="] * 2


@pytest.mark.parametrize("target", ["run", "verify", "graph", "show", "export"])
def test_a_missing_pipe_is_explained(checkout, target):
    code, out, err = checkout.make(target)
    assert code != 0 and out == "" and checkout.calls == []
    assert f"make {target} PIPE=some.yaml" in err


def test_pipe_and_args_are_passed_on(checkout):
    checkout.make("setup")
    checkout.make("run", "PIPE=my files/a.yaml", "ARGS=--axes T=512 --json")
    checkout.make("check")
    checkout.make("show", "PIPE=chunk_o")
    checkout.make("explain", "ABOUT=CW304")
    checkout.make("explain")
    runs = [call[1:-1] for call in checkout.calls if call[1] == "chunkwise.runner"]
    assert runs[0] == ["chunkwise.runner", "run", "my files/a.yaml", "--axes", "T=512", "--json"]
    assert runs[1:] == [
        ["chunkwise.runner", "check", "some.yaml"],
        ["chunkwise.runner", "show", "chunk_o"],
        ["chunkwise.runner", "explain", "CW304"],
        ["chunkwise.runner", "explain"],
    ]


def test_stdout_is_the_result_alone(checkout):
    checkout.folder, inside = checkout.folder.parent, checkout.folder.name
    assert checkout.make("-s", "-C", inside, "run", "PIPE=some")[:2] == (0, "result of run\n")


def test_make_fails_where_the_command_fails(checkout):
    checkout.make("setup")
    assert checkout.make("run", "PIPE=some", RUNNER_EXIT="1")[0] != 0
    assert checkout.make("test", PYTEST_EXIT="1")[0] != 0


def test_without_a_venv_the_python_on_path_runs(checkout):
    for targets in (["setup", "gpu-test"], ["list"]):
        code, _, err = checkout.make(*targets, "VENV=none")
        assert (code, err) == (0, "")
    assert [call[:-1] for call in checkout.calls] == [
        "-m pip install -q --no-build-isolation --no-deps -e .".split(),
        "-m pytest -m gpu --require-gpu -rs".split(),
        "-m chunkwise.runner list".split(),
    ]
    assert not (checkout.folder / ".venv").exists()


def test_ci_lints_and_tests_and_fails_without_tests(checkout):
    assert checkout.run("bash", ".ci/run")[0] == 0
    tests = ["pytest", "-n", "2", "--dist", "worksteal", "-rs"]
    assert [call[1:-1] for call in checkout.calls[2:]] == [["ruff", "check", "."], tests]
    assert checkout.run("bash", ".ci/run", PYTEST_EXIT="5")[0] != 0
