"""What ``load`` is given, checked by kind before any file is read."""

import os
from collections.abc import Iterable
from numbers import Integral

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..planning.plan import check_backend


def check_load(pipeline, backend, stages, memory_budget) -> None:
    """Raises ChunkwiseError: every argument of another kind than load documents."""
    found = []
    if not is_path(pipeline):
        found.append(refused(f"a pipeline is a name or a path, not {kind(pipeline)}", 'load("gated_delta")'))
    elif not os.fspath(pipeline):
        found.append(refused("the name of the pipeline is empty", 'load("gated_delta")'))
    if is_path(stages):
        found.append(refused(f"stages is a list of folders, not {kind(stages)}", f"stages=[{str(stages)!r}]"))
    elif not isinstance(stages, Iterable) or not all(map(is_path, stages)):
        found.append(refused("stages is a list of folders, each a text or a path", 'stages=["my_stages"]'))
    if memory_budget is not None and not is_count(memory_budget):
        message = f"memory_budget is a whole number of bytes, from 0, not {memory_budget!r}"
        found.append(refused(message, "memory_budget=500 * 10**6 is 500 MB"))
    if found:
        raise ChunkwiseError(*found)
    check_backend(backend)


def refused(message: str, help: str) -> Diagnostic:
    return Diagnostic(codes.USAGE, message, help=help)


def is_path(x) -> bool:
    return isinstance(x, (str, os.PathLike))


def is_count(x) -> bool:
    return isinstance(x, Integral) and not isinstance(x, bool) and x >= 0


def kind(x) -> str:
    """``a str``, ``an int``."""
    name = type(x).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
