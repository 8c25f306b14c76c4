"""The stage that an expression in an edge is: contract, reference, gradient and kernels, made from its term."""

from collections.abc import Iterable
from functools import cache, cached_property

from ...stages import _map_launches
from ...stages._contract import Contract, Launcher, Port
from ..stage_files.stage_library import SHIPPED, Stage
from .function_source import function_source
from .layout import layout_of
from .load_source import load_source
from .map_launch import ROOT, Backward, Forward, scratch, signature
from .map_source import MapSource
from .terms import Apply, Term, walk

FUNCTIONS_HEAD = f"from {ROOT}.stages import _maps\n\n\n"


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
        file=str(SHIPPED / "_map_launches.py"),
        doc=f"y = {text}, elementwise.",
        contract=Contract(ports, {"y": result}, dict.fromkeys(scalars), flops=flops),
        reference=Function(source, "reference", layout.has, scalars),
        launchers=(Launcher("triton", Forward(source), _map_launches.map_configs),),
        vjp=Function(source, "vjp", source.read_by_vjp, ["needs", *source.vjp_scalars]),
        vjp_launchers=(Launcher("triton", Backward(source), _map_launches.map_vjp_configs, scratch=scratch(layout)),),
    )


class Function:
    """reference or vjp; its text is written out and loaded at the first call."""

    def __init__(self, source: MapSource, name: str, names: Iterable[str], keywords: Iterable[str]):
        self.source, self.name, self.__signature__ = source, name, signature(names, keywords)

    @cached_property
    def function(self):
        return getattr(load_source(FUNCTIONS_HEAD + function_source(self.source)), self.name)

    def __call__(self, *tensors, **named):
        return self.function(*tensors, **named)


def is_map(stage: Stage) -> bool:
    return isinstance(stage.reference, Function)
