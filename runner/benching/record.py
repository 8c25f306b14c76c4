"""One measurement as one line of a JSONL file: what ran, on what, how it was timed, what it took, what it could take.

A record is never changed: ``id`` is the hash of its content. What could not be measured is a record too: ``timing`` is
None and ``why`` says what was in the way.
"""

import hashlib
import json
import math
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..reporting.clocks import Timing
from ..reporting.outcome import finite

SCHEMA = "record/v1"
FILE = "records.jsonl"
"""What bench calls it in its folder."""
START = '{"schema": "record/v1", "id": "'
"""Of every line."""
WRITTEN_BY = "chunkwise bench PIPE writes out/bench/records.jsonl"

STAGE_ALONE, STAGE_INSIDE = "stage alone", "stage inside"
EAGER, REPLAY, FIRST_CALL = "op eager", "op graph replay", "first call"
SCOPES = (STAGE_ALONE, STAGE_INSIDE, EAGER, REPLAY, FIRST_CALL)
"""Of a clock: a stage by itself; between the other steps of one run; the whole op; the whole op as a CUDA graph; the
first call of these sizes in the process, compilation and tuning with it."""

NOT_VERIFIED = "NOT VERIFIED (--no-gate)"
"""Record.gate where no gate was asked for."""

NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""What JSON has no number for, as outcome.finite writes it."""

END_TO_END, SUM = "end to end", "sum of stages"
"""What stands in place of a node's id where a record speaks of no single node. SUM has the scope of what it sums."""


@dataclass(frozen=True)
class Source:
    """Where the pipeline's file has the stage."""

    file: str
    line: int


@dataclass(frozen=True)
class What:
    """What ran. stage: a node's id, END_TO_END or SUM. uses: the stage's name, "" for the op. phase: forward, rebuild,
    backward, or all of them ("") for the op.

    implementation: ``chunkwise triton``, ``chunkwise reference``, ``fla 0.6.0``, ``sdpa flash``, ... ran: what a peer
    really called and launched, as far as that was seen. code: the hash of the pipeline's text and of the code that ran.
    """

    pipeline: str
    stage: str
    uses: str
    phase: str
    implementation: str
    ran: tuple[str, ...] = ()
    source: Source | None = None
    code: str = ""


@dataclass(frozen=True)
class Workload:
    """The sizes of every axis, the IO dtype, chunk or recurrent, lengths of packed sequences (None: a plain batch), and
    whether a backward pass is part of it. name: of a named workload, where the sizes are its own. absent: the optional
    inputs, and the outputs, that were left out."""

    name: str | None
    axes: Mapping[str, int]
    dtype: str
    mode: str
    seqlens: tuple[int, ...] | None
    backward: bool
    absent: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """What its title says after its sizes: ``, packed 5,0,7, without initial_state``."""
        packed = f", packed {','.join(map(str, self.seqlens))}" if self.seqlens is not None else ""
        return packed + (f", without {', '.join(self.absent)}" if self.absent else "")

    @property
    def sizes(self) -> str:
        """Every size, and what else a title says after them."""
        axes = ", ".join(f"{axis}={size}" for axis, size in self.axes.items())
        return axes + self.form + (", forward and backward" if self.backward else "")


@dataclass(frozen=True)
class Clock:
    """How it was timed. scope: one of SCOPES. timer: CUDA events, wall clock. l2: cold (overwritten before each run) or
    warm, of a CPU its caches."""

    scope: str
    timer: str
    l2: str


@dataclass(frozen=True)
class Limits:
    """What the contract counts, and what the device could do. flops, bytes: of one run; of END_TO_END the bytes are the
    op's inputs and outputs, of SUM those of every stage, so that the difference is what stages hand each other.

    floor_ms: the larger of bytes over the copy bandwidth and flops over the matrix rate; bound_by: memory, compute, or
    latency, where the floor is shorter than a launch. sol_pct: the floor in percent of the median.
    None where the device's rates were not measured.
    """

    flops: float
    bytes: int
    tflops: float | None = None
    gbps: float | None = None
    floor_ms: float | None = None
    bound_by: str | None = None
    sol_pct: float | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel of a stage. ms: by itself. registers: per thread. spills: bytes of local memory per thread. shared:
    bytes per block. occupancy_pct: resident warps of those that a multiprocessor takes. matrix: wgmma, tcgen05, mma or
    none. None: not timed, or not seen."""

    name: str
    ms: float | None = None
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    occupancy_pct: float | None = None
    matrix: str | None = None


@dataclass(frozen=True)
class Edge:
    """A value handed from one stage to another through memory. source: a node's id, "" for an input; target: "" for an
    output."""

    value: str
    source: str
    target: str
    bytes: int


@dataclass(frozen=True)
class Error:
    """The value that is closest to its budget, or furthest beyond. against: definition, float64 reference."""

    value: str
    rel_l2_err: float
    budget: float | None
    against: str


@dataclass(frozen=True)
class Record:
    """timing: median_ms, p20_ms, p80_ms, runs, noise_pct. gate: how it was verified before it was timed, in words.
    why: why there is no timing; "" where there is one. notes: lines for the reader, such as what the gap between SUM
    and END_TO_END comes from.

    peak_mem_mb: above the inputs. host_us: what the host needs to enqueue one call; None on a CPU, where nothing is
    enqueued. environment: reporting.environment's facts; environment_id: their hash. time: when, UTC, ISO 8601.
    """

    what: What
    workload: Workload
    clock: Clock
    timing: Timing | None
    environment: Mapping[str, Any]
    environment_id: str
    time: str
    limits: Limits | None = None
    kernels: tuple[Kernel, ...] = ()
    edges: tuple[Edge, ...] = ()
    error: Error | None = None
    peak_mem_mb: float | None = None
    host_us: float | None = None
    gate: str = ""
    why: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def id(self) -> str:
        return content_id(asdict(self))

    @property
    def key(self) -> str:
        """The same for two records of one thing, of the same code, on the same machine, both verified or both not."""
        what = {name: each for name, each in asdict(self.what).items() if name not in ("ran", "source")}
        facts = {"what": what, "workload": asdict(self.workload), "scope": self.clock.scope, "at": self.environment_id}
        return content_id(facts | {"verified": self.gate != NOT_VERIFIED})

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object of its line."""
        return finite({"schema": SCHEMA, "id": self.id, **asdict(self)})


def content_id(facts: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits of what the facts say, in whatever order."""
    return hashlib.sha256(json.dumps(finite(dict(facts)), sort_keys=True).encode()).hexdigest()[:16]


def line(record: Record) -> str:
    return json.dumps(record.document) + "\n"


def read_record(document: Mapping[str, Any]) -> Record:
    """The record of a JSON object. Raises ValueError, KeyError or TypeError where it is none."""
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']}")
    content = {name: each for name, each in document.items() if name not in ("schema", "id")}
    if content_id(content) != document["id"]:
        raise ValueError("its content is not what its id says")
    found = built(Record, content)
    require_time(found)
    if not found.what.implementation.split():
        raise ValueError("what: implementation is empty")
    return found


def require_time(record: Record) -> None:
    """Raises ValueError for what no clock shows."""
    if record.clock.scope not in SCOPES:
        raise ValueError(f"there is no scope {record.clock.scope!r:.60}")
    if record.timing is None:
        return
    for name, value in asdict(record.timing).items():
        if not 0 <= value < math.inf:
            raise ValueError(f"timing: {name} is {value}")


def built(kind: Any, value: Any) -> Any:
    """A value of JSON as the type that a field declares. Raises TypeError where it is of another."""
    if get_origin(kind) is types.UnionType:
        (kind,) = (each for each in get_args(kind) if each is not type(None))
        return None if value is None else built(kind, value)
    if is_dataclass(kind):
        of_type(dict, value)
        hints = get_type_hints(kind)
        if unknown := value.keys() - {each.name for each in fields(kind)}:
            raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
        return kind(**{name: built(hints[name], each) for name, each in value.items()})
    if get_origin(kind) is tuple:
        return tuple(built(get_args(kind)[0], each) for each in of_type(list, value))
    if get_origin(kind) is Mapping:
        return {name: built(get_args(kind)[1], each) for name, each in of_type(dict, value).items()}
    if kind is float:
        return of_type((int, float), NO_NUMBERS.get(value, value) if isinstance(value, str) else value)
    return value if kind is Any else of_type(kind, value)


def of_type(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{value!r:.60} stands where {getattr(kind, '__name__', 'a number')} belongs")
    return value


def read_records(path: str | Path) -> list[Record]:
    """Every record of a JSONL file, in its order. Raises ChunkwiseError at the first line that is none; the start of a
    record without the end of its line, which an interrupted run leaves, is passed over."""
    *lines, rest = text_of(Path(path)).split("\n")
    if not (rest.startswith(START) or START.startswith(rest)):
        lines.append(rest)
    found = []
    for number, each in enumerate(lines, start=1):
        try:
            if each.strip():
                found.append(read_record(json.loads(each)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"{path}, line {number}, is no record ({type(error).__name__}: {error})"
            raise ChunkwiseError(Diagnostic(codes.RECORDS, message, help=WRITTEN_BY)) from None
    return found


def read_some_records(path: str | Path) -> list[Record]:
    """Of a file, or of the file that bench writes into that folder; one without any is an error."""
    where = Path(path)
    found = read_records(where / FILE if where.is_dir() else where)
    if not found:
        raise ChunkwiseError(Diagnostic(codes.RECORDS, f"{path} holds no record", help=WRITTEN_BY))
    return found


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise ChunkwiseError(Diagnostic(codes.NO_FILE, message, help=WRITTEN_BY)) from None
