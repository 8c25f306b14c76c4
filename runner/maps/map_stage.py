"""The stage that an expression in an edge is: contract, reference, gradient and kernels, made from its term."""

import inspect
from collections.abc import Iterable, Mapping
from functools import cache

from ...stages import _map_launches
from ...stages._contract import F32, Contract, Launcher, Port
from ...stages._middle_sums import PARTS
from ..stage_files.stage_library import SHIPPED_PACKAGE, Stage
from .function_source import function_source
from .kernel_source import kernel_source
from .layout import Layout, layout_of, reductions
from .load_source import load_source
from .map_source import D, MapSource
from .terms import Apply, Term, walk

ROOT = SHIPPED_PACKAGE.rpartition(".")[0]
FUNCTIONS_HEAD = f"from {ROOT}.stages import _maps\n\n\n"
KERNELS_HEAD = f"import triton\nimport triton.language as tl\n\nfrom {ROOT}.kernels import _maps\n\n\n"


@cache
def map_stage(
    text: str, term: Term, operands: tuple[tuple[str, Port], ...], scalars: tuple[str, ...], y: Port
) -> Stage:
    """operands: (port, its type), one of them with the axes of all. y: the result's type, without its shape."""
    ports = dict(operands)
    layout = layout_of({name: port.axes for name, port in ports.items()})
    source = MapSource(text, term, layout, scalars)
    result = Port(" ".join(layout.axes), y.dtype, y.unit, y.where)
    operations = sum(isinstance(part, Apply) for part in walk(term))
    flops = " * ".join([str(operations), *layout.axes])
    return Stage(
        name=f"({text})",
        file=_map_launches.__file__,
        doc=f"y = {text}, elementwise.",
        contract=Contract(ports, {"y": result}, dict.fromkeys(scalars), flops=flops),
        reference=Function(source, "reference", layout.has, scalars),
        launchers=(Launcher("triton", Forward(source), _map_launches.map_configs),),
        vjp=Function(source, "vjp", source.read_by_vjp, ["needs", *source.vjp_scalars]),
        vjp_launchers=(Launcher("triton", Backward(source), _map_launches.map_vjp_configs, scratch=scratch(layout)),),
    )


def signature(names: Iterable[str], keywords: Iterable[str]) -> inspect.Signature:
    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    return inspect.Signature([*first, *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in keywords)])


class Function:
    """reference or vjp; its text is written out and loaded at the first call."""

    def __init__(self, source: MapSource, name: str, names: Iterable[str], keywords: Iterable[str]):
        self.source, self.name, self.__signature__ = source, name, signature(names, keywords)

    def __call__(self, *tensors, **named):
        return getattr(load_source(FUNCTIONS_HEAD + function_source(self.source)), self.name)(*tensors, **named)


def kernel(source: MapSource, name: str):
    return getattr(load_source(KERNELS_HEAD + kernel_source(source)), name)


class Forward:
    """launch(*operands, y, *, scalars, seqs, config)."""

    def __init__(self, source: MapSource):
        self.source = source
        self.__signature__ = signature([*source.layout.has, "y"], [*source.scalars, "seqs", "config"])

    def __call__(self, *tensors, seqs, config, **scalars):
        names, segments = [*self.source.layout.has, "y"], self.source.layout.segments
        found = dict(zip(names, tensors, strict=True))
        forward = kernel(self.source, "map_kernel")
        return [_map_launches.map_launch(forward, found, scalars, found["y"], segments, config)]


class Backward:
    """launch(d_y, *operands that are read, *gradients, *scratch, *, scalars, seqs, config)."""

    def __init__(self, source: MapSource):
        self.source = source
        self.gradients = [f"d_{name}" for name in source.layout.has]
        names = [*source.read_by_vjp, *self.gradients, *scratch(source.layout)]
        self.__signature__ = signature(names, [*source.vjp_scalars, "seqs", "config"])

    def __call__(self, *tensors, seqs, config, **scalars):
        layout = self.source.layout
        given = dict(zip(self.__signature__.parameters, tensors))
        sums = {
            name: (given[f"d_{name}"], [given[each] for each in scratch(layout, (name,))], reductions(layout, name))
            for name in layout.reduced
        }
        direct = {name: given[name] for name in self.gradients if name.removeprefix("d_") not in sums}
        tensors = {name: given[name] for name in self.source.read_by_vjp} | direct
        return _map_launches.map_vjp_launches(
            kernel(self.source, "map_vjp_kernel"), tensors, scalars, given[D], layout.segments, sums,
            by_row(layout), tail(layout), seqs, config,
        )  # fmt: skip


def by_row(layout: Layout) -> bool:
    """Whether some gradient is summed over the columns, by programs that take whole rows."""
    return any(not layout.has[name][-1] for name in layout.reduced)


def tail(layout: Layout) -> tuple[int, bool] | None:
    """The axis along which sequences are packed, and whether it counts chunks."""
    for axis in ("T", "NT"):
        if axis in layout.axes:
            return layout.axes.index(axis), axis == "NT"
    return None


def scratch(layout: Layout, operands: Iterable[str] | None = None) -> Mapping[str, Port]:
    """Buffers of the sums, operand by operand: the terms, then for each sum its parts, where it is split, and its
    total, where another one follows."""
    found = {}
    for name in layout.reduced if operands is None else operands:
        sums = reductions(layout, name)
        for at, (before, run, after, split) in enumerate(sums):
            if at == 0:
                found[f"sum_{name}_terms"] = float32(layout.names([*before, *run, *after]))
            if split:
                found[f"sum_{name}_parts{at}"] = float32([*layout.names(before), str(PARTS), *layout.names(after)])
            if at + 1 < len(sums):
                found[f"sum_{name}_total{at}"] = float32(layout.names([*before, *after]))
    return found


def float32(axes: Iterable[str]) -> Port:
    return Port(" ".join(axes), F32)
