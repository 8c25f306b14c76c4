"""Fixed slopes: the natural log decay per token that a value head has, whatever the tokens are.

Constants of a model: made once, kept beside its weights, and given to every call.
"""

import torch


def retention_slopes(heads: int, *, device=None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[heads]: log(1 - 2^(-5 - h)) for head h, computed in float64: in float32, 1 - 2^-25 is 1. arXiv:2307.08621."""
    check(heads, dtype)
    h = torch.arange(heads, device=device, dtype=torch.float64)
    return torch.log1p(-torch.exp2(-5 - h)).to(dtype)


def lightning_slopes(
    heads: int, layer: int = 0, layers: int = 1, *, device=None, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """[heads]: -(8 / heads) (1 - layer / layers) h for head h, 0 <= layer <= layers. arXiv:2405.17381."""
    check(heads, dtype)
    if not (isinstance(layer, int) and isinstance(layers, int) and 0 <= layer <= layers > 0):
        raise ValueError(f"layer must lie in 0..layers, it is {layer!r:.40} of {layers!r:.40}")
    h = torch.arange(heads, device=device, dtype=torch.float64)
    return (-8 * (layers - layer) / (max(heads, 1) * layers) * h).to(dtype)


def check(heads, dtype) -> None:
    if not isinstance(heads, int) or heads < 0:
        raise ValueError(f"heads must be a whole number from 0, it is {heads!r:.40}")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point dtype, it is {dtype!r:.40}")


def retention_violations(x: torch.Tensor) -> torch.Tensor:
    """[..., heads], true where x is not a retention slope to its last digits; nan is none."""
    slopes = retention_slopes(x.shape[-1], device=x.device, dtype=torch.float64)
    return ~((x.double() - slopes).abs() <= 4 * torch.finfo(x.dtype).eps * slopes.abs())


def lightning_violations(x: torch.Tensor) -> torch.Tensor:
    """[..., heads], true where x is not what lightning_slopes gives, whichever the layer; nan never is."""
    steepest = lightning_slopes(x.shape[-1], device=x.device, dtype=torch.float64)
    factor = (x[..., -1:].double() / steepest[-1:]).clamp(0, 1).nan_to_num()
    return ~((x.double() - factor * steepest).abs() <= 4 * torch.finfo(x.dtype).eps * steepest.abs())
