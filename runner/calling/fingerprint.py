"""What an op computes, as a short hash: the same for the same pipeline, stages and back end, wherever it is written."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from ..diagnostics.marks import Mark
from ..rewriting.fusion import NONE
from ..rewriting.gradient_pattern import gradient_uses


def fingerprint(op) -> str:
    """Twelve hexadecimal digits of a function.Op: its spec without places, the stages' sources, the back end,
    whether there is a memory budget, the mode."""
    used = {entry.use: op.stages[entry.use] for entry in op.spec.stages.values() if not entry.formula}
    if op.mode == "recurrent":
        used |= {name: stage for name, stage in op.stages.items() if stage.pattern}
    if op.fuse != NONE:
        uses = set().union(*map(gradient_uses, op.stages.values()))
        used |= {name: stage for name, stage in op.stages.items() if stage.fuses or name in uses}
    stages = [[name, stage.reference.__module__, Path(stage.file).read_text()] for name, stage in sorted(used.items())]
    text = json.dumps([plain(op.spec), stages, op.backend, op.memory_budget is None, op.mode, op.fuse])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def plain(x):
    """A spec as lists and texts, without its places and files."""
    if isinstance(x, Mark):
        return None
    if is_dataclass(x):
        return [plain(getattr(x, field.name)) for field in fields(x) if field.name not in ("file", "bases")]
    if isinstance(x, Mapping):
        return [[key, plain(value)] for key, value in x.items()]
    return [plain(each) for each in x] if isinstance(x, tuple) else repr(x)
