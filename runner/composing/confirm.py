"""Whether a pipeline is its definition: outputs and gradients in float64, on several random inputs.

The stages' references and the derived backward graph are held against the definition and its autograd. Nothing is
rounded, so the two differ by the order of additions alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ...stages._contract import HELD
from ..calling.function import Op
from ..graphs.sizes import complete
from ..loading.spec import PipelineSpec
from ..stage_files.stage_library import Stage
from ..verification.generate import make_inputs
from ..verification.staged import staged_values
from ..verification.verify import cleared, make_subject, result_values, truth_of
from .tiny_case import sizes_of

LIMIT = 1e-8
"""Of the largest difference, against the largest number of the truth."""
LEAST = 1e-6
"""A truth that is smaller counts as this: of a gradient that is 0 there is only what float64 rounds off."""


@dataclass(frozen=True)
class Trial:
    """words: what is special about it. sizes: over the usual ones. optional: whether optional inputs are given."""

    words: str
    sizes: Mapping[str, int]
    C: int = 4
    lengths: tuple[int, ...] | None = None
    optional: bool = True
    case: str = "typical"


TRIALS = (
    Trial("grouped heads, a ragged chunk, every optional input", {"B": 2, "T": 11}),
    Trial("packed lengths 5, 0, 4, 1 and two rows past them", {"B": 1, "T": 12}, lengths=(5, 0, 4, 1)),
    Trial("no optional input", {"B": 1, "T": 6}, optional=False),
    Trial("strong decays, chunks of 16", {"B": 1, "T": 20}, C=16, case="strong_gate"),
)


@dataclass(frozen=True)
class Confirmation:
    """differences: worst relative difference by output, or ``d_<input>``, over all trials. why: what stands against
    the pipeline, None if nothing does."""

    differences: Mapping[str, float]
    why: str | None = None


def confirm(spec: PipelineSpec, stages: Mapping[str, Stage], progress: Callable[[str], None] = str) -> Confirmation:
    """Raises ChunkwiseError where the pipeline does not fit together."""
    op, worst = Op(spec, stages, "reference"), {}
    for seed, trial in enumerate(TRIALS, 1):
        progress(f"verify: {trial.words}")
        for name, error in differences(op, trial, seed).items():
            worst[name] = max(worst.get(name, 0.0), error)
            if not error <= LIMIT:
                return Confirmation(worst, f"{name} is off by {error:.1e} ({trial.words})")
    return Confirmation(worst)


def differences(op: Op, trial: Trial, seed: int) -> dict[str, float]:
    if "C" in op.spec.axes:
        op = op.with_axes({"C": trial.C})
    lengths = trial.lengths if {"B", "T"} <= set(op.whole.axis_names) else None
    sizes = {axis: n for axis, n in {**sizes_of(op.spec), **trial.sizes}.items() if axis in sizes_of(op.spec)}
    sizes = complete(op.whole, sizes, len(lengths) if lengths else None)
    inputs = make_inputs(op.whole, sizes, torch.float64, "cpu", seed, trial.case)
    if not trial.optional:
        inputs = {name: None if op.spec.inputs[name].optional else x for name, x in inputs.items()}
    subject = make_subject(op.bind(inputs, seqlens=lengths), trial.case, True, seed, {})
    exact, (truth, _, _) = staged_values(subject, torch.float64), truth_of(subject)
    names = result_values(subject)
    return {name: difference(cleared(exact[names[name]], subject, names[name]), right) for name, right in truth.items()}


def difference(got: torch.Tensor, right: torch.Tensor) -> float:
    if not right.numel():
        return 0.0
    return (got - right).abs().max().item() / max(right.abs().max().item(), LEAST)


def gradients_missing(spec: PipelineSpec, confirmation: Confirmation) -> list[str]:
    """Floating-point inputs of which the graph gives no gradient."""
    able = [name for name, each in spec.inputs.items() if each.dtype not in HELD]
    return [name for name in able if f"d_{name}" not in confirmation.differences]
