"""Stages of communication for what every rank needs whole: the rows of all ranks, and the sum of their gradients."""

import inspect
from collections.abc import Mapping

import torch

from ...stages import _exchange
from ...stages._contract import Port
from ..graphs.graph import Value
from ..stage_files.stage_library import SHIPPED, Stage
from .exchange_stage import Ranks
from .lost_rank import meeting

Rows = tuple[int, ...] | None
"""Of each rank; None where all have as many."""


def rows_stage(id: str, values: Mapping[str, Value], axis: str, ranks: Ranks, rows: Rows, scatter: bool) -> Stage:
    """values: what is exchanged, by port, each with a rank's rows along the axis. scatter: from the rows of all ranks
    to those of this one, added over the ranks; else the other way."""
    ports = {port: Port(" ".join(map(str, x.axes)), x.dtype, x.unit) for port, x in values.items()}
    contract = _exchange.rows_contract(ports, axis, rows_of_all(axis), scatter)
    name, what = ("reduce_scatter", "added over the ranks, the rows of this one") if scatter else ("all_gather", ROWS)
    doc = f"The {' and '.join(values)}, {what}."
    reference = RowExchange(id, {port: x.axes.index(axis) for port, x in values.items()}, ranks, rows, scatter)
    return Stage(name, str(SHIPPED / "_exchange.py"), doc, contract, reference, transport=ranks.transport)


ROWS = "the rows of every rank, on every rank"


def rows_of_all(axis: str) -> str:
    """The axis of all ranks' rows."""
    return f"{axis}_all"


class RowExchange:
    """The reference; places: port -> where its rows are among its axes."""

    def __init__(self, id: str, places: Mapping[str, int], ranks: Ranks, rows: Rows, scatter: bool):
        self.id, self.places, self.ranks, self.rows, self.scatter = id, places, ranks, rows, scatter
        names = [f"{port}s" if scatter else port for port in places]
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        self.__signature__ = inspect.Signature(first)

    def __call__(self, **given: torch.Tensor) -> dict[str, torch.Tensor]:
        with meeting(self.id, self.ranks.rank, self.ranks.size):
            if self.scatter:
                return {port: self.scattered(given[f"{port}s"], dim) for port, dim in self.places.items()}
            return {f"{port}s": self.gathered(given[port], dim) for port, dim in self.places.items()}

    def gathered(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        rows = self.rows or (x.shape[dim],) * self.ranks.size
        return _exchange.gathered_rows(x, self.ranks.group, dim, rows)

    def scattered(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        rows = self.rows or (x.shape[dim] // self.ranks.size,) * self.ranks.size
        return _exchange.scattered_rows(x, self.ranks.group, dim, rows, self.ranks.rank)
