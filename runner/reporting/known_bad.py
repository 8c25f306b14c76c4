"""What was measured: compilers, devices and libraries that are wrong together, and those that chunkwise was run on."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True)
class KnownBad:
    """applies(triton, numpy, major compute capability of each GPU); a version that is unknown is None."""

    what: str
    do: str
    applies: Callable[[Version | None, Version | None, frozenset[int]], bool]


PAIRS = (
    KnownBad(
        "Triton 3.4 to 3.7.0 miscompiles for compute capability 9.0 (H100, H200): tl.dot(tl.trans(x), y) with x an "
        "accumulator that was cast down gives wrong numbers at 64-wide tiles; 32- and 128-wide ones are right",
        "run `chunkwise verify PIPE` here, with the sizes and dtype that you will use; or install triton 3.7.1",
        lambda triton, numpy, majors: within(triton, (3, 4, 0), (3, 7, 1)) and 9 in majors,
    ),
    KnownBad(
        "Triton 3.6 cannot interpret kernels with numpy 2.4 (only 0-dimensional arrays can be converted)",
        "install numpy<2.4, or triton 3.7.1",
        lambda triton, numpy, majors: within(triton, (3, 6, 0), (3, 7, 0)) and numpy is not None and numpy >= (2, 4, 0),
    ),
)


MEASURED = frozenset(
    {
        ("3.7.1", "2.13.0", None),
        ("3.6.0", "2.11.0", 9),
    }
)
"""(triton, torch, major compute capability; None: no GPU, interpreted) that the tests ran on: NOTES.md."""


def unmeasured(triton: str | None, torch: str, majors: Iterable[int]) -> list[str]:
    """The places of this machine, in words, where nobody has run chunkwise with these versions."""
    versions = plain_version(triton), plain_version(torch)
    places = sorted(set(majors)) or [None]
    return [words_of(place) for place in places if (*versions, place) not in MEASURED]


def words_of(place: int | None) -> str:
    return "without a GPU" if place is None else f"on compute capability {place}.x"


def plain_version(text: str | None) -> str:
    """2.11.0+cu130 as 2.11.0."""
    return ".".join(map(str, read_version(text) or ()))


def known_bad(triton: str | None, numpy: str | None, majors: Iterable[int]) -> list[KnownBad]:
    """What is known to be wrong with these versions on these GPUs."""
    versions = read_version(triton), read_version(numpy)
    return [pair for pair in PAIRS if pair.applies(*versions, frozenset(majors))]


def read_version(text: str | None) -> Version | None:
    """3.7.1+git12 as (3, 7, 1)."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def within(version: Version | None, first: Version, below: Version) -> bool:
    return version is not None and first <= version < below
