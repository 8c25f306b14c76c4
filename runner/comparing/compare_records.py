"""Two sets of records side by side: which is which of the other, and a verdict for each pair."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..benching.record import Record, Workload
from ..benching.wholes import wholes
from .verdicts import SAME, Verdict, verdict

Key = Callable[[Record], tuple]
Seen = tuple[Record, Record]
"""A record as it is looked for, and itself."""


@dataclass(frozen=True)
class Pair:
    """One thing in both sets; None where it is not there or was not measured."""

    before: Record | None
    after: Record | None

    @property
    def shown(self) -> Record:
        return self.after or self.before

    @property
    def lost(self) -> bool:
        """Whether it was timed before and could not be after."""
        return bool(self.before and self.after and self.before.timing and not self.after.timing)

    @property
    def one_stage(self) -> bool:
        """Whether it is the same stage in both: another one under its id may do the work of several, or of a part."""
        return bool(self.before and self.after and self.before.what.uses == self.after.what.uses)

    @property
    def of_peer(self) -> bool:
        """Whether somebody else's code ran in both, which no change of ours makes slower."""
        names = {each.what.implementation.partition(" ")[0] for each in (self.before, self.after) if each}
        return len(names) == 1 and names != {"chunkwise"}

    @property
    def verdict(self) -> Verdict | None:
        if not (self.before and self.after and self.before.timing and self.after.timing):
            return None
        found = verdict(self.before.timing, self.after.timing)
        return replace(found, word=SAME) if self.before == self.after else found


def thing(record: Record) -> tuple:
    """What was measured, by what, at which sizes and by which clock; of whatever code, on whatever machine."""
    what = record.what
    return what.pipeline, sizes(record.workload), what.stage, what.phase, what.implementation, record.clock.scope


def sizes(workload: Workload) -> tuple:
    """A workload but for its name."""
    axes = tuple(sorted(workload.axes.items()))
    return axes, workload.dtype, workload.mode, workload.seqlens, workload.absent, workload.backward


def use(record: Record) -> str:
    """What the stage's id stands for; of the op and of a sum, which are no stage, their name."""
    return record.what.uses or record.what.stage


def thing_and_use(record: Record) -> tuple:
    return *thing(record), use(record)


def thing_by_use(record: Record) -> tuple:
    """The thing under whatever id; of several alike, what is left stands in the order of the records."""
    return thing(replace(record, what=replace(record.what, stage=use(record))))


WAYS = thing_and_use, thing_by_use, thing
"""By which two records meet, first to last: an id alone says least of what ran under it."""


def pairs(before: Iterable[Record], after: Iterable[Record]) -> list[Pair]:
    """In the order of the second set; what only the first one has comes last. Of several records of one thing the last
    counts, for it is the newest."""
    return paired(*([(record, record) for record in records] for records in (before, after)), WAYS)


def paired(before: Iterable[Seen], after: Iterable[Seen], ways: Sequence[Key]) -> list[Pair]:
    old, new = ({thing(seen): (seen, record) for seen, record in each} for each in (before, after))
    met: dict[tuple, tuple] = {}
    for way in ways:
        met |= met_by(way, unmet(old, met.values()), unmet(new, met))
    pairs = [Pair(old[met[name]][1] if name in met else None, record) for name, (_, record) in new.items()]
    return pairs + [Pair(record, None) for _, record in unmet(old, met.values()).values()]


def unmet(records: Mapping[tuple, Seen], met: Collection[tuple]) -> dict[tuple, Seen]:
    return {name: each for name, each in records.items() if name not in met}


def met_by(way: Key, old: Mapping[tuple, Seen], new: Mapping[tuple, Seen]) -> Iterator[tuple[tuple, tuple]]:
    """(name in new, name in old) of those that are alike, in their order."""
    free: dict[tuple, list[tuple]] = {}
    for name, (seen, _) in old.items():
        free.setdefault(way(seen), []).append(name)
    for name, (seen, _) in new.items():
        if found := free.get(way(seen)):
            yield name, found.pop(0)


def between_implementations(records: Sequence[Record], first: str, second: str) -> list[Pair]:
    """Of one set: what both did, at the same sizes by the same clock."""

    part_of = wholes(records)

    def of(name: str) -> list[Seen]:
        found = (record for record in records if part_of[record.what.implementation] == name)
        return [(replace(record, what=replace(record.what, implementation="")), record) for record in found]

    return [pair for pair in paired(of(first), of(second), WAYS) if pair.before and pair.after]


def between_pipelines(before: Sequence[Record], after: Sequence[Record], ids: Mapping[str, str]) -> list[Pair]:
    """ids: what a stage of the first is called in the second, by their graphs. Sizes are those of the axes that both
    have."""
    common = axes_in_common(before, after)

    def seen(record: Record, stage: str) -> Seen:
        axes = {axis: size for axis, size in record.workload.axes.items() if axis in common}
        what, workload = replace(record.what, pipeline="", stage=stage), replace(record.workload, axes=axes)
        return replace(record, what=what, workload=workload), record

    old = [seen(record, ids.get(record.what.stage, record.what.stage)) for record in before]
    return paired(old, [seen(record, record.what.stage) for record in after], (thing,))


def axes_in_common(before: Iterable[Record], after: Iterable[Record]) -> frozenset[str]:
    return frozenset.intersection(*(frozenset(record.workload.axes) for record in (*before, *after)))


def differences(before: Iterable[Record], after: Iterable[Record]) -> list[str]:
    """What two sets without a pair differ in, in words: of their workloads the two that differ least."""
    ones, others = ({tuple(facts(each).items()): None for each in records} for records in (before, after))
    both = itertools.product(map(dict, ones), map(dict, others))
    return min((words_of(one, other) for one, other in both), key=len)


def facts(record: Record) -> dict[str, object]:
    """By which a pair is found, but for the stage and the clock."""
    workload, what = record.workload, record.what
    named = {"pipeline": what.pipeline, "dtype": workload.dtype, "mode": workload.mode, "backward": workload.backward}
    named |= {"lengths": workload.seqlens, "left out": workload.absent, **dict(sorted(workload.axes.items()))}
    return named | {"implementation": what.implementation}


def words_of(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return [f"{name}: {one.get(name)} and {other.get(name)}" for name in names] or ["their stages"]


def unlike(found: Iterable[Pair]) -> list[str]:
    """What the machines of the two sets do not have in common, in words."""
    lines = {}
    for pair in found:
        if pair.before and pair.after:
            one, other = pair.before.environment, pair.after.environment
            for name in dict.fromkeys((*one, *other)):
                if one.get(name) != other.get(name):
                    lines[f"{name}: {one.get(name)} and {other.get(name)}"] = None
    return list(lines)
