"""Attention of all heads of a query over chosen entries and a window of tokens, in plain PyTorch and as a launch."""

from . import flash_fwd, merge_states
from ._contract import F32, INT, Launch, Port, ceil_div
from ._decode import float32_tiles
from ._tiles import by_dtype, padded, precision, whole

QUERY = Port("B Sq GO HG DC")
AROUND = {
    "kv": Port("B NB M DC", doc="the tokens themselves"),
    "first": Port("B Sq", INT, unit="index/first_key"),
    "end": Port("B Sq", INT, unit="index/end_key"),
    "sinks": Port("GO HG", F32, optional=True, doc="a score without a value that every query sees"),
}
OUTPUTS = {"o": QUERY, "lse": Port("B Sq GO HG", F32, unit="lse/ln")}


def attention(q, c, count, kv, first, end, sinks, *, scale):
    """q [B, Sq, GO, HG, DC], c [B, Sq, TOP, DC], kv [B, NB, M, DC], count, first, end [B, Sq], sinks [GO, HG]."""
    far, near = parts(q, c, count, kv, first, end, sinks)
    a, b = (flash_fwd.reference(*each, scale=scale, softcap=0) for each in (far, near))
    found = merge_states.reference(*over_queries(a, q), b["o"], b["lse"])
    return {"o": found["o"].view_as(q), "lse": found["lse"].view(q.shape[:4])}


def parts(q, c, count, kv, first, end, sinks):
    """What flash_fwd takes for the entries, where each query is a batch of its own, and for the tokens."""
    heads, count = q.flatten(2, 3), count.flatten()[:, None]
    c, kv = c.flatten(0, 1)[:, :, None], kv.flatten(1, 2)[:, :, None]
    far = (heads.flatten(0, 1)[:, None], c, c, count * 0, count, None, None, None)
    return far, (heads, kv, kv, first, end, None, None if sinks is None else sinks.flatten(), None)


def over_queries(found, q):
    """(o [B, Sq, HQ, DC], lse [B, Sq, HQ]) of what each query found as a batch of its own."""
    shape = (*q.shape[:2], q.shape[2] * q.shape[3])
    return found["o"].view(*shape, q.shape[-1]), found["lse"].view(shape)


def gradients(d_o, d_lse, q, c, count, kv, first, end, sinks, *, scale):
    """merge_states' and flash_fwd's; what is key and value at once takes as both."""
    far, near = parts(q, c, count, kv, first, end, sinks)
    a, b = (flash_fwd.reference(*each, scale=scale, softcap=0) for each in (far, near))
    merging = (*over_queries(a, q), b["o"], b["lse"])
    o = merge_states.reference(*merging)["o"]
    d_o, d_lse = None if d_o is None else d_o.flatten(2, 3), None if d_lse is None else d_lse.flatten(2, 3)
    d = merge_states.vjp(d_o, d_lse, *merging, o, needs={"o_a", "lse_a", "o_b", "lse_b"})
    needs = {"q", "k", "v", "sinks"}
    d_a = (d["o_a"].flatten(0, 1)[:, None], d["lse_a"].flatten(0, 1)[:, None])
    d_far = flash_fwd.vjp(*d_a, *far, o=a["o"], lse=a["lse"], needs=needs, scale=scale, softcap=0)
    d_near = flash_fwd.vjp(
        d["o_b"], d["lse_b"], *near, o=b["o"], lse=b["lse"], needs=needs, scale=scale, softcap=0
    )  # fmt: skip
    found = {
        "q": d_far["q"].view_as(q) + d_near["q"].view_as(q),
        "c": (d_far["k"] + d_far["v"]).view_as(c),
        "kv": (d_near["k"] + d_near["v"]).view_as(kv),
    }
    return found if sinks is None else found | {"sinks": d_near["sinks"].view_as(sinks)}


def limits(axes, device):
    return f"DC = {axes['DC']}: at most 512" if axes["DC"] > 512 else None


def configs(axes, device):
    tiles = [(64, 2), (64, 1)] if device == "sm_90" else [(32, 1), (32, 2)]
    return [
        {"BM": 64, "BN": BN, "num_warps": 8, "num_stages": stages, **float32_tiles((axes["DC"],))}
        for BN, stages in tiles
    ]


def launch(q, c, places, count, kv, first, end, sinks, o, lse, *, scale, config):
    from ..kernels.shared_kv_attention import shared_kv_attention_kernel

    (B, Sq), DC, HQ = q.shape[:2], q.shape[-1], q.shape[2] * q.shape[3]
    BM = min(by_dtype(config, "BM", q.dtype), padded(HQ))
    return Launch(
        shared_kv_attention_kernel,
        grid=(B * Sq * ceil_div(HQ, BM),),
        args=dict(
            q=q, c=c, places=places, count=count, kv=kv, first=first, end=end, sinks=sinks, o=o, lse=lse, scale=scale,
            Sq=Sq, NB=kv.shape[1], Sk=kv.shape[1] * kv.shape[2], TOP=(c if places is None else places).shape[2], HQ=HQ,
        ),
        constexprs=dict(
            D=DC, BD=whole(DC, q.dtype), BM=BM, BN=by_dtype(config, "BN", q.dtype), PRECISION=precision(q.dtype)
        ),
        num_warps=by_dtype(config, "num_warps", q.dtype),
        num_stages=by_dtype(config, "num_stages", q.dtype),
    )  # fmt: skip
