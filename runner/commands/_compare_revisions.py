"""``compare REV [REV] --pipe PIPE``: two revisions of this checkout, measured here and now, by turns."""

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .. import interrupt
from ..comparing.compare_records import Pair, pairs
from ..comparing.race_trees import Measured, race
from ..comparing.trees import WORKING_TREE, Tree, said, tree_of
from ..diagnostics.errors import Diagnostic
from ..reporting.outcome import Progress
from ._case_options import given, words


@dataclass(frozen=True)
class Raced:
    """trees: both. failures: what their benches say is wrong."""

    trees: tuple[Tree, Tree]
    pairs: list[Pair]
    failures: tuple[Diagnostic, ...]


def race_revisions(args) -> Raced:
    """Without a second revision it is the working tree. What is made on the way is gone at the end."""
    options, progress = given(args), Progress()
    folders = options.pop("--stages", [])

    def command(tree: Tree) -> list[str]:
        own = [word for each in folders for word in ("--stages", tree.own(each))]
        return [*map(tree.own, args.pipe), *own, *words(options)]

    with ExitStack() as stack:
        place = Path(tempfile.mkdtemp(prefix="chunkwise-compare-")).resolve()
        stack.enter_context(interrupt.cleaned_up(lambda: shutil.rmtree(place, ignore_errors=True)))
        trees = tree_of(args.before, place / "before"), tree_of(args.after, place / "after")
        before, after = race(trees, command, args.rounds, progress)
        progress.done()
    return Raced(trees, pairs(before.records, after.records), failures(before, after))


def failures(before: Measured, after: Measured) -> tuple[Diagnostic, ...]:
    return tuple(dict.fromkeys((*before.failures, *after.failures)))


def headline(raced: Raced, rounds: int) -> list[str]:
    """Which two they are, and how they were measured."""
    lines = [f"{sign} {said(tree)}  {tree.about}".rstrip() for sign, tree in zip("-+", raced.trees)]
    turns = f"measured by turns in {rounds} rounds" if rounds > 1 else "measured once each"
    return [*lines, f"{turns}; each bench a process of its own"]


def documents(raced: Raced) -> list[dict]:
    return [
        {"revision": None if tree.name == WORKING_TREE else tree.name, "hash": tree.hash, "subject": tree.about or None}
        for tree in raced.trees
    ]
