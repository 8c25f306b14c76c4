"""The launches of a stage on tensors without memory: what a launcher would launch for given sizes and dtype."""

import inspect
from collections.abc import Mapping

import torch

from ...stages._contract import Contract, Launch, Launcher, Port, ceil_div
from ...stages._seqs import Seqs
from ..planning.dtypes import port_dtype

FORMS = ("plain", "packed", "bare")
"""A plain batch, packed sequences, and a plain batch without any optional input."""

PACKED_SEQUENCES = 3


def meta_launches(
    contract: Contract, launcher: Launcher, backward: bool, axes: Mapping[str, int], io, form: str, config
) -> list[Launch]:
    """axes: B, T, H, HV, K, V, C. io: the IO dtype. backward: the launcher is one of VJP_LAUNCHERS."""
    axes, seqs = complete(axes, form == "packed")
    given = {"seqs": seqs, "config": config, **contract.params, **axes}
    positional, by_name = [], {}
    for name, parameter in inspect.signature(launcher.launch).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            by_name[name] = 0.125 if given[name] is None else given[name]
        else:
            positional.append(tensor(name, contract, launcher, backward, {**axes, **config}, io, form))
    return launcher.launch(*positional, **by_name)


def complete(axes: Mapping[str, int], packed: bool) -> tuple[dict[str, int], Seqs]:
    """The axes with N and NT, and the sequences."""
    B, T, C = (1 if packed else axes["B"]), axes["T"], axes["C"]
    N = PACKED_SEQUENCES if packed else B
    NT = (T + N * (C - 1)) // C if packed else ceil_div(T, C)
    axes = {**axes, "B": B, "N": N, "NT": NT}
    if not packed:
        return axes, Seqs(N, T, C, NT)
    return axes, Seqs(N, T, C, NT, meta((N + 1,), torch.int32), meta((NT, 2), torch.int32), meta((N + 1,), torch.int32))


def meta(shape, dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def tensor(name: str, contract: Contract, launcher: Launcher, backward: bool, sizes, io, form: str):
    """The argument of that name: an input, output, scratch buffer, or d_ of an input or output; None if left out."""
    port = port_of(name, contract, launcher, backward)
    absent = form == "bare" and optional(name, contract, backward)
    return None if absent else meta(shape(port, sizes), port_dtype(port.dtype, io))


def optional(name: str, contract: Contract, backward: bool) -> bool:
    """Whether name is an optional input, or in backward the gradient of one."""
    source = name.removeprefix("d_") if backward else name
    port = contract.inputs.get(name) or contract.inputs.get(source)
    return port is not None and port.optional


def port_of(name: str, contract: Contract, launcher: Launcher, backward: bool) -> Port:
    known = {**contract.inputs, **contract.outputs, **launcher.scratch}
    if name in known:
        return known[name]
    if backward and name.startswith("d_") and name[2:] in known:
        return known[name[2:]]
    raise LookupError(f"launch of {launcher.name} takes {name}, which is no port of the contract and no scratch")


def shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(axis) if axis.isdigit() else sizes[axis] for axis in port.axes)
