"""Scripts around chunkwise, as in examples/: what their options take, and mistakes that are told without a traceback.

    @told
    def main(argv=None) -> int:
        parser = argparse.ArgumentParser()
        device_option(parser)
        parser.add_argument("--heads", type=whole, default=32)
        ...

What argparse refuses ends a script with its usage; what chunkwise refuses, before or in the work, with its error.
"""

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import torch

from .benching.peers import first_line, names
from .diagnostics import codes
from .diagnostics.errors import ChunkwiseError, Diagnostic
from .graphs.wire import did_you_mean
from .planning.devices import read_device
from .reporting.memory import out_of_memory
from .reporting.outcome import INTERRUPTED

LARGEST = 10**9 - 1


def told(main: Callable[[list[str] | None], int | None]) -> Callable[..., int]:
    """main(argv) -> exit code, None for 0; its errors go to stderr, and their codes say how the script ends."""

    @wraps(main)
    def run(argv: list[str] | None = None) -> int:
        try:
            return main(argv) or 0
        except ChunkwiseError as error:
            found = error
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED.exit
        except Exception as error:
            if not out_of_memory(error):
                raise
            found = ChunkwiseError(Diagnostic(codes.OUT_OF_MEMORY, first_line(error), help="take smaller sizes"))
        print(found, file=sys.stderr)
        return codes.exit_code(each.code for each in found.diagnostics)

    return run


def device_option(parser: ArgumentParser, default: str | None = None) -> None:
    """--device as a torch.device: a GPU if there is one, where there is no other default."""
    usual = default or ("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", type=read_device, default=usual, metavar="cpu|cuda[:N]", help=f"{usual} by default")


def whole(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {LARGEST}")
    return int(text)


def wholes(text: str) -> list[int]:
    """With commas between."""
    return [whole(each.strip()) for each in text.split(",")]


def peer_names(text: str) -> list[str]:
    """Names that ``chunkwise bench --vs`` takes, with commas between; none of an empty text."""
    found = [each.strip() for each in text.split(",") if each.strip()]
    for name in found:
        if name not in names():
            raise ArgumentTypeError(f"there is no {name!r}: {did_you_mean(name, names()) or ', '.join(names())}")
    return found


def new_file(text: str) -> Path:
    """Where a file can be written, which is found out before the work for it is done."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text!r} cannot be written")
    return path
