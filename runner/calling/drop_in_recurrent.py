"""The one-token steps under fla's names: token by token in one kernel, the state read once and written once.

Arguments and results are as for drop_in.chunk_gated_delta_rule, which computes the same; a call that needs gradients
runs the chunked form. Use these for decoding and short drafts; from some tens of tokens on the chunked form is faster.
"""

import torch

from ...stages._slopes import lightning_slopes, retention_slopes
from .drop_in import call, check_dense, gate, refuse
from .drop_in_channels import check_gate, gate_constants, kda
from .drop_in_slopes import check_layer, slopes

CHUNK = 64
"""Chunk length of the chunked form, which serves gradients alone."""


def fused_recurrent_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    gk: torch.Tensor | None = None,
    gv: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Gated DeltaNet; without g nothing decays, and beta is 1 unless given."""
    absent = dict(gk=gk, gv=gv, use_gate_in_kernel=use_gate_in_kernel, A_log=A_log, dt_bias=dt_bias)
    absent |= dict(use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval)
    refuse(fused_recurrent_gated_delta_rule, others | absent)
    normed, tensors = "_l2norm" if use_qk_l2norm_in_kernel else "", dict(q=q, k=k, v=v, beta=strengths(v, beta))
    return call(
        f"gated_delta{normed}" if g is not None else f"delta_rule{normed}", tensors, {} if g is None else dict(g=g),
        scale, initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, CHUNK, mode="recurrent",
    )  # fmt: skip


def fused_recurrent_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    *,
    state_v_first: bool = False,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """DeltaNet; beta is 1 unless given."""
    refuse(fused_recurrent_delta_rule, others)
    return call(
        "delta_rule_l2norm" if use_qk_l2norm_in_kernel else "delta_rule", dict(q=q, k=k, v=v, beta=strengths(v, beta)),
        {}, scale, initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, CHUNK,
        mode="recurrent",
    )  # fmt: skip


def fused_recurrent_simple_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    g_gamma: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Linear attention with a decay; see drop_in.chunk_simple_gla."""
    refuse(fused_recurrent_simple_gla, {**others, "reverse": reverse})
    plain = g is None and g_gamma is None
    decay = {} if plain else dict(g=gate(fused_recurrent_simple_gla, v, g, g_gamma))
    return call(
        "linear_attn" if plain else "simple_gla", dict(q=q, k=k, v=v), decay, scale, initial_state, output_final_state,
        state_v_first, cu_seqlens, cu_seqlens_cpu, CHUNK, mode="recurrent",
    )  # fmt: skip


def fused_recurrent_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gk: torch.Tensor | None = None,
    gv: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Gated linear attention: gk [B, T, HV, K], the natural log decay of every channel of the keys."""
    refuse(fused_recurrent_gla, {**others, "gv": gv, "reverse": reverse})
    return call(
        "linear_attn" if gk is None else "gla", dict(q=q, k=k, v=v), {} if gk is None else dict(g=gk), scale,
        initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, CHUNK, mode="recurrent",
    )  # fmt: skip


def fused_recurrent_retention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Retention; see drop_in_slopes.chunk_retention."""
    refuse(fused_recurrent_retention, {**others, "reverse": reverse})
    return call(
        "retention", dict(q=q, k=k, v=v), dict(g_gamma=slopes(retention_slopes, q, v)), scale, initial_state,
        output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, CHUNK, mode="recurrent",
    )  # fmt: skip


def fused_recurrent_lightning_attn(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    *,
    state_v_first: bool = False,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Lightning attention; see drop_in_slopes.chunk_lightning_attn."""
    refuse(fused_recurrent_lightning_attn, {**others, "reverse": reverse})
    check_layer(layer_idx, num_layers)
    g_gamma = slopes(lightning_slopes, q, v, layer_idx, num_layers)
    return call(
        "lightning", dict(q=q, k=k, v=v), dict(g_gamma=g_gamma), scale, initial_state, output_final_state,
        state_v_first, cu_seqlens, cu_seqlens_cpu, CHUNK, mode="recurrent",
    )  # fmt: skip


def fused_recurrent_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Kimi Delta Attention; see drop_in_channels.chunk_kda."""
    refuse(fused_recurrent_kda, {**others, "allow_neg_eigval": allow_neg_eigval})
    check_gate(use_gate_in_kernel, False, lower_bound, A_log, dt_bias)
    constants = gate_constants(g, A_log, dt_bias) if use_gate_in_kernel else {}
    return kda(
        q, k, v, g, beta, scale, initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, CHUNK,
        use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, constants, lower_bound, mode="recurrent",
    )  # fmt: skip


def strengths(v, beta):
    """beta, or 1 for every token and head of v."""
    if beta is not None:
        return beta
    check_dense("v", v, "B T HV V")
    return v.new_ones(v.shape[:3])
