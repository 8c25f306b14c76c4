"""The times of two runs side by side, stage by stage."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..loading.decode_text import read_bytes
from .compare_graphs import Difference

CONDITIONS = ("dtype", "backend", "seqlens", "timed_by")


@dataclass(frozen=True)
class Report:
    """What a report.json says. stages: id -> (stage, ms). conditions: what else both runs should have in common."""

    stages: Mapping[str, tuple[str, float]]
    sum_ms: float
    end_to_end_ms: float
    conditions: Mapping[str, object]


@dataclass(frozen=True)
class Row:
    """One stage in both runs. before, after: milliseconds, None where it did not run."""

    id: str
    stage: str
    before: float | None
    after: float | None


def read_report(path: str, pipeline: str) -> Report:
    """The report of a run of a pipeline. Raises ChunkwiseError."""
    try:
        document = json.loads(read_bytes(path))
        stages = {each["id"]: (each["stage"], milliseconds(each["latency_ms"])) for each in document["stages"]}
        sums = milliseconds(document["sum_of_stages_ms"]), milliseconds(document["end_to_end_ms"])
        conditions = {name: document[name] for name in CONDITIONS} | dict(document["axes"])
        conditions["gradients"] = "with" if any(".vjp" in name for name in stages) else "without"
        conditions["device"] = document["environment"].get("gpu") or document["environment"]["cpu"]
        found = document["pipeline"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        help = "chunkwise run PIPE writes out/PIPE/report.json"
        raise ChunkwiseError(Diagnostic(codes.RUN_REPORT, f"{path} is not the report of a run", help=help)) from None
    if found != pipeline:
        message = f"{path} is a run of {found}, and one of {pipeline} belongs here"
        raise ChunkwiseError(Diagnostic(codes.RUN_REPORT, message, help="one report for each pipeline, in their order"))
    return Report(stages, *sums, conditions)


def milliseconds(value: float) -> float:
    if isinstance(value, bool) or not math.isfinite(value):
        raise ValueError
    return float(value)


def rows(found: Difference, before: Report, after: Report) -> list[Row]:
    """In the order of the second run; what only the first one has comes last."""
    old = {id_in_new(found, name): name for name in before.stages}
    result = []
    for name, (stage, ms) in after.stages.items():
        result.append(Row(name, stage, before.stages[old[name]][1] if name in old else None, ms))
    gone = ((new, *before.stages[name]) for new, name in old.items() if new not in after.stages)
    return result + [Row(new, stage, ms, None) for new, stage, ms in gone]


def id_in_new(found: Difference, name: str) -> str:
    """A node's id in the second graph: of ``scan``, ``scan.vjp`` and ``d(scan.h)`` alike."""
    start, owner, rest = re.fullmatch(r"(d\()?(\w*)(.*)", name, re.DOTALL).groups("")
    return start + (found.id_in_new(owner) if owner in found.old.nodes else owner) + rest


def unlike(before: Report, after: Report) -> list[str]:
    """What the two runs did not have in common, in words."""
    names = dict.fromkeys((*before.conditions, *after.conditions))
    pairs = ((name, before.conditions.get(name), after.conditions.get(name)) for name in names)
    return [f"{name}: {words(one)} and {words(other)}" for name, one, other in pairs if one != other]


def words(condition: object) -> str:
    return "none" if condition is None else str(condition)
