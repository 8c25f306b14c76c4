"""A kernel's configurations, tried in this process: compiled, held against verify's budget, timed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from ...stages._contract import Config
from ..calling.call import Call
from ..graphs.sizes import complete, size_errors
from ..launching.compile_ahead import compile_ahead
from ..planning.execute import Kernels, execute, prepare, run_step
from ..planning.plan import Plan, Step, make_plan
from ..planning.tuned import COUNTS, trying
from ..reporting.clocks import Timing, clock_of
from ..verification.budgets import arithmetic_noise
from ..verification.generate import make_cotangents, make_inputs
from ..verification.small_case import shortened, usual
from ..verification.staged import Subject, decaying_chunks, gate_span, staged_values
from ..verification.verify import check_stage, few_roundings, make_subject
from .job import Job, kernels_of, plans_of


class Trials:
    """One job in one process. small: what check_stage takes. large: the call at the sizes asked for, its plans, and
    every value of theirs."""

    def __init__(self, job: Job):
        self.job, self.op = job, job.op()
        if job.device.type == "cuda":
            torch.cuda.set_device(job.device)
        self.small, self.large = self.at_small_sizes(), self.at_large_sizes()

    def compile(self, kernel: str, configs: Sequence[Config]) -> None:
        """At once, as far as it goes: what does not compile says so when it is measured."""
        if self.job.backend == "triton":
            launches = [each for config in configs for run in self.runs(kernel, config) for each in run.launches]
            compile_ahead(launches, self.job.device)

    def measure(self, kernel: str, config: Config) -> Timing | str:
        """How long it takes, or what is wrong with its results."""
        with trying(kernel, config):
            wrong = self.wrong(kernel)
        return wrong or self.race(kernel, [config])[0]

    def race(self, kernel: str, configs: Sequence[Config]) -> list[Timing]:
        """Each one's time, in turns."""
        runs = [self.runs(kernel, config) for config in configs]
        turns = [lambda _, mine=mine: [run() for run in mine] for mine in runs]
        return clock_of(self.job.device).race(turns, ahead=True)

    def rest(self) -> None:
        """Raises where a kernel left the device out of use."""
        if self.job.device.type == "cuda":
            torch.cuda.synchronize(self.job.device)

    def wrong(self, kernel: str) -> str:
        subject, exact, noise, few = self.small
        rows = [
            row
            for plan in subject.plans
            for key, step in kernels_of(plan) if key == kernel
            for row in check_stage(subject, plan, step, exact, noise, few)
        ]  # fmt: skip
        return "; ".join(f"{row.value}: {row.why}" for row in rows if not row.ok)

    def at_small_sizes(self) -> tuple[Subject, Mapping, float, bool]:
        """Of the same widths, which kernels are compiled for."""
        sizes, lengths = small_sizes(self.op.whole, self.job.sizes, self.job.seqlens)
        call = self.call(sizes, lengths)
        subject = make_subject(call, "typical", self.job.backward, 0, {})
        exact = staged_values(subject, torch.float64)
        noise = arithmetic_noise(call.io, call.sizes, gate_span(subject.graph, exact))
        few = few_roundings(call, decaying_chunks(subject.graph, exact, call.sizes.get("C", 1)))
        return subject, exact, noise, few

    def call(self, sizes: Mapping[str, int], lengths: Sequence[int] | None) -> Call:
        inputs = make_inputs(self.op.whole, sizes, self.job.io, self.job.device)
        return self.op.bind({**inputs, **self.job.params}, seqlens=lengths)

    def at_large_sizes(self) -> tuple[Call, list[Plan], Mapping[str, torch.Tensor | None]]:
        call = self.call(self.job.sizes, self.job.seqlens)
        plans, values = plans_of(call, self.job.backward), dict(call.contiguous)
        graph = plans[-1].graph
        if graph.gradients:
            values |= make_cotangents(graph, call.sizes, call.io, call.device)

        def observe(step: Step, run: Callable[[], None], outputs: Mapping) -> None:
            run_step(step, run, outputs)
            values.update({name: outputs[port] for port, name in step.node.outputs.items()})

        for plan in plans:
            execute(plan, values, call.params, call.seqs, observe)
        return call, plans, values

    def runs(self, kernel: str, config: Config) -> list[Kernels]:
        """What runs each node of this kernel with a configuration, on buffers of its own."""
        call, plans, values = self.large
        nodes = [(plan, step) for plan in plans for key, step in kernels_of(plan) if key == kernel]
        with trying(kernel, config):
            return [alone(plan, step, call, values) for plan, step in nodes]


def alone(plan: Plan, step: Step, call: Call, values: Mapping) -> Kernels:
    node = step.node
    results = {name: name for port, name in node.outputs.items() if step.outputs[port] is not None}
    single, given = replace(plan.graph, nodes={node.id: node}), [name for name in node.inputs.values() if name]
    single = make_plan(single, plan.sizes, plan.io, plan.backend, plan.device, results, given)
    _, run = prepare(single.steps[0], single, values, call.params, call.seqs, torch.empty)
    return run


def small_sizes(graph, run: Mapping[str, int], lengths) -> tuple[dict[str, int], tuple[int, ...] | None]:
    """(few rows and heads, lengths of the same kinds); widths stay, which kernels are compiled for."""
    few = {axis: size if axis in COUNTS else run[axis] for axis, size in usual(run, ()).items()}
    few = {axis: size for axis, size in few.items() if axis not in ("N", "NT")}
    short = shortened(lengths, run.get("C", 1)) if lengths else None
    if short:
        few |= {"B": 1, "T": sum(short)}
    few = complete(graph, few, len(short) if short else None)
    return (few, short) if not size_errors(graph, few) else (dict(run), lengths)
