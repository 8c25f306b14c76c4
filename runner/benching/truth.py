"""What the definition gives for the tensors of a case, and how far a peer is from it."""

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
from .whole_op import Forward, run_once


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


def error_against(truth: Truth, forward: Forward) -> Error:
    """The result of a function that is furthest off. Raises ChunkwiseError where it gives none of the op's results."""
    worst, got = None, run_once(forward, truth.given)
    for name, right in truth.results.items():
        if got.get(name) is None:
            continue
        mine = got[name].detach()
        if truth.heads:
            mine = take_heads(mine, truth.axes[name], truth.heads, truth.given.call.sizes)
        off = relative(error_of(mine, right).norm().item(), right.norm().item())
        found = Error(name, off, truth.budgets.get(name), truth.against)
        worst = max(worst or found, found, key=lambda each: each.rel_l2_err / (each.budget or 1.0))
    if worst is None:
        raise ChunkwiseError(Diagnostic(codes.TENSOR, f"it gives none of {', '.join(truth.results)}"))
    return worst
