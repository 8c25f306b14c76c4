"""Two trees of code measured by turns: each bench is a process of its own that imports its tree."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import interrupt
from ..benching.record import FILE, Record, read_records
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..reporting.outcome import INTERRUPTED
from .rounds import over_rounds
from .trees import Tree, said

PROGRESS = re.compile(r"\[\d+/\d+\] ")
"""How a line of bench's progress starts."""


@dataclass(frozen=True)
class Measured:
    """records: over all rounds. failures: what the first round says is wrong."""

    records: list[Record]
    failures: tuple[Diagnostic, ...]


def race(
    trees: Sequence[Tree], command: Callable[[Tree], list[str]], rounds: int, progress: Callable[[str], None]
) -> list[Measured]:
    """Every other round goes the other way round. What the first round verified is not verified again. Raises
    ChunkwiseError where a tree measures nothing."""
    found: dict[Tree, list[Measured]] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            title = f"{tree.hash}, round {number + 1} of {rounds}"
            words = [*command(tree), *(["--no-gate"] if number else [])]
            found[tree].append(bench(tree, words, number, lambda text: progress(f"{title}: {text}")))  # noqa: B023
    return [Measured(over_rounds([each.records for each in mine]), mine[0].failures) for mine in found.values()]


def bench(tree: Tree, words: list[str], number: int, progress: Callable[[str], None]) -> Measured:
    out, result = tree.folder / f"round-{number}", tree.folder / f"round-{number}.json"
    command = [sys.executable, "-m", "chunkwise.runner", "bench", *words, "--out", str(out), "--json"]
    path = os.pathsep.join(filter(None, (str(tree.folder), os.environ.get("PYTHONPATH"))))
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with result.open("w") as stdout:
        child = subprocess.Popen(
            command, cwd=tree.folder, env={**os.environ, "PYTHONPATH": path}, stdout=stdout, **pipes
        )
    with interrupt.cleaned_up(lambda: end(child)):
        last = ""
        for line in child.stderr:
            last = line.strip() or last
            if PROGRESS.match(line):
                progress(line.strip())
        child.wait()
    if child.returncode == INTERRUPTED.exit:
        raise KeyboardInterrupt
    failures = failures_of(tree, result, f"its bench ended with {child.returncode}: {last}")
    records = read_records(out / FILE) if (out / FILE).exists() else []
    if not records:
        raise ChunkwiseError(*failures or [Diagnostic(codes.RECORDS, f"{said(tree)}: its bench measured nothing")])
    return Measured([named(tree, record) for record in records], failures)


def end(child: subprocess.Popen) -> None:
    child.kill()
    child.wait()
    child.stderr.close()


def failures_of(tree: Tree, result: Path, otherwise: str) -> tuple[Diagnostic, ...]:
    """What the one document of a bench says is wrong. otherwise: in words, where there is no document."""
    try:
        errors = json.loads(result.read_text(encoding="utf-8"))["errors"]
        return tuple(diagnostic(tree, each) for each in errors)
    except (OSError, ValueError, KeyError, TypeError):
        return (Diagnostic(codes.INTERNAL, f"{said(tree)}: {otherwise}"),)


def diagnostic(tree: Tree, error: dict) -> Diagnostic:
    """A code that only the other revision knows is no code here."""
    code = error["code"] if error["code"] in codes.CODES else codes.USAGE
    return Diagnostic(code, f"{said(tree)}: {error['message']}", help=error.get("help"))


def named(tree: Tree, record: Record) -> Record:
    """Its source by a path that outlives the tree's folder."""
    source = record.what.source
    if source is None:
        return record
    return replace(record, what=replace(record.what, source=replace(source, file=tree.shown(source.file))))
