"""How fla's functions are called, and those that take after them: tensors by name, states, packed sequences."""

from collections.abc import Callable, Mapping

import torch

from ..case import InputSet
from ..whole_op import Forward


def linear_forward(function: Callable, tensors: Mapping[str, str], options: Mapping[str, object]) -> Forward:
    """tensors: the function's name of a tensor -> the pipeline's. The scale is the pipeline's, and the final state is
    asked for, as ours gives it."""

    def forward(given: InputSet) -> Mapping[str, torch.Tensor | None]:
        call = given.call
        packed = {"cu_seqlens": call.seqs.cu_seqlens.long()} if call.packing else {}
        o, final_state = function(
            **{mine: laid_out(mine, given.inputs[name]) for mine, name in tensors.items()},
            scale=call.params["scale"],
            initial_state=given.inputs.get("initial_state"),
            output_final_state=True,
            **packed,
            **options,
        )
        return {"o": o, "final_state": final_state}

    return forward


def laid_out(name: str, x: torch.Tensor) -> torch.Tensor:
    """As these functions take it: a bias of each channel is [HV K] there, and its gradient comes back so."""
    return x.flatten() if name == "dt_bias" else x
