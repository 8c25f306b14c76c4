"""A process of its own for what may crash, hang or spoil the device for all that comes after it."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from .job import Job
from .trials import Trials

STARTING = 60
"""Seconds until a process is ready: PyTorch is imported, the op loaded."""
DONE, FAILED, CRASHED, HUNG = "done", "failed", "crashed", "hung"


@dataclass(frozen=True)
class Answer:
    """what: DONE, with the result; else what happened, in words."""

    what: str
    result: Any


def serve(connection, job: Job) -> None:
    """The child's work: each order is a method of Trials with its arguments. Ctrl-C is its parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    trials = Trials(job)
    connection.send(Answer(DONE, None))
    while True:
        try:
            name, *arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = Answer(DONE, getattr(trials, name)(*arguments))
        except Exception as error:  # a configuration may fail in any way
            answer = Answer(FAILED, in_words(error))
        connection.send(answer)


def in_words(error: Exception) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


class Child:
    """One process at a time, started at the first order; after it crashed or hung the next order has a new one."""

    def __init__(self, job: Job, patience: float, begun: Callable[[], None] = lambda: None):
        """patience: seconds for an order. begun: is called where a process starts."""
        self.job, self.patience, self.begun, self.process, self.connection = job, patience, begun, None, None

    def ask(self, *order) -> Answer:
        if self.process is None and (failed := self.start()).what != DONE:
            return failed
        return self.answer(order, self.patience)

    def start(self) -> Answer:
        """Forked from a process that has PyTorch imported and did nothing with it."""
        self.begun()
        context = get_context("forkserver")
        context.set_forkserver_preload([Trials.__module__])
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.job), daemon=True)
        self.process.start()
        theirs.close()
        return self.answer(None, STARTING)

    def answer(self, order: tuple | None, patience: float) -> Answer:
        try:
            if order is not None:
                self.connection.send(order)
            if self.connection.poll(patience):
                return self.connection.recv()
        except (EOFError, OSError):
            return Answer(CRASHED, f"the process ended {described(self.ended())}")
        self.end()
        return Answer(HUNG, f"no answer within {patience:g} s")

    def ended(self) -> int | None:
        """The exit code of a process whose end of the line is gone."""
        self.process.join(10)
        code = self.process.exitcode
        self.end()
        return code

    def end(self) -> None:
        """At once: a process that hangs listens to nothing else."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.connection.close()
        self.process = self.connection = None


def described(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"
