"""The command line: one file per command, one place where errors become text or JSON and an exit code."""

import argparse
import importlib
import os
import pkgutil
import re
import sys
import traceback
from pathlib import Path

from . import commands
from .diagnostics import codes
from .diagnostics.errors import ChunkwiseError, Diagnostic
from .diagnostics.hints import nearest
from .reporting.memory import out_of_memory
from .reporting.outcome import Outcome, show

INTERRUPTED = 130
"""What shells give a program that Ctrl-C ended."""


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are diagnostics, and which takes no abbreviation of an option."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str):
        help = f"{self.prog} --help lists what it takes"
        if wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            close = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2]))
            help = f"did you mean {close}?" if close else help
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def make_parser() -> Parser:
    parser = Parser(prog="chunkwise", description="Pipelines of chunked linear attention: checked, run, timed, drawn.")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for info in sorted(pkgutil.iter_modules(commands.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f".{info.name}", commands.__name__)
        sub = subparsers.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        sub.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        module.arguments(sub)
        sub.set_defaults(execute=module.execute)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code: 0 passed, 1 failed, 2 refused, 3 environment, 4 a fault of chunkwise."""
    argv = sys.argv[1:] if argv is None else argv
    as_json = "--json" in argv
    try:
        args = make_parser().parse_args(argv)
        if getattr(args, "backend", None) == "interpret":
            interpret_here(argv)
        outcome = args.execute(args)
    except ChunkwiseError as error:
        outcome = Outcome.of_errors(error.diagnostics)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        outcome = Outcome({"interrupted": True}, exit=INTERRUPTED)
    except Exception as error:
        outcome = Outcome.of_errors([diagnosed(error)])
    return shown(outcome, as_json)


def shown(outcome: Outcome, as_json: bool) -> int:
    try:
        show(outcome, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read our output has seen enough (head -1); closing it must not complain either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return outcome.exit


def interpret_here(argv: list[str]) -> None:
    """Interpreted and compiled kernels do not mix in one process: start again with the interpreter switched on."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        os.execve(sys.executable, [sys.executable, "-m", __package__, *argv], environment)


def diagnosed(error: Exception) -> Diagnostic:
    """What is not a user's mistake: out of memory, or a fault of chunkwise, with its traceback in a file."""
    if out_of_memory(error):
        first = str(error).splitlines()[0] if str(error) else "out of memory"
        return Diagnostic(
            codes.OUT_OF_MEMORY, first, help="take a smaller workload, or --axes with a smaller B, T or H"
        )
    path = Path("out") / "traceback.txt"
    text = "".join(traceback.format_exception(error))
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        help = f"this is a fault of chunkwise; please report it with {path}"
    except OSError:
        print(text, file=sys.stderr)
        help = "this is a fault of chunkwise; please report it with the traceback above"
    return Diagnostic(codes.INTERNAL, f"{type(error).__name__}: {error}", help=help)
