"""The gradient of a stage as a stage of its own, ``X.vjp``.

Inputs: ``d_<output>`` for each output (absent where nothing flows back), and the inputs and outputs of X that its
``vjp`` names. Outputs: ``d_<input>``. Without a ``vjp``, autograd through the reference serves.
"""

import inspect
from collections.abc import Mapping
from functools import cache

import torch

from ...stages._contract import F32, HELD, Contract, Port
from ..loading.load_spec import parse_spec
from ..loading.spec import PipelineSpec
from ..stage_files.stage_library import Stage

HEAD = "schema: pipeline/v1\nname: gradient\ninputs: {x: B}"
"""What makes a pipeline of stages that are a gradient, where only their outputs' names count."""

SCALAR_AXES = frozenset({"B", "T", "N", "NT", "H", "HV"})
"""A tensor over these alone has one number per token or head: its gradient is a long sum, kept in float32."""


def cotangent_dtype(dtype: str, axes) -> str:
    return F32 if dtype == F32 or SCALAR_AXES.issuperset(map(str, axes)) else dtype


def cotangent_port(port: Port) -> Port:
    unit = f"cotangent/{port.unit}" if port.unit else None
    return Port(
        port.shape, cotangent_dtype(port.dtype, port.axes), unit, optional=True, doc=f"gradient; {port.doc}".strip("; ")
    )


@cache
def vjp_stage(stage: Stage) -> Stage:
    """The stage X.vjp of X."""
    contract = stage.contract
    names = positional(stage.vjp) if stage.vjp else [*(f"d_{name}" for name in contract.outputs), *contract.inputs]
    ports = {**contract.outputs, **contract.inputs}
    inputs = {
        name: cotangent_port(contract.outputs[name[2:]])
        if name[2:] in contract.outputs and name.startswith("d_")
        else ports[name]
        for name in names
    }
    outputs = {f"d_{name}": cotangent_port(contract.inputs[name]) for name in gradients_given(stage)}
    return Stage(
        name=f"{stage.name}.vjp" if stage.vjp else f"{stage.name}.vjp (autograd)",
        file=stage.file,
        doc=f"Gradient of {stage.name}."
        if stage.vjp
        else f"Gradient of {stage.name}, by autograd through its reference.",
        contract=Contract(
            inputs, outputs, contract.params, contract.requires, f"2 * ({contract.flops})", contract.presence
        ),
        reference=Reference(stage, tuple(names)),
        launchers=stage.vjp_launchers,
        is_vjp=True,
        pattern=stage.vjp_stages,
    )


def positional(function) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def gradients_given(stage: Stage) -> list[str]:
    """The inputs that X.vjp has gradients for, in the order in which its launchers take the buffers."""
    if stage.vjp_stages:
        return [name.removeprefix("d_") for name in gradient_spec(stage).outputs]
    if stage.vjp_launchers:
        taken = positional(stage.vjp)
        launch = positional(stage.vjp_launchers[0].launch)[len(taken) :]
        return [name[2:] for name in launch if name.startswith("d_") and name[2:] in stage.contract.inputs]
    return [name for name, port in stage.contract.inputs.items() if port.dtype not in HELD]


def gradient_spec(stage: Stage) -> PipelineSpec:
    """The stages that a stage's gradient is, as its file has them."""
    return parse_spec(HEAD + stage.vjp_stages, f"{stage.file}, VJP_STAGES")


class Reference:
    """X.vjp as a reference: the stage's vjp, or autograd, with results named ``d_<input>``."""

    def __init__(self, stage: Stage, names: tuple[str, ...]):
        self.stage = stage
        function = stage.vjp or stage.reference
        keywords = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        self.__signature__ = inspect.Signature([*first, *keywords])

    def __call__(self, /, *, needs: frozenset[str], **given) -> dict[str, torch.Tensor]:
        if self.stage.vjp:
            results = self.stage.vjp(**given, needs=needs)
        else:
            results = by_autograd(self.stage, given, needs)
        if not isinstance(results, Mapping):
            return results  # call_reference says what is wrong with it
        known = self.stage.contract.inputs
        return {f"d_{name}": x for name, x in results.items() if name in needs or name not in known}


def by_autograd(stage: Stage, given: Mapping, needs: frozenset[str]) -> dict[str, torch.Tensor]:
    """Gradients of the reference by PyTorch's autograd; given holds cotangents, inputs, axes and params."""
    cotangents = {name: given[f"d_{name}"] for name in stage.contract.outputs}
    rest = {name: x for name, x in given.items() if not (name.startswith("d_") and name[2:] in cotangents)}
    # below a registered op PyTorch has switched autograd off in both ways: the gradient would be zeros
    with torch.inference_mode(False), torch.enable_grad():
        leaves = {name: rest[name].detach().requires_grad_() for name in sorted(needs) if rest.get(name) is not None}
        outputs = stage.reference(**{**rest, **leaves})
        pairs = [(outputs[name], d) for name, d in cotangents.items() if d is not None and outputs[name].requires_grad]
        results = (
            torch.autograd.grad(
                [out for out, _ in pairs], list(leaves.values()), [d for _, d in pairs], allow_unused=True
            )
            if pairs
            else [None] * len(leaves)
        )
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), results)
    }
