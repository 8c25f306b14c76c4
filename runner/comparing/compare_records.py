"""Two sets of records side by side: which is which of the other, and a verdict for each pair."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..benching.record import Record, Workload
from .verdicts import SAME, Verdict, verdict

Key = Callable[[Record], tuple]


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


def pairs(before: Iterable[Record], after: Iterable[Record], key: Key = thing) -> list[Pair]:
    """In the order of the second set; what only the first one has comes last. Of several records of one thing the last
    counts, for it is the newest."""
    old, new = ({key(record): record for record in records} for records in (before, after))
    return [Pair(old.get(name), record) for name, record in new.items()] + [
        Pair(record, None) for name, record in old.items() if name not in new
    ]


def between_implementations(records: Sequence[Record], first: str, second: str) -> list[Pair]:
    """Of one set: what both did, at the same sizes by the same clock."""

    def of(name: str) -> list[Record]:
        return [record for record in records if record.what.implementation == name]

    def key(record: Record) -> tuple:
        return thing(replace(record, what=replace(record.what, implementation="")))

    return [pair for pair in pairs(of(first), of(second), key) if pair.before and pair.after]


def between_pipelines(before: Sequence[Record], after: Sequence[Record], ids: Mapping[str, str]) -> list[Pair]:
    """ids: what a stage of the first is called in the second. Sizes are those of the axes that both have."""
    common = frozenset.intersection(*(frozenset(record.workload.axes) for record in (*before, *after)))

    def key(record: Record) -> tuple:
        axes = {axis: size for axis, size in record.workload.axes.items() if axis in common}
        what = replace(record.what, pipeline="")
        return thing(replace(record, what=what, workload=replace(record.workload, axes=axes)))

    def renamed(record: Record) -> Record:
        return replace(record, what=replace(record.what, stage=ids.get(record.what.stage, record.what.stage)))

    return pairs(map(renamed, before), after, key)


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
