"""One difference between two pipelines, as a value."""

from dataclasses import dataclass

ADDED, REMOVED, CHANGED, RENAMED = "added", "removed", "changed", "renamed"
FACTS = ("inputs", "stages", "values")
"""Parts whose entries have several facts, each with a name: one fact more changes the entry and does not add it."""
PARTS = ("axes", "inputs", "params", "constraints", "definition", "stages", "edges", "values", "outputs")


@dataclass(frozen=True)
class Change:
    """part: one of PARTS. name: whose, by its name in the second pipeline where it is there. what: which of its facts,
    where it has several. before, after: as text; None where there is nothing."""

    part: str
    name: str
    what: str
    before: str | None
    after: str | None
    renamed: bool = False

    @property
    def kind(self) -> str:
        if self.renamed:
            return RENAMED
        if self.what and self.part in FACTS:
            return CHANGED
        return ADDED if self.before is None else REMOVED if self.after is None else CHANGED
