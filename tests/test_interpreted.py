"""Runs the files of tests/interpreted in processes of their own, with Triton's interpreter switched on.

Interpreted and compiled kernels do not mix in one process: the switch is read when a kernel is decorated.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[1]
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "interpreted").glob("test_*.py"))
PARTS = 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_files(part):
    """A process for every fifth file: each takes seconds to start, and two at a time have enough to do."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *FILES[part::PARTS]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
