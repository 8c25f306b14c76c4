"""Softmax attention of each query over the keys that it sees, without the matrix of its weights.

    s_ij = scale <q_i, k_j>,  softcap tanh(s / softcap) where there is a softcap,  + slope (j - own_i) with slopes
    o_i = sum over j of p_ij v_j,    p_ij = exp(s_ij - lse_i),    lse_i = log(sum over j of exp(s_ij), + exp(sink))

over the keys first_i <= j < end_i. A query that sees none has o = 0, lse = -inf (its sink, where there is one), and
gives and takes no gradient. Query head h reads key head h // (HQ / H). What a key or a value outside of a query's span
holds, nan too, never reaches that query.

With dropout p, o sums p_ij v_j / (1 - p) over the keys kept; lse is of all. What is kept follows from seed, batch, head
and the places of query and key in their sequence (_dropout.py). Calls that share a seed count their batches on from
first_batch.
"""

import torch

from ._attention import grouped, largest, scores, seen, sum_over_keys
from ._contract import F32, INT, Contract, Launch, Launcher, Port, ceil_div
from ._dropout import dropout_args, factors
from ._flash import flash_limits, fwd_configs
from ._tiles import by_dtype, precision, whole

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ D"),
        "k": Port("B Sk H D"),
        "v": Port("B Sk H DV"),
        "first": Port("B Sq", INT, unit="index/first_key"),
        "end": Port("B Sq", INT, unit="index/end_key"),
        "own": Port("B Sq", INT, unit="index/own_key", doc="what slopes count from, and a query's place for dropout"),
        "sinks": Port("HQ", F32, optional=True, doc="a score without a value, which every query sees"),
        "slopes": Port("HQ", F32, optional=True, doc="added per key of distance"),
        "sequence": Port("B Sq", INT, unit="index/sequence", optional=True, doc="for dropout; the batch without"),
        "start": Port("B Sq", INT, unit="index/first_row", optional=True, doc="for dropout; 0 without"),
    },
    outputs={"o": Port("B Sq HQ DV"), "lse": Port("B Sq HQ", F32, unit="lse/ln")},
    params={"scale": None, "softcap": 0, "dropout": 0, "seed": 0, "first_batch": 0},
    requires=(
        "HQ % H == 0", "softcap >= 0", "dropout >= 0", "dropout <= 1", "seed == floor(seed)", "abs(seed) < 2 ** 53",
        "first_batch == floor(first_batch)", "abs(first_batch) < 2 ** 53",
    ),  # fmt: skip
    flops="2 * B * Sq * Sk * HQ * (D + DV)",
)
GATHERED = "Sk"


def reference(
    q, k, v, first, end, own, sinks, slopes, sequence=None, start=None, *, scale, softcap, dropout=0, seed=0,
    first_batch=0,
):  # fmt: skip
    """q [B, Sq, HQ, D], k [B, Sk, H, D], v [B, Sk, H, DV], sinks, slopes [HQ], all the others [B, Sq]."""
    Sk, H = k.shape[1:3]
    keep, q = seen(first, end, Sk), grouped(q, H)
    s = torch.where(keep, scores(q, k, own, slopes, scale, softcap)[0], -torch.inf)
    m = largest(s)
    sink = None if sinks is None else sinks.view(q.shape[2:4])[:, :, None, None]
    if sink is not None:
        m = torch.maximum(m, sink.detach())
    weights = torch.exp(s - m)
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - m)
    none = total == 0
    total = torch.where(none, 1.0, total)
    if dropout:
        weights = weights * factors(s, own, sequence, start, dropout=dropout, seed=seed, first_batch=first_batch)
    o = sum_over_keys(weights, keep, v) / by_query(total)
    lse = torch.where(none, -torch.inf, m + torch.log(total))
    return {"o": o.flatten(2, 3), "lse": by_query(lse).flatten(2, 3)[..., 0]}


def by_query(x):
    """[B, H, G, Sq, 1] as [B, Sq, H, G, 1]."""
    return x.permute(0, 3, 1, 2, 4)


def vjp(
    d_o, d_lse, q, k, v, first, end, own, sinks, slopes, sequence=None, start=None, o=None, lse=None, *, needs, scale,
    softcap, dropout=0, seed=0, first_batch=0,
):  # fmt: skip
    """With p = exp(s - lse) and delta = <o, do> - d_lse, and p in dv and do v^T only what is kept, as it counts:

        dv = p^T do    ds = p (do v^T - delta), times 1 - tanh^2 under a softcap    dq = scale ds k    dk = scale ds^T q
        dsink = - sum over the queries of exp(sink - lse) delta

    The kernels take slopes for constants and give no gradient by them.
    """
    H, keep = k.shape[2], seen(first, end, k.shape[1])
    delta = torch.zeros_like(lse) if d_o is None else (o * d_o).sum(-1)
    delta = delta if d_lse is None else delta - d_lse
    p, ds, uncapped = pairs(
        d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, scale=scale, softcap=softcap,
        dropout=dropout, seed=seed, first_batch=first_batch,
    )  # fmt: skip
    grads = {"v": torch.zeros_like(v) if d_o is None else torch.einsum("bhgij,bihgd->bjhd", p, grouped(d_o, H))}
    if slopes is not None and "slopes" in needs:
        distance = torch.arange(k.shape[1], device=k.device) - own[..., None]
        grads["slopes"] = torch.einsum("bhgij,bij->hg", uncapped, distance.to(ds.dtype)).flatten()
    grads["q"] = scale * sum_over_keys(ds, keep, k).flatten(2, 3)
    grads["k"] = scale * torch.einsum("bhgij,bihgd->bjhd", ds, grouped(q, H))
    if sinks is not None:
        grads["sinks"] = -(torch.exp(sinks - lse) * delta).sum((0, 1))
    return {name: x for name, x in grads.items() if name in needs}


def pairs(
    d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, *, scale, softcap, dropout, seed, first_batch
):  # fmt: skip
    """(weights as they count in the output, gradients of scores, of scores after the softcap), [B, H, G, Sq, Sk]."""
    H, keep = k.shape[2], seen(first, end, k.shape[1])
    s, t = scores(grouped(q, H), k, own, slopes, scale, softcap)
    rows = grouped(lse, H).permute(0, 2, 3, 1)[..., None]
    p, dp, counts = torch.exp(torch.where(keep, s - rows, -torch.inf)), 0.0, 1.0
    if dropout:
        counts = factors(s, own, sequence, start, dropout=dropout, seed=seed, first_batch=first_batch)
    if d_o is not None:
        dp = counts * torch.einsum("bihgd,bjhd->bhgij", grouped(d_o, H), v)
    ds = torch.where(keep, p * (dp - grouped(delta, H).permute(0, 2, 3, 1)[..., None]), 0.0)
    return counts * p, ds if t is None else torch.where(keep, ds * (1 - t * t), 0.0), ds


def launch(
    q, k, v, first, end, own, sinks, slopes, sequence, start, o, lse, *, scale, softcap, dropout, seed, first_batch,
    seqs, config,
):  # fmt: skip
    from ..kernels.flash_fwd import flash_fwd_kernel

    (B, Sq, HQ, D), (Sk, H, DV) = q.shape, v.shape[1:]
    BM, BN = by_dtype(config, "BM", q.dtype), by_dtype(config, "BN", q.dtype)
    return [
        Launch(
            flash_fwd_kernel,
            grid=(B * HQ * ceil_div(Sq, BM),),
            args=dict(
                q=q, k=k, v=v, first=first, end=end, own=own, sinks=sinks, slopes=slopes, sequence=sequence,
                start=start, o=o, lse=lse, scale=scale, softcap=float(softcap), Sq=Sq, Sk=Sk, H=H, HQ=HQ,
                **dropout_args(dropout, seed, first_batch),
            ),
            constexprs=dict(
                D=D, DV=DV, BD=whole(D, q.dtype), BV=whole(DV, q.dtype), BM=BM, BN=BN, CAPPED=bool(softcap),
                DROPPED=bool(dropout), RISING=scale > 0, ONE_LOOP=bool(config["ONE_LOOP"]),
                PRECISION=precision(q.dtype),
            ),
            num_warps=config["num_warps"],
            num_stages=by_dtype(config, "num_stages", q.dtype),
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, fwd_configs, flash_limits)]
VJP_STAGES = """
stages:
  preprocess: {use: flash_bwd_preprocess, in: {d_o: d_o, d_lse: d_lse, o: o, lse: lse, sinks: sinks}}
  dkdv:
    use: flash_bwd_dkdv
    in:
      {d_o: d_o, q: q, k: k, v: v, first: first, end: end, own: own, slopes: slopes, sequence: sequence, start: start,
       lse: lse, delta: preprocess.delta}
    with: {scale: scale, softcap: softcap, dropout: dropout, seed: seed, first_batch: first_batch}
  dq:
    use: flash_bwd_dq
    in:
      {d_o: d_o, q: q, k: k, v: v, first: first, end: end, own: own, slopes: slopes, sequence: sequence, start: start,
       lse: lse, delta: preprocess.delta}
    with: {scale: scale, softcap: softcap, dropout: dropout, seed: seed, first_batch: first_batch}
outputs: {d_q: dq.d_q, d_k: dkdv.d_k, d_v: dkdv.d_v, d_sinks: preprocess.d_sinks}
"""
