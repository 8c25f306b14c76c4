"""Is the op right when it is cut? What all ranks give together, against the definition and against one process."""

from collections.abc import Mapping

import torch
import torch.distributed as dist

from ..calling.training import BackwardPass
from ..verification.generate import make_cotangents
from ..verification.result import Verification
from ..verification.verify import verify
from .cut import Cut, even_rows, row_axis, tokens_of
from .exchange_stage import Ranks
from .lost_rank import meeting
from .parallel_op import ParallelOp
from .states import states_here, whole_states

Tensors = dict[str, torch.Tensor | None]


def verify_ranks(
    op: ParallelOp, inputs: Mapping, *, seqlens=None, rows=None, params=None, backward=False, progress=str
) -> Verification | None:
    """On rank 0 what verify finds for one process, with rows for what the ranks made together; elsewhere None.

    inputs: of the whole call, the same on every rank. rows: of each rank, spread evenly when None. Every rank calls it.
    """
    single, ranks = op.op, op.ranks
    whole = single.bind({**inputs, **(params or {})}, seqlens=seqlens)
    rows = rows or even_rows(tokens_of(whole.sizes), ranks.size)
    joint = whole.joint(whole.trainable(), whole.wanted) if backward else whole.graph
    cotangents = make_cotangents(joint, whole.sizes, whole.io, whole.device)
    named = {name: cotangents[value] for name, value in joint.cotangents.items()}
    progress(f"run the op on {ranks.size} ranks")
    found = together(op, {**inputs, **(params or {})}, named, seqlens, rows, backward)
    if ranks.rank:
        return None
    return verify(
        single, inputs, seqlens=seqlens, params=params, backward=backward, expected=found, cotangents=named,
        made_by=f"{ranks.size} ranks", recut=True, progress=progress,
    )  # fmt: skip


def together(op: ParallelOp, inputs: Mapping, cotangents: Mapping, seqlens, rows, backward: bool) -> Tensors:
    """Outputs, and gradients as ``d_<input>``, of the whole call, made by all ranks; on rank 0 alone."""
    values = op.op.whole.values
    start, own = sum(rows[: op.ranks.rank]), rows[op.ranks.rank]
    here = {name: cut_rows(x, values[name].axes if name in values else (), start, own) for name, x in inputs.items()}
    call, cut = op.bind(here, seqlens=seqlens, rows=rows)
    results, gradients = run(call, cotangents_here(op, cotangents, cut, start, own), backward)
    results = {name: whole_states(x, cut, cut.ends) if op.is_state(name) else x for name, x in results.items()}
    axes = {name: values[op.op.whole.outputs[name]].axes for name in results}
    axes |= {f"d_{name}": values[name].axes for name in gradients}
    gradients = {
        f"d_{name}": whole_states(x, cut, cut.begins) if values[name].axes[0] == "N" else x
        for name, x in gradients.items()
    }
    return collected({**results, **gradients}, axes, op.ranks)


def run(call, cotangents: Tensors, backward: bool) -> tuple[Tensors, Tensors]:
    """(outputs, gradients by input) of this rank's part of a call."""
    if not backward:
        return call.run(), {}
    joint = call.joint(call.trainable(), call.wanted)
    results = call.run_forward(call.tensors, joint)
    kept = call.tensors | {name: results[name] for name in joint.kept}
    return {name: results[name] for name in call.wanted}, BackwardPass(call, joint)(kept, cotangents)


def cotangents_here(op: ParallelOp, cotangents: Mapping, cut: Cut, start: int, own: int) -> Tensors:
    axes = {name: op.op.whole.values[op.op.whole.outputs[name]].axes for name in cotangents}
    return {
        name: states_here(x, cut, cut.ends) if axes[name][0] == "N" else cut_rows(x, axes[name], start, own)
        for name, x in cotangents.items()
    }


def cut_rows(x, axes: tuple, start: int, count: int):
    """The rows of one rank; what has none is the same everywhere."""
    place = row_axis(axes)
    return x if place is None or not isinstance(x, torch.Tensor) else x.narrow(place, start, count).contiguous()


def collected(found: Tensors, axes: Mapping[str, tuple], ranks: Ranks) -> Tensors:
    """The ranks' rows one after the other, the ranks' shares added, on rank 0."""
    parts: list[Tensors] = [{} for _ in range(ranks.size)]
    with meeting("collecting what all have made", ranks.rank, ranks.size):
        dist.all_gather_object(parts, {name: x.cpu() for name, x in found.items()}, group=ranks.group)
    if ranks.rank:
        return {}
    return {name: joined([part[name] for part in parts], axes[name]).to(x.device) for name, x in found.items()}


def joined(parts: list[torch.Tensor], axes: tuple) -> torch.Tensor:
    place = row_axis(axes)
    return torch.stack(parts).sum(0) if place is None else torch.cat(parts, place)
