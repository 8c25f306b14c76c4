"""A record with everything in it, and one with as little as can be."""

from chunkwise.runner.benching.record import (
    STAGE_ALONE,
    Clock,
    Edge,
    Error,
    Kernel,
    Limits,
    Record,
    Source,
    What,
    Workload,
)
from chunkwise.runner.reporting.clocks import Timing

FULL = Record(
    What("gdn", "scan", "chunk_delta_h", "forward", "chunkwise triton", ("a", "b"), Source("x.yaml", 24), "c0de"),
    Workload("tiny", {"B": 1, "T": 256}, "bf16", "chunk", (100, 0, 156), True),
    Clock(STAGE_ALONE, "CUDA events", "cold"),
    Timing(0.5, 0.4, 0.7, 50, 1.5),
    {"gpu": "H200", "cpu_threads": 2},
    "machine",
    "2026-11-30T02:00:00Z",
    Limits(1e9, 10**6, 2.0, 2.0, 0.2, "memory", 40.0),
    (Kernel("k", 0.5, 255, 16, 65536, 12.5, "wgmma"), Kernel("other")),
    (Edge("scan.h", "scan", "out", 4096),),
    Error("op.o", 3e-3, 8e-3, "definition"),
    10.5,
    60.0,
    "verified",
    "",
    ("a note",),
)
BARE = Record(
    What("kda", "end to end", "", "", "fla 0.6.0"), Workload(None, {}, "fp32", "chunk", None, False),
    Clock("op eager", "wall clock", "warm"), None, {}, "machine", "2026-11-30T02:00:00Z", why="fla is not installed",
)  # fmt: skip
