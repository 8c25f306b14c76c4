"""What the definition gives for the tensors of a case, and how far a peer is from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..verification.budgets import error_of, relative
from ..verification.head_subset import pick_heads, take_heads
from ..verification.verify import make_subject, on_heads, result_values, truth_of
from .case import InputSet, input_set
from .gate import Gate
from .record import Error


@dataclass(frozen=True)
class Truth:
    """What the definition gives for one set of tensors, on some of the heads (None: all)."""

    given: InputSet
    axes: Mapping[str, tuple]
    heads: tuple[int, ...] | None
    results: Mapping[str, torch.Tensor]
    against: str
    budgets: Mapping[str, float]


def truth_at(gate: Gate) -> Truth:
    """The truth that peers are held against: at the case where ours was verified, on the same tensors."""
    given = input_set(gate.case)
    whole = make_subject(given.call, "typical", gate.case.backward, gate.case.seed, given.cotangents or {})
    heads = pick_heads(whole.graph, given.call.sizes, gate.case.device, given.call.params)
    results, _, against = truth_of(on_heads(whole, heads) if heads else whole)
    axes = {name: whole.graph.values[value].axes for name, value in result_values(whole).items()}
    return Truth(given, axes, heads, results, against, gate.budgets)


def error_against(truth: Truth, got: Mapping[str, torch.Tensor | None]) -> Error:
    """The result of a function on truth.given that is furthest off. Raises ChunkwiseError where it gives none of the
    op's results, or one of another shape: broadcast, it could look right."""
    found = [error_in(truth, name, got[name].detach()) for name in truth.results if got.get(name) is not None]
    if not found:
        raise ChunkwiseError(Diagnostic(codes.TENSOR, f"it gives none of {', '.join(truth.results)}"))
    return max(found, key=lambda each: math.inf if math.isnan(each.rel_l2_err) else share(each))


def share(error: Error) -> float:
    return error.rel_l2_err / (error.budget or 1.0)


def error_in(truth: Truth, name: str, mine: torch.Tensor) -> Error:
    right = truth.results[name]
    if truth.heads:
        mine = take_heads(mine, truth.axes[name], truth.heads, truth.given.call.sizes)
    if mine.shape != right.shape:
        message = f"{name} has the shape {list(mine.shape)} and should have {list(right.shape)}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, message))
    off = relative(error_of(mine, right).norm().item(), right.norm().item())
    return Error(name, off, truth.budgets.get(name), truth.against)


def left_out(truth: Truth, got: Mapping[str, torch.Tensor | None]) -> list[str]:
    """Results of the op that a function does not give: its time is for less."""
    return [name for name in truth.results if got.get(name) is None]
