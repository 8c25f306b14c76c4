"""The process of the command line. Nothing heavy is imported before Ctrl-C is armed."""

import os
import sys

from . import interrupt


def main() -> int:
    interrupt.arm()
    settle_streams()
    keep_stdout()
    from .main import main

    return main()


def settle_streams() -> None:
    """A stream that the caller closed takes everything and shows nothing; what an encoding lacks is escaped."""
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    sys.stdout.reconfigure(errors="backslashreplace")


def keep_stdout() -> None:
    """Results alone go to stdout: what C code and child processes print there, a compiler of a peer say, goes to
    stderr."""
    if sys.__stdout__ is None or sys.__stderr__ is None:  # closed by the caller: 1 or 2 may be something else by now
        return
    kept = os.dup(1)
    os.dup2(2, 1)
    interrupt.results = kept
    how = {"encoding": sys.stdout.encoding, "errors": sys.stdout.errors, "buffering": 1 if os.isatty(kept) else -1}
    sys.stdout = open(kept, "w", **how)


if __name__ == "__main__":
    sys.exit(main())
