"""Which implementation of the op a stage's is part of: a stage of Triton's op is named for its launcher."""

from collections.abc import Iterable

from .record import END_TO_END, SUM, Record

TRITON = "chunkwise triton"


def wholes(records: Iterable[Record]) -> dict[str, str]:
    """Implementation -> that of the op, as its sums and its end to end are named."""
    records = list(records)
    named = {record.what.implementation for record in records if record.what.stage in (SUM, END_TO_END)}
    every = dict.fromkeys(record.what.implementation for record in records)
    return {each: each if each in named or TRITON not in named else TRITON for each in every}
