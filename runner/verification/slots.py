"""States in numbered slots, as a definition sees them: one state per sequence, taken out before and put back after."""

from collections.abc import Mapping

import torch

from ..graphs.graph import Graph
from ..loading.spec import PipelineSpec
from ..planning.sequences import Packing

Tensors = dict[str, torch.Tensor | None]


def per_sequence_axes(spec: PipelineSpec) -> dict[str, tuple[str, ...]]:
    """The axes of every input, with one state per sequence where the file has slots."""
    return {name: ("N", *entry.shape[1:]) if entry.slots else entry.shape for name, entry in spec.inputs.items()}


def rows_of(spec: PipelineSpec, inputs: Mapping, name: str, N: int) -> torch.Tensor:
    """The row of each sequence, -1 for none."""
    states, indices = inputs[name], inputs.get(spec.inputs[name].slots.value)
    rows = torch.arange(N, device=states.device) if indices is None else indices.long()
    return torch.where((rows >= 0) & (rows < len(states)), rows, -1)


def taken(spec: PipelineSpec, inputs: Mapping, N: int) -> Tensors:
    """The inputs, with each sequence's own state out of the slots; zeros for a sequence that has none."""
    found = dict(inputs)
    for name, entry in spec.inputs.items():
        if entry.slots and inputs.get(name) is not None:
            rows = rows_of(spec, inputs, name, N)
            live = (rows >= 0).view(-1, *[1] * (inputs[name].dim() - 1))
            found[name] = torch.where(live, inputs[name][rows.clamp(min=0)], 0.0)
    return found


def put_back(graph: Graph, inputs: Mapping, outputs: Mapping, sizes: Mapping, packing: Packing | None) -> Tensors:
    """Outputs with states in their slots, and 0 in the rows of a sequence that has none."""
    found = dict(outputs)
    for name, value in graph.outputs.items():
        if value not in graph.mutated or name not in found:
            continue
        over = graph.mutated[value]
        rows = rows_of(graph.spec, inputs, over, sizes["N"])
        found[name] = inputs[over].double().index_copy(0, rows[rows >= 0], found[name][rows >= 0])
        for other, x in found.items():
            if other != name and x is not None and "T" in graph.values[graph.outputs[other]].axes:
                found[other] = torch.where(live_rows(rows, x, packing), x, 0.0)
    return found


def live_rows(rows: torch.Tensor, x: torch.Tensor, packing: Packing | None) -> torch.Tensor:
    """Whether a token's sequence has a row, as a mask over x [B, T, ...]."""
    live = rows >= 0
    if packing is None:
        return live.view(-1, *[1] * (x.dim() - 1))
    lengths = torch.tensor(packing.on_host(), device=x.device)
    of_token = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
    of_token[: int(lengths.sum())] = live.repeat_interleave(lengths)
    return of_token.view(1, -1, *[1] * (x.dim() - 2))
