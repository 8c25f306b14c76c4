"""What the rows of a chunk do to each other under a decay per channel, for the stages with and without a delta rule."""

import math
from dataclasses import replace

import torch

from ._channel_decay import chunk_major, last_rows, pair_gradients, pairs
from ._contract import F32, Launch, Port, ceil_div
from ._decay import per_key_head, per_value_head, unchunked, zero_chunked
from ._sum_parts import sum_parts
from ._tiles import by_dtype, padded, precision


def intra(q, k, beta, b, *, C, scale):
    """q, k [B, T, H, K], beta [B, T, HV] or None, b [B, T, HV, K]; A_kk only with beta."""
    T, HV = b.shape[1:3]
    q, k = per_value_head(q, HV), per_value_head(k, HV)
    b_end = b.index_select(1, last_rows(T, C, b.device))
    b_q, b_k, b_b = (chunk_major(x, C) for x in (q, k, b))
    outputs = {
        "A_qk": by_row(scale * pairs(b_q, b_k, b_b), T, C),
        "qg": scale * torch.exp2(b) * q,
        "kg": torch.exp2(b_end.repeat_interleave(C, dim=1)[:, :T] - b) * k,
        "b_end": b_end,
    }
    if beta is not None:
        outputs["A_kk"] = beta.unsqueeze(-1) * by_row(pairs(b_k, b_k, b_b).tril(-1), T, C)
        outputs["kb"] = torch.exp2(b) * k
    return outputs


def by_row(A, T, C):
    """[B, NT, HV, C or more, C or more] -> [B, T, HV, C]."""
    return unchunked(A[..., :C, :C].transpose(2, 3), T)


def by_chunk(A, C, diagonal):
    """The inverse of by_row for a cotangent; what lies above that diagonal is 0."""
    A = zero_chunked(A, C).transpose(2, 3).tril(diagonal)
    more = (1 << (C - 1).bit_length()) - C
    return torch.nn.functional.pad(A, (0, more, 0, more))


def intra_vjp(d_qk, d_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, *, C, scale):
    """Gradients by q, k, b and, where beta is given, beta. An absent cotangent counts as 0.

    By b, channel by channel: a pair (i, j) adds what it carries at its row i and takes it at its column j, the
    diagonal left out, since it would do both; qg and kb add at their row; kg takes at its row and adds at the chunk's
    last valid row, whose own kg is left out in the same way.
    """
    (T, H), HV = q.shape[1:3], b.shape[2]
    q, k = per_value_head(q, HV), per_value_head(k, HV)
    last = last_rows(T, C, b.device)
    b_q, b_k, b_b = (chunk_major(x, C) for x in (q, k, b))
    dq, dk, db = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(b)
    grads = {}

    def rows(x):
        return unchunked(x[..., :C, :].transpose(2, 3), T)

    if d_qk is not None:
        d = by_chunk(scale * d_qk, C, 0)
        read, written, carried = map(rows, pair_gradients(d, b_q, b_k, b_b))
        own = rows(d.diagonal(dim1=-2, dim2=-1).unsqueeze(-1))
        dq, dk, db = dq + read + own * k, dk + written + own * q, db + carried
    if beta is not None:
        grads["beta"] = torch.zeros_like(beta)
    if d_kk is not None:
        grads["beta"] = rows((by_chunk(d_kk, C, -1) * pairs(b_k, b_k, b_b)).sum(-1, keepdim=True)).squeeze(-1)
        read, written, carried = map(rows, pair_gradients(by_chunk(beta.unsqueeze(-1) * d_kk, C, -1), b_k, b_k, b_b))
        dk, db = dk + read + written, db + carried
    if d_qg is not None:
        read = scale * torch.exp2(b) * d_qg
        dq, db = dq + read, db + q * read
    if d_kb is not None:
        read = torch.exp2(b) * d_kb
        dk, db = dk + read, db + k * read
    if d_kg is not None:
        b_end = b.index_select(1, last).repeat_interleave(C, dim=1)[:, :T]
        written = torch.exp2(b_end - b) * d_kg
        dk = dk + written
        carried = (k * written).index_fill(1, last, 0)
        db = (db - carried).index_add(1, last, zero_chunked(carried, C).sum(2))
    db = math.log(2) * db
    if d_b_end is not None:
        db = db.index_add(1, last, d_b_end)
    return {**grads, "q": per_key_head(dq, H), "k": per_key_head(dk, H), "b": db}


BASE = 8
"""Rows of a block whose pairs are made one by one. With more, sums take more time than the products that they save."""


def narrow_tiles(axes, device):
    return [{"BK": 32, "BK_F32": 16, "num_warps": 8, "num_stages": 1}]


def wide_tiles(axes, device):
    """Twice the channels, where a chunk's pairs leave registers for them."""
    return [config | {"BK": 32 if axes["C"] == 128 else 64} for config in narrow_tiles(axes, device)]


def gluon(axes, device):
    """Whether the kernel that is written for Hopper takes these sizes: in 16 bits."""
    return {"gluon": int(device == "sm_90" and axes["K"] == 128 and axes["C"] == 64), "gluon_F32": 0}


def intra_launch(q, k, beta, b, A_qk, A_kk, qg, kg, kb, b_end, *, C, scale, seqs, config):
    from ..kernels.intra import intra_kernel

    (B, T, H, K), HV = q.shape, b.shape[2]
    return Launch(
        intra_kernel,
        grid=(B * seqs.NT * HV,),
        args=dict(
            q=q, k=k, beta=beta, b=b, A_qk=A_qk, A_kk=A_kk, qg=qg, kg=kg, kb=kb, b_end=b_end, scale=scale,
            cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(
            K=K, C=C, BASE=BASE, LEVELS=(C // BASE).bit_length() - 1,
            BK=by_dtype(config, "BK", q.dtype, K), KP=padded(K), PRECISION=precision(q.dtype),
        ),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip


def on_hopper(launch, kernel, left_out=(), **tiles):
    """The same by that kernel, a warp for 8 rows; left_out: arguments that it has no use for."""
    args = {name: x for name, x in launch.args.items() if name not in left_out}
    K, C = launch.constexprs["K"], launch.constexprs["C"]
    return replace(launch, kernel=kernel, args=args, constexprs={"K": K, "C": C, **tiles}, num_warps=C // 8)


SCRATCH = {"dbeta_parts": Port("NK B T HV", F32, doc="d_beta by tile of K")}


def intra_vjp_configs(axes, device):
    return [{**config, "NK": ceil_div(axes["K"], 16)} for config in wide_tiles(axes, device)]


def intra_vjp_launches(
    d_qk, d_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, d_q, d_k, d_beta, d_b, dbeta_parts,
    *, C, scale, seqs, config,
):  # fmt: skip
    """Each tile of K by itself, then the sum of d_beta's parts when there is more than one."""
    from ..kernels.intra_vjp import intra_vjp_kernel

    (B, T, H, K), HV = q.shape, b.shape[2]
    BK = by_dtype(config, "BK", q.dtype, K)
    NK = ceil_div(K, BK)
    parts = None if d_beta is None else d_beta if NK == 1 else dbeta_parts
    by_tile = Launch(
        intra_vjp_kernel,
        grid=(B * seqs.NT * H * NK,),
        args=dict(
            d_qk=d_qk, d_kk=d_kk, d_qg=d_qg, d_kg=d_kg, d_kb=d_kb, d_b_end=d_b_end, q=q, k=k, beta=beta, b=b, d_q=d_q,
            d_k=d_k, d_beta=parts, d_b=d_b, scale=scale, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
            T=T, NT=seqs.NT, R=B * T, H=H, HV=HV,
        ),
        constexprs=dict(
            K=K, C=C, BASE=BASE, LEVELS=(C // BASE).bit_length() - 1, BK=BK,
            PRECISION=precision(q.dtype), GROUPED=HV > H,
        ),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
    return [by_tile] if parts is d_beta else [by_tile, sum_parts(dbeta_parts, d_beta, NK)]
