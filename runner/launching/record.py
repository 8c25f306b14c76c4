"""A program out of a plan's first run: where each argument of each launch came from, and what Triton compiled."""

from collections.abc import Mapping

import torch

from ...stages._contract import Launch
from ...stages._seqs import Seqs
from ..planning.execute import Kernels, Values, execute, run_kernel
from ..planning.plan import Buffer, Plan, Step, bytes_of
from .direct import Cell, direct
from .program import STREAM, Made, PreparedLaunch, Program, Stretch

TABLES = ("cu_seqlens", "chunk_table", "chunk_offsets")
NO_HOOKS = (None, None, None)
"""What Triton's launcher is handed where nobody watches launches: metadata for the hooks, and two of them."""
POOLED, PLACE = 1 << 20, 512
"""Bytes: buffers up to this size share one allocation, each at a multiple of PLACE in it. Large ones are made and freed
one by one: there memory counts, and the host has time."""

INPUT, TABLE, VALUE, SCRATCH = "input", "table", "value", "scratch"
Origin = tuple[str, str]
"""(one of the four, its name). Names of inputs and values are the graph's, of tables those of Seqs."""


def record(plan: Plan, tensors: Values, params: Mapping[str, float], seqs: Seqs) -> tuple[Values, Program | None]:
    """(the plan's results, a program that gives them too); None where kernels are no plain ones of Triton's. plan: of
    kernels alone. tensors: from multiples of ALIGNMENT on, as the program will have them."""
    recorder = Recorder(plan, seqs)
    results = execute(plan, apart(tensors), params, seqs, observe=recorder)
    return results, recorder.program() if recorder.able else None


def apart(tensors: Values) -> Values:
    """The same tensors, no object under two names: a call may bring one twice."""
    first = {id(x): name for name, x in reversed(tensors.items())}
    return {name: x if x is None or first[id(x)] == name else x.detach() for name, x in tensors.items()}


class Recorder:
    """Runs a plan's steps (an observer of execute) and takes down each launch.

    able: whether that is all that a later run has to do. places: origin -> its cell. buffers: what each step allocates.
    """

    def __init__(self, plan: Plan, seqs: Seqs):
        self.plan, self.able = plan, True
        self.tables = [(x, (TABLE, name)) for name in TABLES if (x := getattr(seqs, name)) is not None]
        self.cells: list = [0]  # the stream's
        self.places: dict[Origin, int] = {}
        self.buffers: dict[str, dict[Origin, Buffer]] = {}
        self.launches: dict[str, list[PreparedLaunch]] = {}
        self.kernels: dict = {}

    def __call__(self, step: Step, run: Kernels, outputs: Values) -> None:
        compiled = [run_kernel(launch) for launch in run.launches]
        origins = self.origins(step, run)
        launched = [(launch, kernel) for launch, kernel in zip(run.launches, compiled) if all(launch.grid)]
        prepared = [self.prepared(launch, kernel, origins) for launch, kernel in launched]
        self.launches[step.node.id] = [each for each in prepared if each]

    def origins(self, step: Step, run: Kernels) -> "Origins":
        """Of every tensor that this step was handed. What it writes over came in."""
        node = step.node
        scratch = {name: (SCRATCH, f"{name} of {node.id}") for name in step.scratch}
        outputs = {port: (VALUE, node.outputs[port]) for port, buffer in step.outputs.items() if buffer}
        self.buffers[node.id] = {scratch[name]: buffer for name, buffer in step.scratch.items()}
        self.buffers[node.id] |= {outputs[port]: step.outputs[port] for port in outputs}
        pairs = [(run.scratch[name], origin) for name, origin in scratch.items()]
        pairs += [(run.outputs[port], origin) for port, origin in outputs.items()]
        pairs += [(x, self.value(node.inputs[port])) for port, x in run.inputs.items() if x is not None]
        return Origins([*self.tables, *pairs])

    def value(self, name: str) -> Origin:
        name = self.plan.graph.mutated.get(name, name)
        made = any((VALUE, name) in buffers for buffers in self.buffers.values())
        return (VALUE if made else INPUT), name

    def prepared(self, launch: Launch, kernel, origins: "Origins") -> PreparedLaunch | None:
        """None where the launch is no plain one of Triton's."""
        from triton.runtime.jit import JITFunction

        if not isinstance(launch.kernel, JITFunction) or kernel is None:
            self.able = False
            return None
        given = {"num_warps": launch.num_warps, "num_stages": launch.num_stages, **launch.args, **launch.constexprs}
        cells = [self.cell(given.get(p.name, p.default), p.is_constexpr, origins) for p in launch.kernel.params]
        self.kernels[launch.kernel] = None
        grid = [self.constant(size) for size in (*launch.grid, 1, 1)[:3]]
        itself = [self.constant(x) for x in (kernel.function, kernel.packed_metadata, *NO_HOOKS)]
        arguments = map(Cell, (*grid, STREAM, *itself, *cells))
        return PreparedLaunch(*direct(kernel.run, tuple(arguments), self.constant))

    def cell(self, x, is_constexpr: bool, origins: "Origins") -> int:
        """The place of one argument. A tensor that was made for this run, or a kind of argument that holds one, has no
        place in later ones."""
        origin = origins.of(x) if isinstance(x, torch.Tensor) else None
        if origin is None:
            self.able &= is_constexpr or x is None or isinstance(x, (int, float))
            return self.constant(x)
        return self.place(origin)

    def constant(self, x) -> int:
        self.cells.append(x)
        return len(self.cells) - 1

    def program(self) -> Program:
        results, pooled, pool, first, steps = set(self.plan.results.values()), [], 0, [], []
        for step in self.plan.steps:
            made = []
            for origin, buffer in self.buffers[step.node.id].items():
                kind, name = origin
                small, leaves = bytes_of(buffer) <= POOLED, kind == VALUE and name in results
                if leaves or not small and origin in self.places:
                    (first if small else made).append(self.made(origin, buffer))
                elif origin in self.places:
                    pooled.append((self.places[origin], pool))
                    pool += -(-bytes_of(buffer) // PLACE) * PLACE
            steps.append((step, made))
        written = {value: over for value, over in self.plan.graph.mutated.items() if value in results}
        return Program(
            self.plan, tuple(self.cells), self.cells_of(INPUT), self.cells_of(TABLE), written, tuple(pooled), pool,
            self.stretches(first, steps), tuple(self.kernels),
        )  # fmt: skip

    def made(self, origin: Origin, buffer: Buffer) -> Made:
        strides = torch.empty(buffer.shape, device="meta").stride()
        return Made(self.place(origin), origin[1], buffer.shape, strides, buffer.dtype)

    def stretches(self, first: list[Made], steps: list[tuple[Step, list[Made]]]) -> tuple[Stretch, ...]:
        """first: what is made before anything is launched. steps: each with the large buffers that it makes."""
        found, there = [Stretch(tuple(first), (), ())], set()
        for step, made in steps:
            there |= {each.name for each in made}
            release = there & ({name for kind, name in self.buffers[step.node.id] if kind == SCRATCH} | {*step.release})
            there -= release
            launches = tuple(self.launches[step.node.id])
            last = found[-1]
            if made or last.release:
                found.append(Stretch(tuple(made), launches, tuple(release)))
            else:
                found[-1] = Stretch(last.made, (*last.launches, *launches), tuple(release))
        return tuple(found)

    def place(self, origin: Origin) -> int:
        """The cell of a buffer, which a kernel need not have been handed."""
        if origin not in self.places:
            self.places[origin] = len(self.cells)
            self.cells.append(0)
        return self.places[origin]

    def cells_of(self, wanted: str) -> tuple[tuple[int, str], ...]:
        return tuple((cell, name) for (kind, name), cell in self.places.items() if kind == wanted)


class Origins:
    """Where a step's tensors came from. A launcher may hand on what it got under another shape."""

    def __init__(self, pairs: list[tuple[torch.Tensor, Origin]]):
        self.pairs, self.by_id = pairs, {id(x): origin for x, origin in pairs}

    def of(self, x: torch.Tensor) -> Origin | None:
        if id(x) in self.by_id:
            return self.by_id[id(x)]
        storage = x.untyped_storage().data_ptr()
        near = [(y, origin) for y, origin in self.pairs if y.untyped_storage().data_ptr() == storage]
        alone = len({origin for _, origin in near}) == 1 and near[0][0].data_ptr() == x.data_ptr()
        return near[0][1] if alone else None
