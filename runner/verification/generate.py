"""Inputs for a pipeline, shaped by its laws and units; the same for the same seed, sizes and device."""

import zlib
from collections.abc import Mapping

import torch

from ...stages import _laws
from ...stages._contract import Q8
from ..graphs.graph import Graph, Value
from ..graphs.sizes import shape
from ..planning.dtypes import port_dtype

CASES = {
    "typical": "noise, shaped by each input's law",
    "weak_gate": "log decays near 0: the state forgets almost nothing",
    "strong_gate": "log decays from 0 to -20 per token",
    "equal_keys": "every token of a head has the same key, beta 0.99, weak gate",
    "resets": "typical, with a log decay of -3e37 at the first token and at some later ones",
}
"""Case name -> what it makes. Ill-conditioned by construction: see ILL_CONDITIONED."""

ILL_CONDITIONED = frozenset({"equal_keys"})
GATE = "log_decay/ln/token"


def cases_of(graph: Graph) -> list[str]:
    """The cases that its inputs can be of: gates that the graph makes itself, and keys that it gives their length, are
    what they are."""
    return [case for case in CASES if case == "typical" or any(shaped(value, case) for value in graph.inputs.values())]


def shaped(value: Value, case: str) -> bool:
    """Whether an input is what the case is about."""
    if case == "equal_keys":
        return has_equal_rows(value)
    return value.unit == GATE and (case != "resets" or "T" in value.axes)


def has_equal_rows(value: Value) -> bool:
    return "T" in value.axes and any(law.kind == "unit_norm" for law in value.laws)


def make_inputs(
    graph: Graph, sizes: Mapping[str, int], io: torch.dtype, device, seed: int = 0, case: str = "typical"
) -> dict[str, torch.Tensor | None]:
    """Tensors for every input of the graph in its port dtype; None for the absent ones."""
    return {
        name: None if name in graph.absent else make_input(value, sizes, io, device, seed, case)
        for name, value in graph.inputs.items()
    }


def make_input(value: Value, sizes, io: torch.dtype, device, seed: int, case: str) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed * 7919 + zlib.crc32(value.name.encode()) % 2**31)
    dtype = port_dtype(value.dtype, io)
    work = torch.float64 if dtype == torch.float64 else torch.float32
    noise = torch.randn(shape(value.axes, sizes), generator=generator, device=device, dtype=work)
    axes = tuple(map(str, value.axes))
    if case == "equal_keys" and has_equal_rows(value):
        noise = noise.narrow(axes.index("T"), 0, min(1, sizes["T"])).expand_as(noise)
    for law in value.laws:
        noise = _laws.sample(law, noise, axes, sizes)
        if case == "equal_keys" and (law.low, law.high) == (0, 1):
            noise = torch.full_like(noise, 0.99)
    if value.unit == "scale/row":
        noise = noise / 32  # beside a row in eight bits, whose numbers are then about as large as any input's
    if value.dtype == Q8:
        noise = (32 * noise).round().clamp(-127, 127)
    if value.unit == "weight/up_projection":
        noise = noise * max(1, noise.shape[-2]) ** -0.5  # what it makes is as large as what it is made from
    if value.unit == "weight/group":
        noise = noise * max(1, noise.shape[-2] * noise.shape[-3]) ** -0.5
    if value.unit in ("indexer/query", "indexer/key", "indexer/weight"):
        noise = (2 * noise).round()  # scores are whole numbers too, so that every dtype makes the same choice
    if value.unit == "indexer/logit":
        noise = 128 * (500 * torch.sigmoid(noise)).round()  # one token has all the weight
    if value.unit == GATE:
        noise = gate(noise, case, axes, generator)
    return noise.to(dtype).contiguous()


def gate(g: torch.Tensor, case: str, axes: tuple[str, ...], generator) -> torch.Tensor:
    if case in ("weak_gate", "equal_keys"):
        return g * 1e-3
    if case == "strong_gate":
        return -20 * torch.rand(g.shape, generator=generator, device=g.device, dtype=g.dtype)
    if case == "resets" and "T" in axes:
        dim = axes.index("T")
        reset = torch.rand(g.shape, generator=generator, device=g.device, dtype=g.dtype) < 0.03
        first = torch.arange(g.shape[dim], device=g.device).view([-1 if i == dim else 1 for i in range(g.dim())]) == 0
        return torch.where(reset | first, -3e37, g)
    return g


def make_cotangents(
    graph: Graph, sizes: Mapping[str, int], io: torch.dtype, device, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Standard normal gradients for every cotangent of a graph with a backward pass, by value name."""
    return {
        name: make_input(graph.values[name], sizes, io, device, seed, "typical") for name in graph.cotangents.values()
    }
