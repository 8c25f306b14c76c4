"""What a piece of a sequence does to the state that enters it: S leaves as M S + H.

M is a matrix under the delta rule, and a decay, its diagonal, where the state only decays; H is the state that the
piece leaves when nothing enters. With it a sequence can be cut anywhere: the maps of its pieces compose,

    (M2, H2) after (M1, H1) = (M2 M1, M2 H1 + H2)

and a cotangent goes the other way through the same M: dS_in = M^T dS_out + what the piece adds itself.
"""

import torch

from ._contract import F32, Launch, Port, ceil_div
from ._forgotten import forgotten_launch
from ._scan import scan_configs, state_scan
from ._tiles import by_dtype, padded, precision

STATE = Port("N HV K V", F32, unit="state/segment_end")
MAP = Port("N HV K K", F32, unit="segment/map")
DECAY = Port("N HV K", F32, unit="segment/decay", where="0..1")


def identity(w):
    """The state [B, HV, K, K] whose end is the map: w [B, T, HV, K]."""
    B, _, HV, K = w.shape
    return torch.eye(K, dtype=w.dtype, device=w.device).expand(B, HV, K, K)


def segment_configs(axes, device):
    """The scan's, with BN chunk ends and BD channels for the sum of decays."""
    return [{**config, "BN": 64, "BD": 64} for config in scan_configs(axes, device)]


def segment_launches(
    k, w, v, g, g_gamma, initial_state, map, decay, state, *, C, seqs, config, b_end=None, forgotten=None
):  # fmt: skip
    """The scan for the state that leaves, and a kernel for the map; what nobody asked for is left out. forgotten
    [N, HV]: room for the chunks that need not be scanned (_forgotten.py)."""
    launches = []
    decays = any(x is not None for x in (g, g_gamma, b_end))
    forgotten = forgotten if decays else None
    if forgotten is not None and state is not None:
        launches.append(
            forgotten_launch(g, g_gamma, b_end, None, None, forgotten, K=k.shape[3], C=C, seqs=seqs)
        )
    if map is not None:
        launches.append(map_launch(k, w, g, b_end, map, C=C, seqs=seqs, config=config))
    if decay is not None:
        launches.append(decay_launch(g, g_gamma, b_end, decay, C=C, seqs=seqs, config=config))
    if state is not None:
        launches.append(
            state_scan(
                k, w, v, g, g_gamma, initial_state, None, None, state, b_end=b_end, forgotten=forgotten, C=C,
                seqs=seqs, config=config,
            )  # fmt: skip
        )
    return launches


def map_launch(k, w, g, b_end, map, *, C, seqs, config):
    from ..kernels.segment_map import segment_map_kernel

    (H, K), HV = k.shape[2:], w.shape[2]
    BV = by_dtype(config, "BV", k.dtype, K)
    return Launch(
        segment_map_kernel,
        grid=(seqs.N * HV * ceil_div(K, BV),),
        args=dict(
            k=k, w=w, g=g, b_end=b_end, map=map, cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets,
            T=seqs.T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(K=K, C=C, BK=by_dtype(config, "BK", k.dtype, K), BV=BV, PRECISION=precision(k.dtype)),
        num_warps=by_dtype(config, "num_warps", k.dtype),
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip


def decay_launch(g, g_gamma, b_end, decay, *, C, seqs, config):
    from ..kernels.segment_decay import segment_decay_kernel

    _, HV, K = decay.shape
    BD = min(config["BD"], padded(K))
    return Launch(
        segment_decay_kernel,
        grid=(seqs.N * HV * ceil_div(K, BD),),
        args=dict(
            g=g, g_gamma=g_gamma, b_end=b_end, decay=decay, cu_seqlens=seqs.cu_seqlens,
            chunk_offsets=seqs.chunk_offsets, T=seqs.T, NT=seqs.NT, HV=HV,
        ),
        constexprs=dict(K=K, C=C, BN=config["BN"], BD=BD),
    )  # fmt: skip
