"""Gated linear attention and Kimi Delta Attention under fla's names: a decay per channel.

Arguments and results are as for drop_in.chunk_gated_delta_rule, but for g [B, T, HV, K]. What chunk_kda is told to
compute in its kernels (norms, gate, sigmoid) is in the graph, with its gradients; what it is given already is not.
"""

from collections.abc import Mapping

import torch

from .drop_in import call, check_dense, fail, refuse


def chunk_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    *,
    chunk_size: int = 64,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Gated linear attention: S <- diag(exp(g)) S + k v, o = scale q S. Differentiable."""
    refuse(chunk_gla, others)
    return call(
        "gla", dict(q=q, k=k, v=v), dict(g=g), scale, initial_state, output_final_state, state_v_first, cu_seqlens,
        cu_seqlens_cpu, chunk_size,
    )  # fmt: skip


def chunk_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    cp_context=None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    *,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    chunk_size: int = 64,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Kimi Delta Attention: S <- diag(exp(g)) S, then S <- S + k (beta (v - k S)), o = scale q S. Differentiable.

    use_gate_in_kernel: g is what the gate is made of, with A_log [HV] and dt_bias [HV K] or [HV, K], zeros by default:
    -exp(A_log) softplus(g + dt_bias), or with a lower_bound in -5..0 lower_bound sigmoid(exp(A_log) (g + dt_bias)),
    where A_log may be absent for zeros. safe_gate: that there is such a bound. use_qk_l2norm_in_kernel: as for
    chunk_gated_delta_rule. use_beta_sigmoid_in_kernel: beta is what the sigmoid is taken of.
    """
    others |= dict(
        allow_neg_eigval=allow_neg_eigval, disable_recompute=disable_recompute, cp_context=cp_context,
        return_intermediate_states=return_intermediate_states, use_graph=use_graph, max_num_seqs=max_num_seqs,
    )  # fmt: skip
    refuse(chunk_kda, others)
    check_gate(use_gate_in_kernel, safe_gate, lower_bound, A_log, dt_bias)
    constants = gate_constants(g, A_log, dt_bias) if use_gate_in_kernel else {}
    return kda(
        q, k, v, g, beta, scale, initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu,
        chunk_size, use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, constants, lower_bound,
    )  # fmt: skip


def kda(
    q, k, v, g, beta, scale, initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, chunk_size,
    norms: bool, sigmoid: bool, constants: Mapping, lower_bound: float | None, mode: str = "chunk",
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """One call of kda or kda_bounded, from after those of its first stages that the caller stands in for.

    norms, sigmoid: whether the graph normalises q and k, and takes the sigmoid of beta. constants: of the gate; without
    them g is the log decay itself.
    """
    tensors, given = dict(q=q, k=k, v=v), []
    if not norms:
        given += [("qnorm", "q"), ("knorm", "k")]
    tensors["b" if sigmoid else "beta"] = beta
    if not sigmoid:
        given.append(("beta", "beta"))
    wide = constants or dict(g=g)
    if constants:
        tensors["a"] = g
    else:
        given.append(("gate", "g"))
    pipeline, params = ("kda", {}) if lower_bound is None else ("kda_bounded", dict(bound=lower_bound))
    return call(
        pipeline, tensors, wide, scale, initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu,
        chunk_size, tuple(given), mode, **params,
    )  # fmt: skip


def check_gate(in_kernel: bool, safe_gate: bool, lower_bound, A_log, dt_bias) -> None:
    """What shapes the gate goes with the gate in the kernel, and with a bound that keeps the exponents small."""
    shaping = dict(safe_gate=safe_gate or None, lower_bound=lower_bound, A_log=A_log, dt_bias=dt_bias)
    for name, value in shaping.items():
        if value is not None and not in_kernel:
            fail(f"{name} has an effect only with use_gate_in_kernel=True", "leave it out: g is taken as it is")
    if safe_gate and lower_bound is None:
        fail("safe_gate needs a lower_bound", "pass lower_bound=-5.0")
    if lower_bound is not None and not (isinstance(lower_bound, (int, float)) and -5 <= lower_bound < 0):
        fail(f"lower_bound must lie in -5..0, without 0, it is {lower_bound!r:.40}")
    if in_kernel and A_log is None and lower_bound is None:
        fail("use_gate_in_kernel needs A_log, one number per value head, unless there is a lower_bound")


def gate_constants(g, A_log, dt_bias) -> dict[str, torch.Tensor]:
    """A_log [HV] and dt_bias [HV, K] of a gate g [B, T, HV, K]; zeros for what is absent."""
    check_dense("g", g, "B T HV K")
    heads = g.shape[2:]
    if dt_bias is None:
        dt_bias = g.new_zeros(heads)
    if not isinstance(dt_bias, torch.Tensor) or dt_bias.is_nested or dt_bias.shape not in (heads, (heads.numel(),)):
        dense = isinstance(dt_bias, torch.Tensor) and not dt_bias.is_nested
        have = list(dt_bias.shape) if dense else type(dt_bias).__name__
        fail(f"dt_bias must be a tensor [{heads.numel()}] or {list(heads)}, it is {have}")
    return dict(A_log=g.new_zeros(heads[:1]) if A_log is None else A_log, dt_bias=dt_bias.reshape(heads))
