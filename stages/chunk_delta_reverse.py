"""Reverse scan of the delta rule: the cotangent of the state that leaves each chunk, and of what its inverse acts on.

With dS that cotangent, P = E * q k^T, E[i, j] = 2^(g_i - g_j) for j <= i, else 0, and v_new = Ai x:

    d_x = Ai^T (scale P^T d_o + 2^(g_C - g) k dS)
    dS <- 2^(g_C) dS + scale (2^g q)^T d_o - (beta 2^g k)^T d_x

dS starts as d_final_state, zeros when absent, and ends as d_initial_state. Without g nothing decays. arXiv:2412.06464.
Long sequences of few heads are scanned in pieces (_piece_starts.py).
"""

from dataclasses import replace

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._decay import pair_decay, per_value_head
from ._handover import HANDED, NO_PARTS, handed_over, over_parts
from ._hopper import hopper_first
from ._piece_launches import entering_reverse, over_pieces
from ._piece_starts import SCRATCH, in_pieces, unless_cut, where_cut
from ._pieces import one_piece_limits, whole
from ._scan import delta_scan_configs
from ._tiles import by_dtype, precision

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        "Ai": Port("B T HV C", unit="gram/unit_lower_inverse/{gating}"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "d_o": Port("B T HV V"),
        "d_final_state": Port("N HV K V", F32, unit="cotangent/state/sequence_end", optional=True),
    },
    outputs={
        "d_x": Port("B T HV V", doc="cotangent of x, where v_new = Ai x"),
        "d_s": Port("B NT HV K V", unit="cotangent/state/chunk_exit"),
        "d_initial_state": Port("N HV K V", F32, unit="cotangent/state/sequence_start"),
    },
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="B * T * HV * (6 * K * V + 2 * C * (K + 2 * V))",
    presence={"gating": ("g", "gated", "ungated")},
)


SEGMENT = "chunk_delta_reverse_segment"


def reference(q, k, beta, Ai, g, d_o, d_final_state, *, scale, C):
    """q, k [B, T, H, K], d_o [B, T, HV, V], beta, g [B, T, HV], Ai [B, T, HV, C], d_final_state [B, HV, K, V]."""
    B, T, HV, V = d_o.shape
    q, k = per_value_head(q, HV), per_value_head(k, HV)
    b = torch.zeros_like(beta) if g is None else g
    dS = d_o.new_zeros(B, HV, k.shape[-1], V) if d_final_state is None else d_final_state
    states, inner = [d_o.new_zeros(B, 0, *dS.shape[1:])], [d_o[:, :0]]
    for start in reversed(range(0, T, C)):
        rows = slice(start, start + C)
        b_q, b_k, b_g, b_do = q[:, rows], k[:, rows], b[:, rows], d_o[:, rows]
        gam, last = torch.exp2(b_g)[..., None], b_g[:, -1:]
        inverse = Ai[:, rows, :, : b_g.shape[1]].transpose(1, 2).tril()
        scores = torch.einsum("bihk,bjhk->bhij", b_q, b_k) * pair_decay(b_g)
        after = torch.exp2(last - b_g)[..., None] * torch.einsum("bthk,bhkv->bthv", b_k, dS)
        d_v_new = scale * torch.einsum("bhij,bihv->bjhv", scores, b_do) + after
        d_x = torch.einsum("bhij,bihv->bjhv", inverse, d_v_new)
        states.append(dS[:, None])
        inner.append(d_x)
        dS = torch.exp2(last[:, 0])[..., None, None] * dS
        dS = dS + torch.einsum("bthk,bthv->bhkv", b_q, scale * gam * b_do)
        dS = dS - torch.einsum("bthk,bthv->bhkv", b_k, beta[:, rows, :, None] * gam * d_x)
    return {"d_x": torch.cat(inner[::-1], dim=1), "d_s": torch.cat(states[::-1], dim=1), "d_initial_state": dS}


def plain_configs(axes, device):
    """The scan's tiles; OV tiles the chunk-parallel kernel that comes before it. Past K = 128 only the first: 64
    columns on 8 warps came out wrong in bf16 at K = 256, C = 32 on sm_90 (Triton 3.6)."""
    own = {"OV": 128, "OV_F32": 32, "own_warps": 8 if axes["C"] == 128 else 4, "own_stages": 2, "own_stages_F32": 1}
    tiles = delta_scan_configs(axes, device)
    return [{**own, **each} for each in (tiles[:1] if axes["K"] > 128 else tiles)]


def launch(
    q, k, beta, Ai, g, d_o, d_final_state, d_x, d_s, d_initial_state, turns, handed, *, scale, C, seqs, config
):  # fmt: skip
    given = dict(scale=scale, C=C, seqs=seqs, config=config)
    launches = reverse_launches(q, k, beta, Ai, g, d_o, d_final_state, d_x, d_s, d_initial_state, **given)
    return over_parts(launches, turns, handed, k, seqs)


def reverse_launches(
    q, k, beta, Ai, g, d_o, d_final_state, d_x, d_s, d_initial_state, *, scale, C, seqs, config, forgotten=None
):  # fmt: skip
    """Through the chunks' own output, chunk by chunk into d_x; then the scan, which reads each row before it writes.
    The kernel for Hopper does both at once. forgotten [N, HV]: for d_initial_state alone, chunks that need not be
    scanned (_forgotten.py)."""
    from ..kernels.chunk_delta_reverse import chunk_delta_reverse_kernel
    from ..kernels.chunk_o_vjp import chunk_o_vjp_vh_kernel

    (H, K), (HV, V) = k.shape[2:], d_o.shape[2:]
    slots = seqs.NT if seqs.packed else seqs.N * seqs.NT
    shared = dict(q=q, k=k, g=g, d_o=d_o, scale=scale, cu_seqlens=seqs.cu_seqlens, T=seqs.T, NT=seqs.NT, H=H, HV=HV)
    sizes = dict(K=K, V=V, C=C, BK=by_dtype(config, "BK", k.dtype, K), PRECISION=precision(k.dtype))
    OV, BV = by_dtype(config, "OV", k.dtype, V), by_dtype(config, "BV", k.dtype, V)
    own = Launch(
        chunk_o_vjp_vh_kernel,
        grid=(slots * HV * ceil_div(V, OV),),
        args=dict(**shared, g_gamma=None, d_v=d_x, d_h=None, chunk_table=seqs.chunk_table),
        constexprs=dict(**sizes, BV=OV),
        num_warps=config["own_warps"],
        num_stages=by_dtype(config, "own_stages", k.dtype),
    )
    scan = Launch(
        chunk_delta_reverse_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            **shared, beta=beta, Ai=Ai, d_final_state=d_final_state, d_x=d_x, d_s=d_s, d_initial_state=d_initial_state,
            forgotten=forgotten, chunk_offsets=seqs.chunk_offsets,
        ),
        constexprs=dict(**sizes, BV=BV),
        num_warps=by_dtype(config, "num_warps", k.dtype),
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip
    if by_dtype(config, "gluon", k.dtype):
        from ..kernels.chunk_delta_reverse_sm90 import chunk_delta_reverse_sm90_kernel

        args = {**scan.args, "starts": None, "passed": None, "entered": None, "pieces": 1, **NO_PARTS}
        sizes = {name: scan.constexprs[name] for name in ("K", "V", "C", "BV")}
        return [replace(scan, kernel=chunk_delta_reverse_sm90_kernel, args=args, constexprs=sizes)]
    return [own, scan]


def pieces_launch(
    q, k, beta, Ai, g, d_o, d_final_state, d_x, d_s, d_initial_state, starts, maps, passed, entered,
    *, scale, C, seqs, config,
):  # fmt: skip
    given = dict(scale=scale, C=C, seqs=seqs, config=config)
    launches = reverse_launches(q, k, beta, Ai, g, d_o, d_final_state, d_x, d_s, d_initial_state, **given)
    if whole(k, seqs):
        return launches
    [scan] = launches
    before, starts = entering_reverse(scan, k, beta, Ai, g, d_o, starts, maps, passed, entered, C=C)
    return [*before, over_pieces(scan, starts, entered)]


configs = hopper_first(plain_configs, BV=64, num_warps=4, num_stages=1)
LAUNCHERS = [
    Launcher("triton", launch, handed_over(configs), unless_cut(one_piece_limits), HANDED, always=("d_x",)),
    Launcher(
        "pieces", pieces_launch, in_pieces(configs, gluon=1), where_cut(one_piece_limits), SCRATCH,
        always=("d_x",),
    ),
]  # fmt: skip
