"""Which configuration a kernel runs with: one that ``chunkwise tune`` found on this machine, or the first that ships.

CHUNKWISE_TUNED names the file. It counts for the device and the Triton that it was made with, and for the code that was
tuned; what it says of others is left out, and said to be.
"""

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import torch

from ...stages._contract import Config
from ..diagnostics.errors import ChunkwiseError, Note
from ..reporting.environment import package_version
from ..stage_files.source_hash import source_hash
from ..stage_files.stage_library import Stage
from .dtypes import name_of
from .tuned_file import Machines, read_tuned

VARIABLE = "CHUNKWISE_TUNED"
F32 = "_F32"
"""What a number's name ends with that stands in its place in float32 (stages/_tiles.py, by_dtype)."""
COUNTS = frozenset("B T H HV HQ HI DI N NT SLOTS Sq Sk ND PAGES NP NB GO RANKS LANES".split())
"""Axes that say how many there are: no configuration depends on them."""
TRIED: ContextVar[Mapping[str, Config] | None] = ContextVar("configurations that are tried out", default=None)
"""By kernel."""


class StaleTuning(UserWarning):
    """Something in the file of CHUNKWISE_TUNED that does not hold here."""


@contextmanager
def trying(kernel: str, config: Config):
    """While it lasts, plans that are made run a kernel with this configuration."""
    token = TRIED.set({**(TRIED.get() or {}), kernel: config})
    try:
        yield
    finally:
        TRIED.reset(token)


def kernel_key(stage: Stage, launcher: str, axes: Mapping[str, int], io: torch.dtype) -> str:
    """What a configuration is for: ``chunk_o triton bf16 C=64 K=128 V=128``. axes: of the stage, under its names."""
    sizes = [f"{axis}={axes[axis]}" for axis in sorted(axes) if axis not in COUNTS]
    return " ".join([stage.name, launcher, name_of(io), *sizes])


def machine(device: torch.device) -> str:
    """``NVIDIA H200, triton 3.6.0``"""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return f"{name}, triton {package_version('triton')}"


def machines() -> Machines | None:
    """What the file of CHUNKWISE_TUNED says; None where none is named. Raises ChunkwiseError."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        return read_tuned(path)
    except ChunkwiseError as error:
        note = Note(f"the variable {VARIABLE} names this file")
        raise ChunkwiseError(*(replace(each, notes=(*each.notes, note)) for each in error.diagnostics)) from None


def chosen(stage: Stage, kernel: str, shipped: Sequence[Config], device: torch.device) -> tuple[Config, bool, str]:
    """(the configuration, whether it is a tuned one, why what the file has is not taken). kernel: its key. shipped: the
    configurations that ship for it, the best first."""
    tried = TRIED.get()
    if tried and kernel in tried:
        return tried[kernel], False, ""
    known = machines()
    found = known.get(machine(device), {}).get(kernel) if known else None
    if found is None:
        return shipped[0], False, ""
    if found.source != source_hash(stage.file):
        return shipped[0], False, not_asked(f"{stage.name} has changed since it was tuned")
    if (config := fitted(found.config, shipped)) is None:
        return shipped[0], False, not_asked(f"{stage.name} has no configuration like {config_text(found.config)}")
    return config, True, ""


def fitted(config: Config, shipped: Sequence[Config]) -> Config | None:
    """A configuration at these sizes: what is no choice in it is as it ships for them. None where that is not clear."""
    alike = [each for each in shipped if each.keys() == config.keys()]
    follows = [{name: number for name, number in each.items() if not is_choice(name)} for each in alike]
    if follows and all(each == follows[0] for each in follows):
        return {**config, **follows[0]}
    return config if any(each.items() <= config.items() for each in follows) else None


def is_choice(name: str) -> bool:
    """Whether any kernel could have a number of its configuration otherwise: warps, stages, and tiles (BK, TILE). The
    others, SPLITS say, follow from sizes or from these."""
    return re.fullmatch(f"(num_warps|num_stages|TILE|BLOCK|B[A-Z])({F32})?", name) is not None


def config_text(config: Config) -> str:
    return " ".join(f"{name}={number}" for name, number in config.items())


def other_machine(device: torch.device) -> str:
    """What to say of a file that knows nothing of this machine."""
    known = machines()
    if not known or machine(device) in known:
        return ""
    return stale(f"{os.environ[VARIABLE]} has nothing for {machine(device)}, but for {'; '.join(known)}")


def not_asked(why: str) -> str:
    return stale(f"{os.environ[VARIABLE]} was not asked: {why}")


def stale(text: str) -> str:
    warnings.warn(f"{text}: what ships runs; chunkwise tune makes it anew", StaleTuning, stacklevel=2)
    return text
