"""The shape of a stage: ports, contract, launches as data.

A stage file holds ``CONTRACT``, ``reference`` and, where it has them, ``LAUNCHERS``, ``vjp`` and
``VJP_LAUNCHERS``. This module is the vocabulary they share. It names no other stage, reads no YAML,
no environment and no device.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

IO = "io"      # one dtype per pipeline, solved from the inputs that name none
F32 = "f32"    # the accumulation dtype; float64 when IO is float64
INT = "int"    # int32 or int64
Q8 = "q8"      # int8 or fp8 (e4m3): numbers in eight bits, which a scale of their own stands beside
HELD = (INT, Q8)
"""Dtypes that are only read: without gradients, and no expression computes with them."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Port:
    """One tensor that enters or leaves a stage.

    shape: axis names separated by spaces, outermost first; ``1`` and other integers are fixed sizes.
    dtype: IO, F32, INT or Q8.
    unit: a name from ``_units.UNITS``; ``{x}`` in it is a variable of the stage (see Contract.presence).
        None joins only None.
    where: a value law (``_laws.parse``), a requirement on an input, a promise on an output; an output's
        promise may lean on the inputs' requirements.
    optional: an input that may be absent, or an output that is absent with its cause.
    mutates: of an output, the input that it is written over: the same shape, dtype and unit, and one tensor.
    doc: one line for the generated documentation.
    """

    shape: str
    dtype: str = IO
    unit: str | None = None
    where: str | None = None
    optional: bool = False
    mutates: str | None = None
    doc: str = ""

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.shape.split())


@dataclass(frozen=True)
class Contract:
    """What a stage takes and gives.

    params: name -> default (None: must be bound by the pipeline's ``with``).
    requires: expressions over the axes and params that must hold, e.g. ``"HV % H == 0"``.
    flops: expression over the axes: floating-point operations of one call.
    presence: unit variable -> (input port, its value when that port is bound, its value when absent).
        A variable that is not listed is solved by unification (``unit="{u}"``: any unit, the same twice).
    across: the reference is handed all sequences of a call at once, packed or not; else each by itself.
    """

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    params: Mapping[str, float | None] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    flops: str = "0"
    presence: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    across: bool = False

    @property
    def mutated(self) -> Mapping[str, str]:
        """Output -> the input that it is written over."""
        return {name: port.mutates for name, port in self.outputs.items() if port.mutates}


Config = Mapping[str, int]
"""Tile sizes of one shipped configuration, with ``num_warps`` and ``num_stages``."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch, as data. The runner compiles, caches, times and launches it.

    kernel: a ``@triton.jit`` or ``@gluon.jit`` function.
    grid: program counts, at most three; a grid with a 0 is not launched.
    args: parameter name -> tensor, number or None, for every parameter that is no constexpr.
    constexprs: parameter name -> compile-time value. Lengths, B, T, H and HV never stand here.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Any]
    constexprs: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2


def always(axes: Mapping[str, int], device: str) -> str | None:
    return None


@dataclass(frozen=True)
class Launcher:
    """One implementation of a stage's contract.

    launch(*inputs, *outputs, *scratch, ..., seqs, config) -> list[Launch]: describes, runs nothing. It sees
        tensors only for their shape, dtype and device (compile checks hand it meta tensors); an input that is
        absent and an output that nobody asked for are None. Keyword-only parameters named after axes or params
        are passed by name.
    configs(axes, device) -> list[Config]: what ships, best first; device is a class such as "sm_90".
    when(axes, device) -> None, or the reason why this launcher refuses these sizes.
    scratch: name -> Port, buffers that the runner allocates; shapes over axes and config values.
    not_in: IO dtypes that it refuses, as "fp16" -> the reason.
    always: outputs that it writes whether anyone asked for them or not.
    """

    name: str
    launch: Callable[..., list[Launch]]
    configs: Callable[[Mapping[str, int], str], list[Config]]
    when: Callable[[Mapping[str, int], str], str | None] = always
    scratch: Mapping[str, Port] = field(default_factory=dict)
    not_in: Mapping[str, str] = field(default_factory=dict)
    always: tuple[str, ...] = ()
