"""Verification where float64 copies of everything would not fit: some heads, each at full length.

Heads do not mix, so a head's truth is the same alone (under dropout, while its number is). The op under test still runs
whole; its outputs on the chosen heads are what is compared.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from ..graphs.graph import Graph
from ..graphs.sizes import number, shape

COPIES = 4
"""Float64 values, the rounding model's, and what autograd holds in between, over the float64 values alone. With 2.5
float32 pipelines of two large stages ran out of memory."""


def free_bytes(device: torch.device) -> int:
    """Memory that verification may fill: most of what is free, within this process's part of a device."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        ours = total * torch.cuda.memory.get_per_process_memory_fraction(device)
        return int(0.8 * min(free, ours - torch.cuda.memory_allocated(device)))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return available // 2


def pick_heads(
    graph: Graph, sizes: Mapping[str, int], device: torch.device, params: Mapping[str, float]
) -> tuple[int, ...] | None:
    """Key heads to check, spread over all of them, or the first ones where a head's own number matters; None when all
    fit."""
    values = sum(math.prod(shape(value.axes, sizes)) for value in graph.values.values())
    needed = 8 * (COPIES * values + pair_numbers(graph, sizes))
    heads, free = sizes.get("H", 1), free_bytes(device)
    if needed <= free or heads == 1:
        return None
    count = max(1, int(heads * free / needed))
    if drops(graph, {**sizes, **params}):
        return tuple(range(count))
    return tuple(sorted({round(i * (heads - 1) / max(1, count - 1)) for i in range(count)}))


def drops(graph: Graph, names: Mapping[str, float]) -> bool:
    """Whether a stage has dropout that is not 0: what it keeps follows from the head's number."""
    nodes = [node for node in graph.nodes.values() if "dropout" in node.params]
    return any(number(f"{node.id}.dropout", node.params["dropout"], names, node.mark) for node in nodes)


def pair_numbers(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Numbers of all pairs of tokens that a dense definition holds: some for each line, and their gradients."""
    definition = graph.spec.definition
    if definition is None or not definition.dense:
        return 0
    pairs = math.prod(sizes.get(axis, 1) for axis in ("B", "HQ", "Sq", "Sk"))
    return 2 * len(definition.dense) * pairs


def take_heads(
    x: torch.Tensor | None, axes: tuple, heads: tuple[int, ...], sizes: Mapping[str, int]
) -> torch.Tensor | None:
    """The part of a tensor on some key heads, and on the value or query heads that go with them."""
    if x is None:
        return None
    for dim, axis in enumerate(axes):
        if axis in ("H", "HV", "HQ"):
            group = sizes[axis] // sizes["H"]
            chosen = [head * group + i for head in heads for i in range(group)]
            x = x.index_select(dim, torch.tensor(chosen, device=x.device))
    return x
