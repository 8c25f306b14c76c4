"""Sums over all tokens of one number per token and value head, for the gradients of a model's per-head constants."""

from ._contract import F32, Launch, Port, ceil_div

PARTS = 128
SCRATCH = {
    "terms": Port("B T HV", F32, doc="what is summed, where it is no gradient of its own"),
    "parts": Port("P HV", F32, doc="sums of every P-th block of rows"),
}
"""The buffers of a launcher that ends with ``head_sums``; P stands in its configs."""


def head_sums(terms, parts, total, seqs, config):
    """total [HV] = the sum over B and T of terms [B, T, HV], without the rows past the last sequence.

    P programs a block of heads each sum every P-th block of rows; a second kernel adds the P sums in order.
    """
    from ..kernels.head_sums import add_parts_kernel, head_sums_kernel

    B, T, HV = terms.shape
    P, BH = config["P"], config["BH"]
    shape = dict(num_warps=config["num_warps"], num_stages=config["num_stages"])
    by_block = Launch(
        head_sums_kernel,
        grid=(P * ceil_div(HV, BH),),
        args=dict(terms=terms, parts=parts, cu_seqlens=seqs.cu_seqlens, N=seqs.N, rows=B * T, HV=HV),
        constexprs=dict(P=P, BT=config["BT"], BH=BH),
        **shape,
    )
    add = Launch(
        add_parts_kernel,
        grid=(ceil_div(HV, BH),),
        args=dict(parts=parts, total=total, HV=HV),
        constexprs=dict(P=P, BH=BH),
        **shape,
    )
    return [by_block, add]
