"""A function of a stage file while it runs: what it raises is said as the file's author needs it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from traceback import walk_tb

import torch

from ...stages._contract import Config, Launcher
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.marks import Mark
from ..reporting.memory import out_of_memory
from .stage_library import Stage
from .stage_source import StageSource

Place = Callable[[StageSource], Mark]
"""Where something stands in a stage file."""


def own_code(stage: Stage, function: str, place: Place, id: str | None = None) -> AbstractContextManager:
    """While a function of a stage runs. A shipped stage runs as it is: what it raises is a fault of chunkwise.

    function, id: who it is, in words, and where it stands in the pipeline. place: for errors of which no line is known.
    """
    return nullcontext() if stage.shipped else watched(stage, function, place, id)


@contextmanager
def watched(stage: Stage, function: str, place: Place, id: str | None) -> Iterator[None]:
    """Anything but Ctrl-C that a stage from outside the checkout raises, an exit too, is a ChunkwiseError; autograd is
    switched as before afterwards."""
    recording = torch.is_grad_enabled()
    try:
        yield
    except (ChunkwiseError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a stage file is code: anything may be raised
        if out_of_memory(error):
            raise
        raise ChunkwiseError(failure(stage, function, place, id, error)) from error
    finally:
        torch.set_grad_enabled(recording)


def failure(stage: Stage, function: str, place: Place, id: str | None, error: BaseException) -> Diagnostic:
    """What the stage raised, at the line of its file that led there."""
    lines = [number for frame, number in walk_tb(error.__traceback__) if frame.f_code.co_filename == stage.file]
    source = StageSource(stage.path)
    mark = source.statement(lines[-1]) if lines else place(source)
    label = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    message = f"{function} {stage.path.stem} failed"
    return Diagnostic(codes.STAGE_FAILED, f"{id}: {message}" if id else message, mark, label=label)


def launcher_code(stage: Stage, launcher: Launcher, field: str, id: str | None = None) -> AbstractContextManager:
    """While a function of a launcher runs. field: when, configs or launch."""
    listed = "VJP_LAUNCHERS" if stage.is_vjp or launcher in stage.vjp_launchers else "LAUNCHERS"
    return own_code(stage, f"{field} of {launcher.name} of", lambda source: source.assignment(listed), id)


def refusal(stage: Stage, launcher: Launcher, axes: Mapping, device: str, id: str | None = None) -> str | None:
    """Why a launcher does not take these sizes on that class of device; None where it does."""
    with launcher_code(stage, launcher, "when", id):
        return launcher.when(axes, device)


def configurations(stage: Stage, launcher: Launcher, axes: Mapping, device: str, id: str | None = None) -> list[Config]:
    """What a launcher ships for these sizes on that class of device, the best first."""
    with launcher_code(stage, launcher, "configs", id):
        return list(launcher.configs(axes, device))
