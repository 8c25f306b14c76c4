"""The sizes at which ``run`` verifies before it times: those of the run, made small where they are large."""

from collections.abc import Collection, Mapping, Sequence

from ..graphs.graph import Graph
from ..graphs.sizes import complete, size_errors
from ..workloads import SMALL, attention_axes

LARGEST = dict(B=4, T=256, Sq=256, Sk=256, H=4, HV=8, HQ=8, K=128, V=128, DV=128)
"""What fits a small case as it is."""
SEQUENCES = 8

Lengths = tuple[int, ...] | None


def small_case(
    graph: Graph, run: Mapping[str, int], asked: Collection[str], lengths: Lengths
) -> tuple[dict[str, int], Lengths]:
    """(sizes of all axes, lengths of packed sequences or None).

    run: the sizes of the run. asked: axes that the user gave, which stay as they are where they fit. Packed sequences
    stay packed, with lengths of the same kinds. Where a constraint does not allow the usual sizes, the run's own stand,
    up to LARGEST; at last, whatever they are.
    """
    short = None if lengths is None else shortened(lengths, run.get("C", 1))
    capped = {axis: min(size, LARGEST.get(axis, size)) for axis, size in run.items()}
    for sizes, chosen in ((usual(run, asked), short), (capped, short), (run, lengths)):
        case = completed(graph, sizes, run, lengths, chosen)
        if not size_errors(graph, case):
            break
    return case, chosen


def usual(run: Mapping[str, int], asked: Collection[str]) -> dict[str, int]:
    """SMALL for the axes that the user left alone: two chunks and a bit of a third, grouped heads, K unlike V."""
    small = SMALL | attention_axes(SMALL)
    sizes = dict(run) | {axis: size for axis, size in small.items() if axis in run}
    if "T" in run and "C" in run:
        sizes["T"] = min(2 * run["C"] + 2, run["T"])
    sizes |= {axis: run[axis] for axis in asked if axis in run and run[axis] <= LARGEST.get(axis, run[axis])}
    for heads in {"HV", "HQ"} & run.keys() if "H" in run else ():
        follows = "H" in asked and heads not in asked  # of a command line H alone sets them too
        if follows or not sizes["H"] or sizes[heads] % sizes["H"]:
            sizes[heads] = sizes["H"] * min(2, run[heads] // max(1, run["H"]))
    return sizes


def completed(graph: Graph, sizes, run, lengths: Lengths, chosen: Lengths) -> dict[str, int]:
    """Every axis. Rows past the last sequence stay, a few of them."""
    plain = {axis: size for axis, size in sizes.items() if axis not in ("N", "NT")}
    if lengths is None or chosen is None:
        return complete(graph, plain)
    rest = run["T"] - sum(lengths)
    plain |= {"B": 1, "T": sum(chosen) + (rest if chosen == lengths else min(rest, 3))}
    return complete(graph, plain, len(chosen))


def shortened(lengths: Sequence[int], C: int) -> tuple[int, ...]:
    """The lengths where they are short and few; else one of each kind, in order: none, one token, the last two chunks
    of a longer one, with the end where it was."""
    if sum(lengths) <= LARGEST["T"] and len(lengths) <= SEQUENCES:
        return tuple(lengths)
    short = (length if length <= 2 * C else C + (length - 1) % C + 1 for length in lengths)
    return tuple(dict.fromkeys(short))[:SEQUENCES]
