"""Records in the order of a page: their runs, and of each run its stages and what was timed of the whole op."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from ..benching.record import END_TO_END, STAGE_ALONE, STAGE_INSIDE, SUM, Edge, Record, Workload, content_id
from ..benching.wholes import wholes


@dataclass(frozen=True)
class StageRow:
    """A node of one implementation of the op (whole), run by its own. by_scope: scope of the clock -> its record."""

    id: str
    uses: str
    phase: str
    whole: str
    implementation: str
    by_scope: Mapping[str, Record]

    @property
    def first(self) -> Record:
        return next(iter(self.by_scope.values()))

    def ms(self, scope: str) -> float | None:
        found = self.by_scope.get(scope)
        return found.timing.median_ms if found and found.timing else None


@dataclass(frozen=True)
class Run:
    """What is known of one pipeline at one workload on one machine. name: an id of HTML, and what its files are called
    after."""

    name: str
    pipeline: str
    workload: Workload
    records: tuple[Record, ...]

    @property
    def environment(self) -> Mapping:
        return self.records[0].environment

    @property
    def on_cpu(self) -> bool:
        return str(self.environment.get("device", "")).startswith("cpu")

    @cached_property
    def stages(self) -> tuple[StageRow, ...]:
        """In the order of their records, an implementation of the op after the other."""
        found: dict[tuple[str, str], dict[str, Record]] = {}
        part_of = wholes(self.records)
        for record in self.records:
            if record.what.stage not in (END_TO_END, SUM):
                key = part_of[record.what.implementation], record.what.stage
                found.setdefault(key, {})[record.clock.scope] = record
        rows = []
        for (whole, id), by_scope in found.items():
            what = next(iter(by_scope.values())).what
            rows.append(StageRow(id, what.uses, what.phase, whole, what.implementation, by_scope))
        return tuple(rows)

    @property
    def implementations(self) -> tuple[str, ...]:
        """Those of the op whose stages were timed."""
        return tuple(dict.fromkeys(row.whole for row in self.stages))

    def stages_of(self, implementation: str) -> tuple[StageRow, ...]:
        return tuple(row for row in self.stages if row.whole == implementation)

    @property
    def ops(self) -> tuple[Record, ...]:
        return tuple(record for record in self.records if record.what.stage == END_TO_END)

    def whole(self, stage: str, implementation: str, scope: str) -> Record | None:
        """The record of END_TO_END or SUM."""
        mine = (record for record in self.records if record.what.implementation == implementation)
        return next((each for each in mine if (each.what.stage, each.clock.scope) == (stage, scope)), None)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Of the first record that has any: they are those of the graph, whatever was timed."""
        return next((record.edges for record in self.records if record.edges), ())

    def times(self) -> dict[str, float]:
        """Node id -> milliseconds of the first implementation: alone, as ``chunkwise run`` says them, else inside."""
        scope = next((each for each in (STAGE_ALONE, STAGE_INSIDE) if self.has(each)), STAGE_ALONE)
        rows = self.stages_of(self.implementations[0]) if self.implementations else ()
        return {row.id: ms for row in rows if (ms := row.ms(scope)) is not None}

    def has(self, scope: str) -> bool:
        return any(scope in row.by_scope for row in self.stages)


def runs_of(records: Iterable[Record]) -> tuple[Run, ...]:
    """In the order of the first record of each, with the latest record of each thing that was measured."""
    groups: dict[str, list[Record]] = {}
    for record in latest(records):
        about = {"pipeline": record.what.pipeline, "workload": asdict(record.workload), "at": record.environment_id}
        groups.setdefault(content_id(about), []).append(record)
    numbered = enumerate(groups.values(), start=1)
    return tuple(Run(f"run-{n}", each[0].what.pipeline, each[0].workload, tuple(each)) for n, each in numbered)


def latest(records: Iterable[Record]) -> list[Record]:
    """A file grows as things are measured again: of records of the same thing, the last in time."""
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: record.time):
        found[record.key] = record
    return sorted(found.values(), key=lambda record: record.time)
