"""The command line: one file per command, one place where errors become text or JSON and an exit code."""

import argparse
import importlib
import os
import pkgutil
import re
import sys
import traceback
import warnings
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

from . import commands, interrupt
from .diagnostics import codes
from .diagnostics.errors import ChunkwiseError, Diagnostic
from .diagnostics.hints import meant, nearest
from .planning.tuned import StaleTuning, machines
from .reporting.environment import package_version
from .reporting.memory import out_of_memory
from .reporting.outcome import INTERRUPTED, Outcome, show


class HelpWanted(Exception):
    """--help was given; its text is printed as every result is."""


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are diagnostics, and which takes no abbreviation of an option."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, allow_abbrev=False, **kwargs)
        self.mixed = False
        self.add_argument("--json", action="store_true", help="print one JSON document on stdout")

    def print_help(self, file=None):
        raise HelpWanted(self.format_help())

    def parse_known_args(self, args=None, namespace=None):
        """Of a command: its options may stand between what it takes by position. argparse calls this for each half."""
        if self.mixed or self._subparsers:
            return super().parse_known_args(args, namespace)
        self.mixed = True
        try:
            found, rest = self.parse_known_intermixed_args(args, namespace)
        finally:
            self.mixed = False
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")  # here, where the command's own help is named
        return found, rest

    def error(self, message: str):
        help = f"{self.prog} --help lists what it takes"
        if wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            close = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2]))
            help = f"did you mean {close}?" if close else help
        if wrong := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            close = meant(wrong[1], self._option_string_actions)
            help = f"did you mean {close}?" if close else help
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def make_parser() -> Parser:
    parser = Parser(prog="chunkwise", description="Pipelines of chunked linear attention: checked, run, timed, drawn.")
    parser.add_argument("--version", action="store_true", help="print the version")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for info in sorted(pkgutil.iter_modules(commands.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f".{info.name}", commands.__name__)
        sub = subparsers.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.arguments(sub)
        sub.set_defaults(execute=module.execute)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code: 0 passed, 1 failed, 2 refused, 3 environment, 4 a fault of chunkwise."""
    argv = sys.argv[1:] if argv is None else argv
    args = None
    try:
        refuse_empty(argv)
        args = make_parser().parse_args(argv)
        if getattr(args, "backend", None) == "interpret":
            interpret_here(argv)
        if hasattr(args, "backend"):
            machines()  # a variable that names no such file is a mistake on a CPU too, where no kernel asks for it
        with redirect_stdout(sys.stderr), told_once():  # what a stage prints is no part of the result
            outcome = execute(args)
    except HelpWanted as help:
        outcome = Outcome({"help": str(help)}, [str(help).rstrip()])
    except ChunkwiseError as error:
        outcome = Outcome.of_errors(error.diagnostics)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        outcome = INTERRUPTED
    except BaseException as error:  # an exit too: only a result ends a command
        outcome = Outcome.of_errors([diagnosed(error, folder_of(args))])
    interrupt.disarm()
    return shown(outcome, "--json" in argv)


@contextmanager
def told_once():
    """What a file of tuned configurations has that does not hold here, as a line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", StaleTuning)
        usual, said = warnings.showwarning, set()

        def show(message, category, *place):
            if not issubclass(category, StaleTuning):
                usual(message, category, *place)
            elif str(message) not in said:
                said.add(str(message))
                print(f"note: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield


def refuse_empty(argv: list[str]) -> None:
    """An empty value is a variable of a script that was not set: no option takes it for its default."""
    for before, each in zip(["", *argv], argv):
        if each == "" or re.fullmatch(r"--[a-z-]+=", each):
            option = each[:-1] or before
            what = f"{option} is given an empty value" if option.startswith("-") else "an argument is empty"
            raise ChunkwiseError(Diagnostic(codes.USAGE, what, help="leave it out, or write its value"))


def execute(args: argparse.Namespace) -> Outcome:
    """The command; without one, the version or what ``--help`` says, as ``make`` alone lists its targets."""
    if args.command:
        return args.execute(args)
    if args.version:
        version = package_version("chunkwise") or "(not installed)"
        return Outcome({"version": version}, [f"chunkwise {version}"])
    return make_parser().print_help()


def shown(outcome: Outcome, as_json: bool) -> int:
    try:
        show(outcome, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        forget(sys.stdout)  # whoever read our output has seen enough (head -1)
    except OSError as error:
        forget(sys.stdout)
        lost = Outcome.of_errors([Diagnostic(codes.OUTPUT, f"the result cannot be printed: {error.strerror}")])
        with suppress(OSError):
            return show(lost, json_wanted=False)
    return outcome.exit


def forget(stream) -> None:
    """What a stream still holds goes nowhere, so that its last flush does not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def interpret_here(argv: list[str]) -> None:
    """Interpreted and compiled kernels do not mix in one process: start again with the interpreter switched on."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        os.dup2(interrupt.results, 1)
        os.execve(sys.executable, [sys.executable, "-m", __package__, *argv], environment)


def folder_of(args: argparse.Namespace | None) -> str:
    """The folder that a command line names for files, ``out`` where it names none."""
    out = getattr(args, "out", "-")
    return "out" if out == "-" else out


def diagnosed(error: BaseException, out: str) -> Diagnostic:
    """What is not a user's mistake: out of memory, or a fault of chunkwise, with its traceback in a file in out."""
    if out_of_memory(error):
        first = str(error).splitlines()[0] if str(error) else "out of memory"
        return Diagnostic(
            codes.OUT_OF_MEMORY, first, help="take a smaller workload, or --axes with a smaller B, T or H"
        )
    path = Path(out) / "traceback.txt"
    text = "".join(traceback.format_exception(error))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        help = f"this is a fault of chunkwise; please report it with {path}"
    except OSError:
        print(text, file=sys.stderr)
        help = "this is a fault of chunkwise; please report it with the traceback above"
    return Diagnostic(codes.INTERNAL, f"{type(error).__name__}: {error}", help=help)
