"""The records of a folder: read when it starts, one line more for each that is new, and never a line changed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..reporting.write_file import append_to_file, write_file
from .record import FILE, Record, line, read_records, text_of


@dataclass
class Store:
    """path: of its file. records: in the order of the file."""

    path: Path
    records: list[Record] = field(default_factory=list)

    @staticmethod
    def of(folder: Path) -> "Store":
        """Raises ChunkwiseError where what is there holds no records. A line that an interrupted run left without its
        end is cut off: the next one would stand behind it."""
        path = folder / FILE
        if not path.exists():
            return Store(path)
        records, text = read_records(path), text_of(path)
        if text and not text.endswith("\n"):
            write_file(path, text[: text.rfind("\n") + 1])
        return Store(path, records)

    def has(self, key: str) -> bool:
        """Whether there is a record of this, measured or with the reason why not."""
        return any(each.key == key for each in self.records)

    def has_timing(self, key: str) -> bool:
        return any(each.key == key and each.timing for each in self.records)

    def add(self, found: Iterable[Record]) -> None:
        """Those that are not there yet."""
        there = {(each.key, each.why) for each in self.records}
        new = [each for each in found if (each.key, each.why) not in there]
        append_to_file(self.path, "".join(map(line, new)))
        self.records += new
