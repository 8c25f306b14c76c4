"""Compile every stage's kernels for sm_80, sm_90 and sm_100 without a GPU.

Run as ``python -m chunkwise.runner.compiling.compile_check``.

Without ``--all``: each launcher's first configuration, bf16, K = V = 128, C = 64, a plain batch. With it: every
shipped configuration, dtype and size (``compile_cases.all_cases``). The table goes to stdout, progress to stderr.
Exit 1 when a kernel does not compile or wants more shared memory than the architecture has, 2 for an unknown stage,
3 without Triton. Results are kept in ``.compile_cache`` by the hash of the kernel's source.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, quoted
from ..diagnostics.render_errors import render
from ..graphs.wire import did_you_mean
from ..planning.dtypes import IO_DTYPES
from ..stage_files.stage_library import Stage, find_stages
from .compile_cases import DTYPES, Case, all_cases, default_cases
from .compile_kernel import SHARED_LIMIT, Compiled, compile_launch
from .meta_launches import meta_launches

CACHE = Path(".compile_cache")
COLUMNS = "stage kernel form dtype sizes config arch registers spills stack shared matrix seconds fault".split()


@dataclass(frozen=True)
class Row:
    """One kernel of a case, compiled."""

    case: Case
    kernel: str
    compiled: Compiled

    @property
    def fault(self) -> str:
        """Why it could not run on the architecture, or ""."""
        limit = SHARED_LIMIT[self.case.arch]
        if self.compiled.shared > limit:
            return f"{self.compiled.shared} bytes of shared memory, sm_{self.case.arch} has {limit}"
        return self.compiled.error

    def cells(self) -> tuple[str, ...]:
        case, found = self.case, self.compiled
        sizes = " ".join(f"{axis}{case.axes[axis]}" for axis in "KVC")
        config = " ".join(f"{name}={value}" for name, value in case.config.items())
        numbers = (found.registers, found.spills, found.stack, found.shared, found.matrix or "-", found.seconds)
        cells = (case.name, self.kernel, case.form, case.dtype, sizes, config, f"sm_{case.arch}", *numbers, self.fault)
        return tuple(str(cell) for cell in cells)

    def as_json(self) -> dict:
        case = self.case
        facts = {"stage": case.name, "kernel": self.kernel, "form": case.form, "dtype": case.dtype}
        return {**facts, "arch": case.arch, "config": dict(case.config), **asdict(self.compiled), "fault": self.fault}


@cache
def stages() -> dict[str, Stage]:
    return find_stages()


def check(case: Case) -> list[Row]:
    """Compile the kernels of one case."""
    stage = stages()[case.stage]
    launcher = (stage.vjp_launchers if case.backward else stage.launchers)[case.launcher]
    io = IO_DTYPES[case.dtype]
    launches = meta_launches(stage.contract, launcher, case.backward, case.axes, io, case.form, case.config)
    return [Row(case, launch.kernel.__name__, compile_launch(launch, case.arch, CACHE)) for launch in launches]


def check_all(cases: Iterable[Case], workers: int) -> Iterator[list[Row]]:
    """In the order of the cases. One worker means this process."""
    if workers == 1:
        yield from map(check, cases)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(check, cases)


def table(rows: Iterable[tuple[str, ...]]) -> str:
    rows = [tuple(COLUMNS), *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chunkwise.runner.compiling.compile_check", description=__doc__)
    parser.add_argument("stages", nargs="*", help="names of stages; all without")
    parser.add_argument("--all", action="store_true", help="every shipped configuration, dtype and size")
    parser.add_argument("--arch", type=int, choices=SHARED_LIMIT, help="only this one, e.g. 90")
    parser.add_argument("--dtype", choices=DTYPES, help="only this IO dtype")
    parser.add_argument("--workers", type=int, default=2, help="processes that compile (default: 2)")
    parser.add_argument("--json", action="store_true", help="one JSON list instead of the table")
    asked = parser.parse_args(arguments)
    # kernels that were decorated for the interpreter cannot be compiled
    os.environ.pop("TRITON_INTERPRET", None)
    try:
        chosen = choose(asked.stages)
    except ChunkwiseError as error:
        print("\n".join(map(render, error.diagnostics)), file=sys.stderr)
        return codes.exit_code(diagnostic.code for diagnostic in error.diagnostics)
    cases = (all_cases if asked.all else default_cases)(chosen)
    cases = [case for case in cases if asked.arch in (None, case.arch) and asked.dtype in (None, case.dtype)]
    rows = progress(cases, asked.workers)
    print(json.dumps([row.as_json() for row in rows], indent=1) if asked.json else table(row.cells() for row in rows))
    faults = sum(bool(row.fault) for row in rows)
    print(f"{len(rows)} kernels, {faults} with a fault", file=sys.stderr)
    return 1 if faults else 0


def choose(names: list[str]) -> list[Stage]:
    """The stages of these names, or all."""
    if find_spec("triton") is None:
        message = "compile checks need triton, which is not installed"
        raise ChunkwiseError(Diagnostic(codes.BACKEND, message, help="pip install triton (Linux only)"))
    for name in names:
        if name not in stages():
            help = did_you_mean(name, stages())
            raise ChunkwiseError(Diagnostic(codes.UNKNOWN_STAGE, f"there is no stage {quoted(name)}", help=help))
    return [stages()[name] for name in names or stages()]


def progress(cases: list[Case], workers: int) -> list[Row]:
    rows = []
    for done, found in enumerate(check_all(cases, workers), start=1):
        rows += found
        for row in found:
            state = row.fault or f"{row.compiled.seconds} s"
            where = f"{row.case.name} {row.kernel} sm_{row.case.arch} {row.case.dtype}"
            print(f"[{done}/{len(cases)}] {where}: {state}", file=sys.stderr)
    return rows


if __name__ == "__main__":
    sys.exit(main())
