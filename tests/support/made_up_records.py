"""Records of a run that nobody made: real graphs and formulas, times by rule. For what reads records."""

from chunkwise.runner.benching.record import (
    EAGER,
    END_TO_END,
    REPLAY,
    STAGE_ALONE,
    STAGE_INSIDE,
    SUM,
    Clock,
    Edge,
    Error,
    Kernel,
    Limits,
    Record,
    Source,
    Timing,
    What,
    Workload,
)
from chunkwise.runner.graphs.flops import flops
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.planning.dtypes import IO_DTYPES
from chunkwise.runner.planning.plan import buffer_of, bytes_of

GBPS, TFLOPS, LAUNCH_MS = 4000.0, 700.0, 0.004
OURS = "chunkwise triton"
GPU = {"device": "cuda:0", "gpu": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0", "driver": None}
CPU = {"device": "cpu", "cpu": "a CPU", "torch": "2.13.0"}


def timing(ms) -> Timing:
    return Timing(median_ms=ms, p20_ms=0.98 * ms, p80_ms=1.03 * ms, noise_pct=0.4, runs=50)


def limits(count, moved, ms) -> Limits:
    parts = {"memory": moved / GBPS / 1e6, "compute": count / TFLOPS / 1e9, "latency": LAUNCH_MS}
    bound = max(parts, key=parts.get)
    return Limits(count, moved, count / ms / 1e9, moved / ms / 1e6, parts[bound], bound, 100 * parts[bound] / ms)


TIME = "2026-11-30T02:00:00Z"


def made_up_records(
    op, backward=False, environment=GPU, dtype="bf16", peers=True, time=TIME, rebuilt=None, **sizes
) -> list[Record]:
    """Every record of one run of an op: each node alone and inside, sums, the op eager and replayed, two peers.
    rebuilt: the stages that backward rebuilds, by the file's marks unless given."""
    graph, sizes = op.trainable_graph(rebuilt) if backward else op.whole, complete(op.whole, {**sizes, **op_axes(op)})
    workload, clocks = Workload(None, sizes, dtype, "chunk", None, backward), clocks_on(environment)
    about = {"environment": environment, "environment_id": environment["device"], "time": time}
    found, total = [], {}
    for node in graph.nodes.values():
        moved = sum(bytes_of(buffer_of(graph.values[v], sizes, IO_DTYPES[dtype])) for v in values_of(node))
        count = flops(node, sizes)
        source = Source(node.mark.file, node.mark.line) if node.mark else None
        what = What(op.spec.name, node.id, node.stage.name, node.phase, OURS, (), source)
        for scope, factor in ((STAGE_ALONE, 1.4), (STAGE_INSIDE, 1.3)):
            ms = factor * limits(count, moved, 1.0).floor_ms
            total[scope] = total.get(scope, 0.0) + ms
            kernel = Kernel(f"{node.id}_kernel", ms, 168, 0, 2**16, 25.0, "wgmma")
            more = {"limits": limits(count, moved, ms), "kernels": (kernel,)}
            error = Error(next(iter(node.outputs)), 1.6e-3, 5e-3, "float64 reference")
            found.append(Record(what, workload, clocks[scope], timing(ms), error=error, **about, **more))
    whole = What(op.spec.name, SUM, "", "", OURS)
    found += [Record(whole, workload, clocks[scope], timing(ms), **about) for scope, ms in total.items()]
    return found + op_records(op, workload, clocks, total[STAGE_INSIDE], edges_of(graph, sizes, dtype), about, peers)


def op_records(op, workload, clocks, ms, edges, about, peers) -> list[Record]:
    def record(implementation, scope, factor, **more):
        what = What(op.spec.name, END_TO_END, "", "", implementation, more.pop("ran", ()))
        found = timing(factor * ms) if factor else None
        return Record(what, workload, clocks[scope], found, **about, **more)

    right = Error("o", 3.2e-3, 8.2e-3, "definition")
    found = [
        record(OURS, EAGER, 1.05, edges=edges, error=right, host_us=63.0, peak_mem_mb=120.5, notes=("gap: launches",)),
        record(OURS, REPLAY, 1.0, error=right, gate="verified at T=130"),
    ]
    if peers:
        theirs = Error("o", 3.4e-3, None, "definition")
        found += [
            record("fla 0.6.0", EAGER, 1.7, error=theirs, ran=("chunk_gated_delta_rule",)),
            record("flashqla", EAGER, None, why="flash-qla is not installed"),
        ]
    return found


def clocks_on(environment) -> dict[str, Clock]:
    if environment["device"] == "cpu":
        return {scope: Clock(scope, "wall clock", "warm") for scope in (STAGE_ALONE, STAGE_INSIDE, EAGER, REPLAY)}
    warm = {scope: Clock(scope, "CUDA events", "warm") for scope in (STAGE_INSIDE, EAGER, REPLAY)}
    return {STAGE_ALONE: Clock(STAGE_ALONE, "CUDA events", "cold"), **warm}


def op_axes(op) -> dict[str, int]:
    return {axis: int(each.value) for axis, each in op.spec.axes.items()}


def values_of(node) -> list[str]:
    return [name for name in (*node.inputs.values(), *node.outputs.values()) if name]


def edges_of(graph, sizes, dtype) -> tuple[Edge, ...]:
    return tuple(
        Edge(value.name, value.producer or "", reader, bytes_of(buffer_of(value, sizes, IO_DTYPES[dtype])))
        for value in graph.values.values()
        for reader, _ in graph.consumers(value.name)
    )
