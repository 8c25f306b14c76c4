"""Gradients of the delta rule inside each chunk, from what the scan and the reverse scan left.

With E[i, j] = 2^(g_i - g_j) for j <= i in the chunk, else 0, gam = 2^g, ga = 2^(g_C - g), d = scale d_o,
P = E * d v_new^T, N = -tril(E * d_x v_new^T, -1) and M = beta N (row i times beta_i):

    dq = P k + gam d h^T          dk = P^T q + ga v_new d_s^T - beta gam d_x h^T + (M + M^T) k          dv = beta d_x
    dbeta = <d_x, v> - gam <k, d_x h^T> + rowsum(N * k k^T)

The inverse's own gradient is collapsed: d_Ai and the gradient of its Gram matrix never exist. Without g nothing decays.
By g: pair sums as in chunk_o, chunk_delta_h, recompute_w_u and chunk_scaled_dot_kkt. arXiv:2412.06464.
"""

import math
from dataclasses import replace

import torch

from ._contract import F32, INT, Contract, Launch, Launcher, Port, ceil_div
from ._decay import chunked, pair_decay, per_key_head, per_value_head, unchunked, zero_chunked
from ._hopper import hopper_first, hopper_takes
from ._sum_parts import group_sums
from ._tiles import by_dtype, precision, state_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "beta": Port("B T HV"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "d_o": Port("B T HV V"),
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "v_new": Port("B T HV V"),
        "d_s": Port("B NT HV K V", unit="cotangent/state/chunk_exit"),
        "d_x": Port("B T HV V", doc="cotangent of x, where v_new = Ai x"),
    },
    outputs={
        "d_q": Port("B T H K"),
        "d_k": Port("B T H K"),
        "d_v": Port("B T HV V"),
        "d_beta": Port("B T HV", F32),
        "d_g": Port("B T HV", F32, unit="cotangent/log_decay/log2/chunk_sum"),
    },
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * (3 * K * V + C * (2 * V + 5 * K))",
)

GRADIENT_OF = """
inputs:
  q:    B T H K
  k:    {shape: B T H K, where: unit_norm(K)}
  v:    B T HV V
  beta: {shape: B T HV, where: 0..1}
  g:    {shape: B T HV, dtype: f32, unit: log_decay/log2/chunk_sum, where: non_increasing(T in chunk), optional: true}
  initial_state: {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
params: {scale: 1}
stages:
  kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: g}}
  solve: {use: solve_tril,           in: {A: kkt.A}}
  wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: g}}
  scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: g, initial_state: initial_state}}
  out:   {use: chunk_o,              in: {q: q, k: k, v: scan.v_new, h: scan.h, g: g}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""

GRADIENT = """
stages:
  reverse:
    use: chunk_delta_reverse
    in: {q: q, k: k, beta: beta, Ai: solve.Ai, g: g, d_o: d_o, d_final_state: d_final_state}
    with: {scale: scale}
  grads:
    use: chunk_delta_grads
    in:
      {q: q, k: k, v: v, beta: beta, g: g, d_o: d_o, h: scan.h, v_new: scan.v_new, d_s: reverse.d_s, d_x: reverse.d_x}
    with: {scale: scale}
outputs:
  {d_q: grads.d_q, d_k: grads.d_k, d_v: grads.d_v, d_beta: grads.d_beta, d_g: grads.d_g,
   d_initial_state: reverse.d_initial_state}
"""

FASTER_ON = ("sm_90",)
BAND = 256
"""About as many programs as a card holds at once, two on each of 132 multiprocessors."""


def reference(q, k, v, beta, g, d_o, h, v_new, d_s, d_x, *, scale, C):
    """q, k [B, T, H, K], v, v_new, d_o, d_x [B, T, HV, V], beta, g [B, T, HV], h, d_s [B, NT, HV, K, V]."""
    (T, H), HV = k.shape[1:3], v.shape[2]
    b = chunked(torch.zeros_like(beta) if g is None else g, C)
    q, k, beta = chunked(per_value_head(q, HV), C), chunked(per_value_head(k, HV), C), chunked(beta, C)
    v, v_new = chunked(v, C), zero_chunked(v_new, C)
    d, d_x = zero_chunked(scale * d_o, C), zero_chunked(d_x, C)
    gam, last = torch.exp2(b)[..., None], b[:, :, -1:]
    ga, E, rate = torch.exp2(last - b)[..., None], pair_decay(b), beta.transpose(-1, -2)[..., None]
    P = E * torch.einsum("bnihv,bnjhv->bnhij", d, v_new)
    N = -(E * torch.einsum("bnihv,bnjhv->bnhij", d_x, v_new)).tril(-1)
    read = gam * torch.einsum("bnihv,bnhkv->bnihk", d, h)
    wrote = ga * torch.einsum("bnihv,bnhkv->bnihk", v_new, d_s)
    held = gam * torch.einsum("bnihv,bnhkv->bnihk", d_x, h)
    dq = read + torch.einsum("bnhij,bnjhk->bnihk", P, k)
    dk = torch.einsum("bnhij,bnihk->bnjhk", P, q) + wrote - beta[..., None] * held
    dk = dk + torch.einsum("bnhij,bnjhk->bnihk", rate * N + (rate * N).mT, k)
    N = N * torch.einsum("bnihk,bnjhk->bnhij", k, k)
    rows = N.sum(-1).transpose(-1, -2) - (k * held).sum(-1)
    Z = P.tril(-1) * torch.einsum("bnihk,bnjhk->bnhij", q, k)
    pairs = Z.sum(-1) - Z.sum(-2) - (rate * N).sum(-2)
    d_g = pairs.transpose(-1, -2) + (q * read).sum(-1) + beta * rows
    return {
        "d_q": per_key_head(unchunked(dq, T), H), "d_k": per_key_head(unchunked(dk, T), H),
        "d_v": unchunked(beta[..., None] * d_x, T), "d_beta": unchunked((d_x * v).sum(-1) + rows, T),
        "d_g": math.log(2) * (unchunked(d_g, T) + through_exit((k * wrote).sum(-1), torch.exp2(last), h, d_s, T)),
    }  # fmt: skip


def through_exit(t, decay, h, d_s, T):
    """What leaves row i of a chunk, t_i, enters its last valid row, whose own stays out, beside 2^g_C <h, d_s>:
    t [B, NT, C, HV], decay [B, NT, 1, HV] -> [B, T, HV]."""
    rows = torch.arange(t.shape[1] * t.shape[2], device=t.device).reshape(t.shape[1:3])
    end = (rows == rows[:, -1:].clamp(max=T - 1))[..., None]
    t = t.masked_fill(end | (rows >= T)[..., None], 0)
    carried = t.sum(2, keepdim=True) + decay * torch.einsum("bnhkv,bnhkv->bnh", h, d_s)[:, :, None]
    return unchunked(torch.where(end, carried, -t), T)


def plain_configs(axes, device):
    """BK key columns of a chunk at a time, against BV value columns."""
    shared = {"BK": 64, "BK_F32": 32, "BV": 64, "BV_F32": 32, "num_stages_F32": 1}
    if axes["C"] == 128:
        tiles = [(8, 2), (8, 1)]
        # beside three float32 tiles of 128 rows and columns there is no more room in shared memory
        shared |= {"BK_F32": 16, "BV_F32": 16}
    else:
        tiles = [(4, 3), (4, 2), (8, 3)] if device == "sm_90" else [(8, 3), (8, 2)]
    return [{**shared, "num_warps": warps, "num_stages": stages} for warps, stages in tiles]


def configs(axes, device):
    """The kernel for Hopper holds a chunk's values whole."""
    if axes["V"] > 128:
        return [{**config, "gluon": 0} for config in plain_configs(axes, device)]
    return hopper_first(plain_configs, num_warps=4, num_stages=1)(axes, device)


def launch(q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_q, d_k, d_v, d_beta, d_g, *, scale, C, seqs, config):
    from ..kernels.chunk_delta_grads import chunk_delta_grads_kernel

    (B, T, H, K), (HV, V) = k.shape, v.shape[2:]
    plain = Launch(
        chunk_delta_grads_kernel,
        grid=(B * seqs.NT * HV,),
        args=dict(
            q=q, k=k, v=v, beta=beta, g=g, d_o=d_o, h=h, v_new=v_new, d_s=d_s, d_x=d_x, d_q=d_q, d_k=d_k, d_v=d_v,
            d_beta=d_beta, d_g=d_g, scale=scale, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
            T=T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(
            K=K, V=V, C=C, BK=by_dtype(config, "BK", k.dtype, K), BV=by_dtype(config, "BV", k.dtype, V),
            PRECISION=precision(k.dtype),
        ),
        num_warps=config["num_warps"],
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip
    if by_dtype(config, "gluon", k.dtype):
        from ..kernels.chunk_delta_grads_sm90 import chunk_delta_grads_sm90_kernel

        args = {**plain.args, "turns": None, "tasks": 0, "band": 0}
        constexprs = dict(K=K, V=V, C=C, SHARED=False)
        return [replace(plain, kernel=chunk_delta_grads_sm90_kernel, args=args, constexprs=constexprs)]
    return [plain]


def launch_in_turns(
    q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_q, d_k, d_v, d_beta, d_g, turns, *, scale, C, seqs, config
):  # fmt: skip
    """The same where two value heads share keys, on Hopper: the second one adds to what the first has stored. So that
    none waits long, all first heads of BAND chunks and key heads come before the second ones."""
    [each] = launch(
        q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_q, d_k, d_v, d_beta, d_g,
        scale=scale, C=C, seqs=seqs, config=config,
    )  # fmt: skip
    tasks, group = turns.shape[:3].numel(), v.shape[2] // k.shape[2]
    band = max(1, min(BAND, tasks))
    args = {**each.args, "turns": turns, "tasks": tasks, "band": band}
    constexprs = {**each.constexprs, "SHARED": True}
    return [replace(each, grid=(ceil_div(tasks, band) * band * group,), args=args, constexprs=constexprs)]


def launch_by_head(
    q, k, v, beta, g, d_o, h, v_new, d_s, d_x, d_q, d_k, d_v, d_beta, d_g, dq_heads, dk_heads, *, scale, C, seqs, config
):  # fmt: skip
    """The same where value heads share keys: each by itself, then their sums."""
    sums = [(heads, total) for heads, total in ((dq_heads, d_q), (dk_heads, d_k)) if total is not None]
    dq_heads, dk_heads = None if d_q is None else dq_heads, None if d_k is None else dk_heads
    by_head = launch(
        q, k, v, beta, g, d_o, h, v_new, d_s, d_x, dq_heads, dk_heads, d_v, d_beta, d_g,
        scale=scale, C=C, seqs=seqs, config=config,
    )  # fmt: skip
    return by_head + [group_sums(heads, total) for heads, total in sums]


def keys_of_their_own(axes, device):
    """None, or why a kernel that gives each value head's share refuses these sizes."""
    shared = axes["H"] != axes["HV"]
    return f"H = {axes['H']}, HV = {axes['HV']}: keys are shared" if shared else state_limits(axes, device)


def in_turns(axes, device):
    """The same for the kernel for Hopper where two value heads share keys: with more the sums are as fast, and closer,
    as each turn rounds to 16 bits."""
    if device != "sm_90":
        return f"{device}: it is written for sm_90"
    if not hopper_takes(axes, device) or axes["V"] > 128:
        return f"K = {axes['K']}, V = {axes['V']}, C = {axes['C']}: on {device} 64 or 128, with C = 64"
    return None if axes["HV"] == 2 * axes["H"] else f"H = {axes['H']}, HV = {axes['HV']}: two value heads share keys"


def turns_configs(axes, device):
    """The kernel for Hopper alone."""
    return [config for config in configs(axes, device) if config["gluon"]]


def shared_keys(axes, device):
    """The same for value heads one by one, whose float32 tiles of 128 rows want more shared memory than sm_90 has."""
    return "C = 128 and shared keys: at most 64" if axes["C"] == 128 else state_limits(axes, device)


BY_HEAD = {
    "dq_heads": Port("B T HV K", doc="d_q by value head"),
    "dk_heads": Port("B T HV K", doc="d_k by value head"),
}
NOT_IN = {"fp16": "d_q was not finite on an H200 (NOTES.md)"}
ONLY_16_BITS = {"fp32": "the kernel's products are of 16 bits"}
TURNS = {"turns": Port("B NT H 2", INT, doc="a word of 64 bits: whether each chunk and key head's first one is done")}
LAUNCHERS = [
    Launcher("triton", launch, configs, keys_of_their_own, not_in=NOT_IN),
    Launcher("turns", launch_in_turns, turns_configs, in_turns, TURNS, NOT_IN | ONLY_16_BITS),
    Launcher("by head", launch_by_head, configs, shared_keys, BY_HEAD, NOT_IN),
]
