"""Launches of the scans over chunk states, for the stages with the delta rule's correction and without it."""

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, padded, precision


def state_scan(k, w, v, g, g_gamma, initial_state, h, v_new, final_state, *, C, seqs, config):
    """The scan's one launch; without w the values pass uncorrected (chunk_h)."""
    from ..kernels.chunk_delta_h import chunk_delta_h_kernel

    (_, _, H, K), (_, T, HV, V) = k.shape, v.shape
    BV = by_dtype(config, "BV", k.dtype, V)
    return Launch(
        chunk_delta_h_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            k=k, w=w, v=v, g=g, g_gamma=g_gamma, initial_state=initial_state, h=h, v_new=v_new,
            final_state=final_state, cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets,
            T=T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BK=padded(K), BV=BV, PRECISION=precision(k.dtype)),
        num_warps=config["num_warps"],
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip
