"""Retention and lightning attention under fla's names: a fixed decay for each head, which the function knows.

Arguments and results are as for drop_in.chunk_gated_delta_rule. A value head's slope follows from its number among
all HV; a model that holds only some of the heads passes its own to ``load("retention")`` as g_gamma.
"""

from collections.abc import Callable

import torch

from ...stages._slopes import lightning_slopes, retention_slopes
from .drop_in import call, check_dense, fail, refuse

_slopes: dict[tuple, torch.Tensor] = {}


def chunk_retention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    *,
    state_v_first: bool = False,
    chunk_size: int = 64,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Retention: S <- (1 - 2^(-5 - h)) S + k v, o = scale q S, for value head h. Differentiable."""
    refuse(chunk_retention, others)
    return call(
        "retention", dict(q=q, k=k, v=v), dict(g_gamma=slopes(retention_slopes, q, v)), scale, initial_state,
        output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, chunk_size,
    )  # fmt: skip


def chunk_lightning_attn(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    *,
    state_v_first: bool = False,
    chunk_size: int = 64,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Lightning attention: S <- exp(-(8 / HV) (1 - layer_idx / num_layers) h) S + k v, o = scale q S, for value head h.

    Differentiable. layer_idx: 0 to num_layers.
    """
    refuse(chunk_lightning_attn, others)
    check_layer(layer_idx, num_layers)
    g_gamma = slopes(lightning_slopes, q, v, layer_idx, num_layers)
    return call(
        "lightning", dict(q=q, k=k, v=v), dict(g_gamma=g_gamma), scale, initial_state, output_final_state,
        state_v_first, cu_seqlens, cu_seqlens_cpu, chunk_size,
    )  # fmt: skip


def check_layer(layer_idx, num_layers) -> None:
    if not (isinstance(layer_idx, int) and isinstance(num_layers, int) and 0 <= layer_idx <= num_layers > 0):
        fail(f"layer_idx must lie in 0..num_layers, it is {layer_idx!r:.40} of {num_layers!r:.40}")


def slopes(make: Callable, q, v, *layer: int) -> torch.Tensor:
    """The slopes of v's heads, on its device; made once, so that a call launches nothing for them."""
    check_dense("v", v, "B T HV V")
    double = isinstance(q, torch.Tensor) and q.dtype == torch.float64
    place = dict(device=v.device, dtype=torch.float64 if double else torch.float32)
    if torch.compiler.is_compiling():
        return make(v.shape[2], *layer, **place)
    key = (make, v.shape[2], *layer, *place.values())
    if key in _slopes:
        return _slopes[key]
    # what is made in inference mode could not be kept for a later backward pass
    with torch.inference_mode(False):
        made = make(v.shape[2], *layer, **place)
    # a tensor that only stands for one, of a tracer, belongs to its trace
    return _slopes.setdefault(key, made) if type(made) is torch.Tensor else made
