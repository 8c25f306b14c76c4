"""Ctrl-C in the process of the command line: one line, exit code 130, wherever it comes.

A KeyboardInterrupt gets lost: out of a class body it comes as a RuntimeError (Python before 3.12), out of C code as a
SystemError, a bare ``except`` takes it, a weakref callback or ``__del__`` drops it, and none is raised while C code
waits, for a kernel that hangs, say. So none is raised: a thread hears of the signal and ends the process at once. Child
processes hear of the signal themselves. What must not be left behind says so by ``cleaned_up``.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress

from .reporting.outcome import INTERRUPTED, document_text

LEFT: list[Callable[[], object]] = []
"""What is still to be cleaned up, the last first."""
ENDING = threading.Event()
results = 1
"""Where results go, as a file descriptor."""


@contextmanager
def cleaned_up(clean: Callable[[], object]):
    """clean runs at the end of the block, and where Ctrl-C ends the process inside it; then perhaps twice."""
    LEFT.append(clean)
    try:
        yield
    finally:
        if ENDING.is_set():  # the thread does it, and what its work looks like here is nobody's error
            threading.Event().wait()
        clean()
        LEFT.remove(clean)


def arm() -> None:
    """From here on Ctrl-C ends the process. In the main thread; a signal that the caller ignores (nohup) stays so."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.signal(signal.SIGINT, armed)
    signal.set_wakeup_fd(writer.fileno())
    threading.Thread(target=end_at_signal, args=(reader, writer), daemon=True).start()


def armed(number, frame) -> None:
    """Python's part of the signal: nothing, the thread does it all."""


def disarm() -> None:
    """Results are about to be printed: Ctrl-C ends that as it ends any program that prints."""
    if signal.getsignal(signal.SIGINT) is armed:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_at_signal(reader: socket.socket, writer: socket.socket) -> None:
    """writer: held, so that it lives as long as the thread. Python's own streams may be locked and are not touched."""
    while reader.recv(1) != bytes([signal.SIGINT]):
        pass
    ENDING.set()
    for clean in reversed(LEFT):
        with suppress(Exception):
            clean()
    line = b"\ninterrupted\n" if os.isatty(2) else b"interrupted\n"
    with suppress(OSError):
        os.write(2, line)
        if "--json" in sys.argv:
            os.write(results, document_text(INTERRUPTED).encode())
    os._exit(INTERRUPTED.exit)
