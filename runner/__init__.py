"""The engine: text -> spec -> graph -> plan -> execution -> report.

    from chunkwise.runner import load
    op = load("gated_delta")
    out = op(q=q, k=k, v=v, g=g, beta=beta)      # out.o, out.final_state
"""

from .errors import ChunkwiseError, Diagnostic
from .function import Op, load

__all__ = ["ChunkwiseError", "Diagnostic", "Op", "load"]
