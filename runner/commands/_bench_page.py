"""The page ``explain bench``: what the columns of its tables and the words of compare mean."""

from ..comparing import verdicts
from ._tables import table

COLUMNS = {
    "stage, uses": "a node of the graph, and the stage that it uses; one row more for the sum of all",
    "end to end": "the whole op: ours, and each peer of --vs",
    "implementation": "who ran it, with which back end or version",
    "scope": "op eager: as its user calls it; op graph replay: as a CUDA graph; first call: with compiling and tuning",
    "alone ms": "the stage by itself, on a GPU with a cold L2: median",
    "inside ms": "the stage between the others in one run, the caches as the one before it left them: median",
    "ms": "the whole op: median",
    "p20 - p80": "20th to 80th percentile of the runs",
    "+-": "half of the median's 95 % confidence interval, in percent of it",
    "share": "of the sum of the stages, alone",
    "TFLOP/s": "the contracts' flops in the median's time",
    "GB/s": "the bytes of a stage's ports in the median's time",
    "floor ms": "the longest of: moving the bytes at the copy bandwidth, doing the flops at the matrix rate, "
    "an empty launch; all three as measured on the device",
    "of floor": "the floor in percent of the median: 100 % is as fast as the device allows",
    "bound by": "which of the three the floor is: memory, compute, latency",
    "host us": "what the host needs to enqueue a call; nothing on a CPU",
    "peak MB": "memory above the inputs; nothing on a CPU",
    "error, budget": "relative L2 error against float64 of the value closest to its budget, and that budget",
    "timer, caches": "the clock, and how it leaves the caches before a run",
}
WORDS = {
    verdicts.SAME: f"the medians differ by {verdicts.SAME_PCT:g} % at most, noise and all",
    verdicts.SLOWER: "most runs take longer than most of the other's, and the medians are further apart than the noise",
    verdicts.FASTER: "the same the other way round",
    verdicts.UNCLEAR: "none of these: measure longer, or on a quieter machine",
}


def bench_page() -> tuple[dict, list]:
    """(the JSON, the text) on the tables of bench and compare."""
    text = [
        table("What bench prints", {"column": "left", "meaning": "left"}, COLUMNS.items()),
        "The gap is end to end less the sum of the stages: launches and checks make it larger, warm caches smaller.",
        "",
        table("What compare says", {"verdict": "left", "meaning": "left"}, WORDS.items()),
        "Stages meet by what they use and where it stands, then by id: scan -> states is one stage of two ids, and",
        "scan (chunk_h -> chunk_h_o) one id of two stages, which --fail-above passes over: either may do more.",
    ]
    return {"columns": COLUMNS, "verdicts": WORDS}, text
