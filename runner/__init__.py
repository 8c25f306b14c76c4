"""The engine: text -> spec -> graph -> plan -> execution -> report.

    from chunkwise.runner import load
    op = load("gated_delta")
    out = op(q=q, k=k, v=v, g=g, beta=beta)      # out.o, out.final_state
"""

from ..stages._slopes import lightning_slopes, retention_slopes
from .calling.drop_in import chunk_delta_rule, chunk_gated_delta_rule, chunk_simple_gla
from .calling.drop_in_channels import chunk_gla, chunk_kda
from .calling.drop_in_slopes import chunk_lightning_attn, chunk_retention
from .calling.function import Op, load
from .diagnostics.errors import ChunkwiseError, Diagnostic

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
    "lightning_slopes",
    "load",
    "retention_slopes",
]
