"""Dtypes by name, and what a port's dtype means for one IO dtype."""

import torch

IO_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
NAMES = {dtype: name for name, dtype in IO_DTYPES.items()} | {torch.int32: "int32", torch.int64: "int64"}
CLASSES = {"int": (torch.int32, torch.int64), "q8": (torch.int8, torch.float8_e4m3fn)}
"""Port dtype -> the tensor dtypes that each input of it may have. Made ones have the first."""


def name_of(dtype: torch.dtype) -> str:
    return NAMES.get(dtype, str(dtype).removeprefix("torch."))


def port_dtype(port: str, io: torch.dtype) -> torch.dtype:
    """The tensor dtype of a port that is io, f32, int or q8 in a pipeline whose IO dtype is io."""
    if port in CLASSES:
        return CLASSES[port][0]
    if port == "io" or io == torch.float64:
        return io
    return torch.float32


def compute_dtype(io: torch.dtype) -> torch.dtype:
    """What references calculate in: float64 for float64, else float32."""
    return torch.float64 if io == torch.float64 else torch.float32


def other_layout(x: torch.Tensor) -> str | None:
    """None for a dense tensor, else what PyTorch calls its layout: nested, sparse_coo, mkldnn."""
    if x.is_nested:
        return "nested"
    return None if x.layout is torch.strided else str(x.layout).removeprefix("torch.").removeprefix("_")
