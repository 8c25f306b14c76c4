"""The process of the command line. Nothing heavy is imported before Ctrl-C is armed."""

import os
import sys

from . import interrupt


def main() -> int:
    interrupt.arm()
    settle_streams()
    from .main import main

    return main()


def settle_streams() -> None:
    """A stream that the caller closed takes everything and shows nothing; what an encoding lacks is escaped."""
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
