"""The engine: text -> spec -> graph -> plan -> execution -> report.

    from chunkwise.runner import load
    op = load("gated_delta")
    out = op(q=q, k=k, v=v, g=g, beta=beta)      # out.o, out.final_state

The public names are imported when the first one is asked for: the command line arms Ctrl-C before torch is imported.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .public import *

__all__ = [
    "ChunkwiseError",
    "Diagnostic",
    "Op",
    "chunk_delta_rule",
    "chunk_gated_delta_rule",
    "chunk_gla",
    "chunk_kda",
    "chunk_lightning_attn",
    "chunk_retention",
    "chunk_simple_gla",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "fused_recurrent_lightning_attn",
    "fused_recurrent_retention",
    "fused_recurrent_simple_gla",
    "lightning_slopes",
    "load",
    "retention_slopes",
]


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import public

    globals().update({each: getattr(public, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
