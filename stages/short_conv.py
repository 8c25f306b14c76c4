"""Short causal convolution: each channel summed over its last W tokens, W from 2 to 4.

    y[t] = bias + sum over i of weight[i] x[t - W + 1 + i]

Tokens before a sequence's first come from initial_state, else they are 0. A state is the last W inputs of a sequence,
the oldest first; its first row is kept for longer memories and never read. Queries, keys and values each have
their own; the activation that follows it is an expression in the edge that reads it, as silu(conv.y).
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._middle_sums import middle_sum

PARTS = 64

CONTRACT = Contract(
    inputs={
        "x": Port("B T H K"),
        "weight": Port("H K W", F32, doc="the last of W is the token's own"),
        "bias": Port("H K", F32, optional=True),
        "initial_state": Port("N W H K", unit="state/sequence_start", optional=True, doc="the W inputs before"),
    },
    outputs={"y": Port("B T H K"), "final_state": Port("N W H K", unit="state/sequence_end")},
    flops="2 * B * T * H * K * W",
)


def reference(x, weight, bias, initial_state):
    """x, y [B, T, H, K]; weight [H, K, W]; bias [H, K]; initial_state, final_state [N, W, H, K]."""
    T, W = x.shape[1], weight.shape[-1]
    rows = _with_state(x, initial_state, W)
    y = sum(weight[..., i] * rows[:, i + 1 : i + 1 + T] for i in range(W))
    return {"y": y if bias is None else y + bias, "final_state": rows[:, T:]}


def _with_state(x, state, W):
    """x with the W rows before it."""
    return torch.cat([x.new_zeros(x.shape[0], W, *x.shape[2:]) if state is None else state, x], dim=1)


def vjp(d_y, d_final_state, x, weight, bias, initial_state, *, needs):
    """What a row gives: weight[i] d_y of the row that reads it by tap i, and the cotangent of its place in the final
    state; the weight's gradient is the sum of d_y times what the tap read."""
    T, W = x.shape[1], weight.shape[-1]
    rows = _with_state(x, initial_state, W)
    d_rows = torch.zeros_like(rows)
    d_weight = torch.zeros_like(weight)
    if d_y is not None:
        for i in range(W):
            d_rows[:, i + 1 : i + 1 + T] += weight[..., i] * d_y
            d_weight[..., i] = (d_y * rows[:, i + 1 : i + 1 + T]).sum(dim=(0, 1))
    if d_final_state is not None:
        d_rows[:, T:] += d_final_state
    d_bias = torch.zeros_like(weight[..., 0]) if d_y is None else d_y.sum(dim=(0, 1))
    gradients = {"x": d_rows[:, W:], "weight": d_weight, "bias": d_bias, "initial_state": d_rows[:, :W]}
    return {name: gradients[name] for name in gradients if name in needs}


def limits(axes, device):
    return None if 2 <= axes["W"] <= 4 else f"W = {axes['W']}: 2, 3 or 4"


def configs(axes, device):
    return [{"BT": 16, "BD": 64, "num_warps": 4, "num_stages": 1}]


def launch(x, weight, bias, initial_state, y, final_state, *, seqs, config):
    from ..kernels.short_conv import final_rows_kernel, short_conv_kernel

    launches = []
    if y is not None:
        tensors = dict(x=x, weight=weight, bias=bias, state=initial_state, y=y)
        launches.append(_over_tokens(short_conv_kernel, tensors, x, weight, seqs, config))
    if final_state is not None:
        tensors = dict(x=x, state=initial_state, final_state=final_state)
        launches.append(_over_sequences(final_rows_kernel, tensors, x, weight, seqs, config))
    return launches


def vjp_launch(
    d_y, d_final_state, x, weight, bias, initial_state, d_x, d_weight, d_bias, d_initial_state, sum_weight, sum_bias,
    *, seqs, config,
):  # fmt: skip
    from ..kernels.short_conv import short_conv_dstate_kernel, short_conv_dx_kernel, short_conv_sums_kernel

    launches = []
    incoming = dict(d_y=d_y, d_final_state=d_final_state, weight=weight)
    if d_x is not None:
        launches.append(_over_tokens(short_conv_dx_kernel, dict(**incoming, d_x=d_x), x, weight, seqs, config))
    if d_initial_state is not None:
        tensors = dict(**incoming, d_state=d_initial_state)
        launches.append(_over_sequences(short_conv_dstate_kernel, tensors, x, weight, seqs, config))
    if d_weight is None and d_bias is None:
        return launches
    sum_weight, sum_bias = None if d_weight is None else sum_weight, None if d_bias is None else sum_bias
    tensors = dict(d_y=d_y, x=x, state=initial_state, sum_weight=sum_weight, sum_bias=sum_bias)
    launches.append(_over_tokens(short_conv_sums_kernel, tensors, x, weight, seqs, config, PARTS))
    for parts, total in ((sum_weight, d_weight), (sum_bias, d_bias)):
        if total is not None:
            launches += middle_sum(parts, None, total, 1, PARTS, total.numel())
    return launches


def _over_tokens(kernel, tensors, x, weight, seqs, config, parts=None):
    """Blocks of BT rows and BD channels; with parts, that many programs share the rows of a block of channels."""
    B, T, H, K = x.shape
    D, blocks = H * K, ceil_div(B * T, config["BT"]) if parts is None else parts
    steps = 0 if seqs.cu_seqlens is None else (seqs.N + 1).bit_length()
    return Launch(
        kernel,
        grid=(blocks * ceil_div(D, config["BD"]),),
        args=dict(**tensors, cu_seqlens=seqs.cu_seqlens, N=seqs.N, T=T, steps=steps, rows=B * T, D=D),
        constexprs=dict(W=weight.shape[-1], BT=config["BT"], BD=config["BD"], **({"P": parts} if parts else {})),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


def _over_sequences(kernel, tensors, x, weight, seqs, config):
    T, H, K = x.shape[1:]
    D = H * K
    return Launch(
        kernel,
        grid=(seqs.N * ceil_div(D, config["BD"]),),
        args=dict(**tensors, cu_seqlens=seqs.cu_seqlens, T=T, D=D),
        constexprs=dict(W=weight.shape[-1], BD=config["BD"]),
        num_warps=1,
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs, limits)]
VJP_LAUNCHERS = [
    Launcher(
        "triton",
        vjp_launch,
        configs,
        limits,
        scratch={"sum_weight": Port(f"{PARTS} H K W", F32), "sum_bias": Port(f"{PARTS} H K", F32)},
    )
]
