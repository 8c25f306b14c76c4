"""What a command found, and how it is shown: text for people, one JSON document for programs."""

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..diagnostics.codes import CODES
from ..diagnostics.errors import Diagnostic
from ..diagnostics.render_errors import as_json, render


@dataclass(frozen=True)
class Outcome:
    """document: the JSON. text: strings and rich renderables for stdout. errors and warnings go to stderr.
    quiet: another rank says the same."""

    document: dict[str, Any]
    text: Sequence[Any] = ()
    errors: Sequence[Diagnostic] = ()
    warnings: Sequence[Diagnostic] = field(default_factory=tuple)
    exit: int = 0
    quiet: bool = False

    @staticmethod
    def of_errors(found: Iterable[Diagnostic], document: dict | None = None, text: Sequence = ()) -> "Outcome":
        found = tuple(found)
        return Outcome(document or {}, text, found, exit=max(CODES[each.code].exit for each in found))


INTERRUPTED = Outcome({"interrupted": True}, exit=130)
"""After Ctrl-C; 130 is what shells give a program that it ended."""


def show(outcome: Outcome, json_wanted: bool) -> int:
    """Print the outcome; returns its exit code."""
    if outcome.quiet:
        return outcome.exit
    if json_wanted:
        print(document_text(outcome), end="")
        return outcome.exit
    print_text(outcome.text)
    for each in (*outcome.warnings, *outcome.errors):
        print(render(each, colour=colours(sys.stderr)), file=sys.stderr, end="\n\n")
    return outcome.exit


def document_text(outcome: Outcome) -> str:
    """The one JSON document of an outcome."""
    document = {"ok": outcome.exit == 0, **outcome.document, "errors": [as_json(each) for each in outcome.errors]}
    if outcome.warnings:
        document["warnings"] = [as_json(each) for each in outcome.warnings]
    return json.dumps(finite(document), indent=2) + "\n"


def finite(value):
    """JSON has no nan and no infinity: they become strings."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def colours(stream) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def print_text(parts: Sequence) -> None:
    from rich.console import Console

    class Stdout(Console):
        def on_broken_pipe(self):
            raise  # main knows what to do; rich would exit with 1

    width = None if sys.stdout.isatty() else 200
    console = Stdout(no_color=not colours(sys.stdout), width=width, highlight=False, emoji=False, soft_wrap=True)
    for part in parts:
        console.print(part, markup=False)


class Progress:
    """What long work is doing, on stderr: one line that changes on a terminal, plain lines elsewhere."""

    def __init__(self):
        self.stream, self.live = sys.stderr, sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self.live:
            print(f"\r\x1b[2K{text} ...", end="", file=self.stream, flush=True)
        else:
            print(text, file=self.stream, flush=True)

    def done(self) -> None:
        if self.live:
            print("\r\x1b[2K", end="", file=self.stream, flush=True)
