"""What a call is given beside its tensors: params as numbers, and the names of the outputs wanted."""

import math
from collections.abc import Iterable, Mapping
from numbers import Real

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.wire import did_you_mean
from ..loading.spec import PipelineSpec


def read_params(spec: PipelineSpec, given: Mapping) -> tuple[dict[str, float], list[Diagnostic]]:
    """The params that a call gives, and what is wrong with them: each is a finite real number of any type."""
    values, found = {}, []
    for name, written in spec.params.items():
        if (x := given.get(name)) is None:
            continue
        if isinstance(x, bool) or not isinstance(x, Real):
            message = f"the param {name} must be a number, it is {type(x).__name__}"
            found.append(Diagnostic(codes.TENSOR, message, written.key_mark))
        elif not math.isfinite(value := as_float(x)):
            message = f"the param {name} must be finite in float64, it is {short(x)}"
            found.append(Diagnostic(codes.TENSOR, message, written.key_mark))
        else:
            values[name] = value
    return values, found


def as_float(x: Real) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf


def short(x: Real) -> str:
    """A number in a few words: Python refuses to print integers of many thousand digits."""
    return f"an integer of {x.bit_length()} bits" if isinstance(x, int) else str(x)


def wanted_outputs(spec: PipelineSpec, outputs) -> frozenset[str]:
    """The names of the outputs wanted, all by default."""
    if outputs is None:
        return frozenset(spec.outputs)
    if isinstance(outputs, str):
        help = f"write outputs=[{outputs!r}]"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, "outputs must be a list of names, it is a text", help=help))
    names = list(outputs) if isinstance(outputs, Iterable) else None
    if names is None:
        message = f"outputs must be a list of names, it is {outputs!r:.80}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help=f"it has {', '.join(spec.outputs)}"))
    unknown = [str(name) for name in names if not isinstance(name, str) or name not in spec.outputs]
    if unknown:
        help = did_you_mean(unknown[0], spec.outputs) or f"it has {', '.join(spec.outputs)}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, f"{spec.name} has no output {unknown[0]}", help=help))
    return frozenset(names)
