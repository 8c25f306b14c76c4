"""Every shipped configuration of every launcher, verified alone (case C2).

A job is one configuration at one size that compiles a kernel which no earlier job compiled. Jobs run in processes
side by side: what they cost is compilation.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from chunkwise.runner.calling.function import Op
from chunkwise.runner.compiling.meta_launches import meta_launches
from chunkwise.runner.planning.dtypes import name_of
from chunkwise.runner.verification.verify import verify

from .one_stage import STAGES, stage_inputs, stage_op

SIZES = dict(B=2, T=150, H=1, HV=2, W=4, N=2, SLOTS=5, RANKS=3, LANES=2)
SIZES |= dict(HQ=4, Sq=150, Sk=170, ND=3, PAGES=12, PAGE=16, NP=6)
SIZES |= dict(HI=4, TOP=6, M=4, NB=50, GO=2, HG=3, DO=64)
WIDTHS = ("K", "V", "D", "DI", "NS", "DV", "DN", "DC", "DR", "KI")
"""Axes that have the size K of a job."""
BF16 = [(64, 16), (64, 64), (128, 16), (128, 32), (128, 64), (128, 128), (256, 32), (256, 64), (256, 128)]
F16 = [(128, 64)]
F32 = [(64, 64), (128, 64), (128, 128), (256, 64)]
"""(K = V, C) by IO dtype."""


@dataclass(frozen=True)
class Job:
    """backward: the configuration is the gradient's. launcher: place in the stage's list."""

    stage: str
    backward: bool
    launcher: int
    config: tuple[tuple[str, int], ...]
    axes: tuple[tuple[str, int], ...]
    io: torch.dtype

    def __str__(self) -> str:
        what = f"{self.stage}{'.vjp' if self.backward else ''} #{self.launcher}"
        return f"{what} {self.io} {dict(self.axes)} {dict(self.config)}"


def launchers(stage, backward: bool):
    return stage.vjp_launchers if backward else stage.launchers


def jobs(name: str, device: str) -> list[Job]:
    """The jobs of one stage for a device class such as sm_90."""
    stage, seen, found = STAGES[name], set(), []
    for io, KC in ((torch.bfloat16, BF16), (torch.float16, F16), (torch.float32, F32)):
        for K, C in KC:
            for backward in (False, True):
                for place, launcher in enumerate(launchers(stage, backward)):
                    axes = taken(launcher, K, C, device)
                    if axes is None or name_of(io) in launcher.not_in:
                        continue
                    for config in launcher.configs(axes, device):
                        keys = compile_keys(stage, launcher, backward, axes, io, config)
                        if not keys <= seen:
                            config = tuple(config.items())
                            found.append(Job(name, backward, place, config, tuple(axes.items()), io))
                        seen |= keys
    return found


def taken(launcher, K: int, C: int, device: str) -> dict[str, int] | None:
    """Sizes that the launcher takes: small ones, or a long sequence of one head; None where it refuses both."""
    for sizes in (SIZES, SIZES | dict(T=128 * C, H=1, HV=1)):
        axes = sizes | dict.fromkeys(WIDTHS, K) | dict(C=C, N=SIZES["B"], NT=-(-sizes["T"] // C))
        if launcher.when(axes, device) is None:
            return axes
    return None


def compile_keys(stage, launcher, backward, axes, io, config) -> set[tuple]:
    """What the launches of a configuration are compiled for."""
    launches = meta_launches(stage.contract, launcher, backward, axes, io, "plain", config)
    return {
        (each.kernel.__name__, str(sorted(each.constexprs.items())), each.num_warps, each.num_stages, io)
        for each in launches
    }


def forced(op: Op, job: Job) -> Op:
    """The op with that configuration alone."""
    stage, config = op.stages[job.stage], dict(job.config)
    kept = launchers(stage, job.backward)[job.launcher]
    only = (replace(kept, configs=lambda axes, device: [config]),)
    stage = replace(stage, **{"vjp_launchers" if job.backward else "launchers": only})
    return Op(op.spec, {**op.stages, job.stage: stage}, op.backend)


def run(job: Job, device="cuda", backend="triton") -> str | None:
    """None when the configuration is in budget, else what is wrong with it."""
    axes = dict(job.axes)
    try:
        with tempfile.TemporaryDirectory() as folder:
            op = forced(stage_op(Path(folder), job.stage, C=axes["C"], backend=backend), job)
        sizes = {axis: axes[axis] for axis in op.whole.axis_names if axis in (*SIZES, *WIDTHS)}
        given = stage_inputs(op, job.io, device=device, **sizes)
        result = verify(op, given, backward=job.backward)
    except Exception as error:  # a job of hundreds: its failure is a line of the report
        return f"{job}: {type(error).__name__}: {error}"
    bad = [f"{row.id}.{row.value}: {row.why}" for row in result.rows if not row.ok]
    return f"{job}: {'; '.join(bad)}" if bad else None
