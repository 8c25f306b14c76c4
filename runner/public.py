"""The public names of ``chunkwise.runner``, all in one place."""

from ..stages._slopes import lightning_slopes as lightning_slopes
from ..stages._slopes import retention_slopes as retention_slopes
from .calling.drop_in import chunk_delta_rule as chunk_delta_rule
from .calling.drop_in import chunk_gated_delta_rule as chunk_gated_delta_rule
from .calling.drop_in import chunk_simple_gla as chunk_simple_gla
from .calling.drop_in_channels import chunk_gla as chunk_gla
from .calling.drop_in_channels import chunk_kda as chunk_kda
from .calling.drop_in_recurrent import fused_recurrent_delta_rule as fused_recurrent_delta_rule
from .calling.drop_in_recurrent import fused_recurrent_gated_delta_rule as fused_recurrent_gated_delta_rule
from .calling.drop_in_recurrent import fused_recurrent_gla as fused_recurrent_gla
from .calling.drop_in_recurrent import fused_recurrent_kda as fused_recurrent_kda
from .calling.drop_in_recurrent import fused_recurrent_lightning_attn as fused_recurrent_lightning_attn
from .calling.drop_in_recurrent import fused_recurrent_retention as fused_recurrent_retention
from .calling.drop_in_recurrent import fused_recurrent_simple_gla as fused_recurrent_simple_gla
from .calling.drop_in_slopes import chunk_lightning_attn as chunk_lightning_attn
from .calling.drop_in_slopes import chunk_retention as chunk_retention
from .calling.function import Op as Op
from .calling.function import load as load
from .diagnostics.errors import ChunkwiseError as ChunkwiseError
from .diagnostics.errors import Diagnostic as Diagnostic
