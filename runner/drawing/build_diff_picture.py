"""Two graphs in one picture: what both have, what only the first has, what only the second has.

The boxes of the first graph take the names that they have in the second, so that what is the same falls on itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..comparing.changes import RENAMED
from ..comparing.compare_graphs import Difference
from .build_picture import build_picture
from .picture import ADDED, CHANGED, INPUT, REMOVED, STAGE, VALUE, Arrow, Picture, Place, StageBox, TensorBox


def build_diff_picture(found: Difference, times: Mapping[str, str] | None = None) -> Picture:
    """times: id of a node in the picture -> its times in words."""
    new, names = build_picture(found.new), {name: found.id_in_new(name) for name in found.old.nodes}
    old = renamed(build_picture(found.old), names, new)
    stages = {stage.id: stage for stage in old.stages}
    shown = [changed_stage(found, stage) for stage in new.stages]
    shown += [replace(each, change=REMOVED) for each in only(stages, [stage.id for stage in new.stages])]
    return Picture(
        f"{found.old.name} -> {found.new.name}",
        "",
        (),
        tuple(tensors(old.tensors, new.tensors)),
        tuple(with_times(stage, times or {}) for stage in shown),
        tuple(arrows(old.arrows, new.arrows)),
    )


def only(mine: Mapping, others: Iterable) -> list:
    others = set(others)
    return [each for name, each in mine.items() if name not in others]


def renamed(picture: Picture, names: Mapping[str, str], new: Picture) -> Picture:
    """The first picture by the second one's names. Ports that the second one's box does not have are left out."""
    ports = {stage.id: (stage.inputs, stage.outputs) for stage in new.stages}

    def name_of(kind: str, name: str) -> str:
        node, dot, port = name.partition(".")
        return names.get(node, node) + dot + port if kind in (STAGE, VALUE) else name

    def place(where: Place, side: int) -> Place:
        kind, name, port = where[0], name_of(*where[:2]), where[2]
        there = port if name not in ports or port in ports[name][side] else None
        return kind, name, there

    moved = [replace(each, tail=place(each.tail, 1), head=place(each.head, 0)) for each in picture.arrows]
    return replace(
        picture,
        tensors=tuple(replace(each, name=name_of(each.kind, each.name)) for each in picture.tensors),
        stages=tuple(replace(each, id=names[each.id]) for each in picture.stages),
        arrows=tuple(moved),
    )


def tensors(old: Iterable[TensorBox], new: Iterable[TensorBox]) -> Iterable[TensorBox]:
    before = {(box.kind, box.name): box for box in old}
    after = {(box.kind, box.name): box for box in new}
    for key, box in after.items():
        was = before.get(key)
        if was is None:
            yield replace(box, change=ADDED)
        else:
            words = type_remarks(was, box) if was.tensor and box.tensor else ()
            yield replace(box, change=CHANGED, remarks=words) if words else box
    yield from (replace(box, change=REMOVED) for box in only(before, after))


def type_remarks(was: TensorBox, box: TensorBox) -> tuple[str, ...]:
    """What its type was before, as far as it is another one."""
    names = {"shape": "shape", "dtype": "dtype", "unit": "unit", "laws": "where"}
    pairs = {words: (getattr(was.tensor, name), getattr(box.tensor, name)) for name, words in names.items()}
    if box.kind == INPUT:
        pairs["state"] = was.state, box.state
    return remarks((words, old) for words, (old, new) in pairs.items() if old != new)


def remarks(before: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
    return tuple(f"{what}: was {old or 'none'}" for what, old in before)


def changed_stage(found: Difference, stage: StageBox) -> StageBox:
    """A box of the second graph."""
    if stage.id not in found.matches.values():
        return replace(stage, change=ADDED)
    changes = (each for each in found.changes if each.part == "stages" and each.name == stage.id)
    words = remarks((each.what or "id", each.before) for each in changes if each.kind in (CHANGED, RENAMED))
    return replace(stage, change=CHANGED, remarks=words) if words else stage


def with_times(stage: StageBox, times: Mapping[str, str]) -> StageBox:
    return replace(stage, remarks=(*stage.remarks, times[stage.id])) if stage.id in times else stage


def arrows(old: Iterable[Arrow], new: Iterable[Arrow]) -> Iterable[Arrow]:
    before = {(arrow.tail, arrow.head): arrow for arrow in old}
    after = {(arrow.tail, arrow.head): arrow for arrow in new}
    yield from (arrow if key in before else replace(arrow, change=ADDED) for key, arrow in after.items())
    yield from (replace(arrow, change=REMOVED) for arrow in only(before, after))
