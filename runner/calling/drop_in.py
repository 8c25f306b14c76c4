"""The ops under the names and with the signatures of fla-core 0.6.0, for code that calls those.

    o, final_state = chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)

q, k [B, T, H, K], v and o [B, T, HV, V], g and beta [B, T, HV], states [N, HV, K, V]; HV is a multiple of H, N is B or
the number of packed sequences. g is the natural log of each token's decay.

Everything else in chunkwise refuses mixed dtypes; these functions cast: k, v and beta to q's dtype; gates and states to
float32, or to float64 where q is float64. o has q's dtype, final_state is float32 (float64). An argument of fla's that
has no effect here is refused by name with a ChunkwiseError. Ops are loaded at their first use, once per process.
"""

import inspect
import threading
from collections.abc import Callable, Mapping

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.hints import nearest
from ..planning.dtypes import IO_DTYPES, port_dtype
from ..planning.sequences import check_tensor, tensor_lengths
from .function import Op, load

CHUNK_SIZES = (16, 32, 64, 128)
REFUSED = {
    "head_first": "inputs are [B, T, H, ...]; pass x.transpose(1, 2)",
    "transpose_state_layout": "pass state_v_first=True",
    "use_gate_in_kernel": "load('qwen3_next_gdn') has gate, sigmoid and normalisation in its graph",
    "A_log": "load('qwen3_next_gdn') has gate, sigmoid and normalisation in its graph",
    "dt_bias": "load('qwen3_next_gdn') has gate, sigmoid and normalisation in its graph",
    "use_beta_sigmoid_in_kernel": "pass beta.sigmoid()",
    "allow_neg_eigval": "pass beta itself, in 0..2; examples/variants/gated_delta_negative.yaml has that law",
    "reverse": "only from the first token to the last",
    "gv": "the decay is per head or per channel of the keys",
    "gk": "chunkwise.runner.fused_recurrent_kda has a decay per channel of the keys",
    "chunk_indices": "they follow from cu_seqlens; pass cu_seqlens_cpu to spare the wait for the device",
    "disable_recompute": "load('kda', memory_budget=...) says how much is kept for the backward pass",
    "return_intermediate_states": "load('kda_core').until('scan') gives them",
    "use_graph": "a call with cu_seqlens_cpu can be captured as it is",
    "max_num_seqs": "a call with cu_seqlens_cpu can be captured as it is",
    "cp_context": "load(...).context_parallel(group) cuts one sequence over several devices",
}
"""Argument of fla's that has no effect here -> what to do instead."""

Given = tuple[tuple[str, str], ...]
_ops: dict[tuple[str, int, Given, str], Op] = {}
_lock = threading.Lock()


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    chunk_indices: torch.Tensor | None = None,
    cp_context=None,
    *,
    chunk_size: int = 64,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Gated DeltaNet: S <- exp(g) S, then S <- S + k (beta (v - k S)), o = scale q S. Differentiable.

    scale: K ** -0.5 by default. initial_state: zeros by default. state_v_first: states are [N, HV, V, K], coming in and
    going out. k, v and beta are cast to q's dtype, which o has, gates and states to float32 (float64 where q is that).
    use_qk_l2norm_in_kernel: q and k are divided by sqrt(sum of squares + 1e-6). cu_seqlens: [N + 1], packed
    sequences (B = 1); cu_seqlens_cpu: the same on the host, so that nothing waits for the device.
    What else fla's signature has is there by name and place, and refused where its value asks for something.
    Returns (o, final_state), None in place of a final state that was not asked for.
    """
    others |= dict(
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
        chunk_indices=chunk_indices, cp_context=cp_context,
    )  # fmt: skip
    refuse(chunk_gated_delta_rule, others)
    if g is None:
        fail("chunk_gated_delta_rule needs g", "without a decay it is chunk_delta_rule")
    return call(
        "gated_delta_l2norm" if use_qk_l2norm_in_kernel else "gated_delta", dict(q=q, k=k, v=v, beta=beta), dict(g=g),
        scale, initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, chunk_size,
    )  # fmt: skip


def chunk_simple_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    g_gamma: torch.Tensor | None = None,
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
    """Linear attention with a decay: S <- exp(g) S + k v, o = scale q S. Differentiable.

    g_gamma [HV]: in place of g, the same decay at every token of a head; with neither nothing decays. The other
    arguments and what is returned are as for chunk_gated_delta_rule.
    """
    refuse(chunk_simple_gla, others)
    plain = g is None and g_gamma is None
    decay = {} if plain else dict(g=gate(chunk_simple_gla, v, g, g_gamma))
    return call(
        "linear_attn" if plain else "simple_gla", dict(q=q, k=k, v=v), decay, scale, initial_state, output_final_state,
        state_v_first, cu_seqlens, cu_seqlens_cpu, chunk_size,
    )  # fmt: skip


def chunk_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    *,
    state_v_first: bool = False,
    chunk_size: int = 64,
    **others,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """DeltaNet: S <- S + k (beta (v - k S)), o = scale q S. Differentiable. Arguments as for chunk_gated_delta_rule."""
    refuse(chunk_delta_rule, others)
    return call(
        "delta_rule_l2norm" if use_qk_l2norm_in_kernel else "delta_rule", dict(q=q, k=k, v=v, beta=beta), {}, scale,
        initial_state, output_final_state, state_v_first, cu_seqlens, cu_seqlens_cpu, chunk_size,
    )  # fmt: skip


def call(
    pipeline: str, tensors: Mapping, wide: Mapping, scale, initial_state, output_final_state, state_v_first, cu_seqlens,
    cu_seqlens_cpu, chunk_size, given: Given = (), mode="chunk", **params,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """One call of a pipeline on cast tensors, its state turned over where it is V-first.

    tensors: in q's dtype; wide: in float32, or float64. given, mode: see loaded.
    """
    op = loaded(pipeline, chunk_size, given, mode)
    lead = next(iter(tensors.values()))
    io = lead.dtype if isinstance(lead, torch.Tensor) and lead.dtype in IO_DTYPES.values() else None
    f32 = io and port_dtype("f32", io)
    state = cast(initial_state, f32)
    if state_v_first:
        state = turned(state, tensors["q"], tensors["v"])
    out = op(
        **{name: cast(x, io) for name, x in tensors.items()}, **{name: cast(x, f32) for name, x in wide.items()},
        **params, scale=scale, initial_state=state, cu_seqlens=cu_seqlens, seqlens=host_lengths(cu_seqlens_cpu),
        outputs=["o", "final_state"] if output_final_state else ["o"],
    )  # fmt: skip
    if state_v_first and output_final_state:
        return out.o, out.final_state.transpose(-1, -2).contiguous()
    return out.o, out.final_state


def turned(state, q, v):
    """A state [N, HV, V, K] as [N, HV, K, V]; what is no tensor is left for the op to refuse."""
    if not isinstance(state, torch.Tensor) or state.is_nested or state.dim() < 2:
        return state
    dense = all(isinstance(x, torch.Tensor) and not x.is_nested and x.dim() for x in (q, v))
    if dense and state.shape[-2:] != (v.shape[-1], q.shape[-1]):
        wanted = f"[N, HV, V = {v.shape[-1]}, K = {q.shape[-1]}]"
        fail(f"with state_v_first, initial_state must be {wanted}, it has the shape {list(state.shape)}")
    return state.transpose(-1, -2)


def cast(x, dtype: torch.dtype | None):
    """x in a dtype; what is no floating-point tensor is left for the op to refuse."""
    return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() and dtype else x


def gate(function: Callable, v, g, g_gamma):
    """Log decay per token, from whichever of the two is given. function: what the caller called."""
    if g is not None and g_gamma is not None:
        fail(f"{function.__name__} takes g or g_gamma, not both", "add them: g=g + g_gamma")
    if g is not None:
        return g
    check_dense("v", v, "B T HV V")
    if not isinstance(g_gamma, torch.Tensor) or g_gamma.shape != v.shape[2:3]:
        have = list(g_gamma.shape) if isinstance(g_gamma, torch.Tensor) else type(g_gamma).__name__
        fail(f"g_gamma must be a tensor [{v.shape[2]}], one number per value head, it is {have}")
    # cast before it is many: a gradient in 16 bits would be rounded at each token
    return (g_gamma.float() if g_gamma.element_size() == 2 else g_gamma).expand(v.shape[:3])


def check_dense(name: str, x, axes: str) -> None:
    """Of a tensor whose sizes are read before the op checks it."""
    if isinstance(x, torch.Tensor) and not x.is_nested and not x.is_sparse:
        have = None if x.dim() == len(axes.split()) else f"it has the shape {list(x.shape)}"
    else:
        have = f"it is {'no dense one' if isinstance(x, torch.Tensor) else type(x).__name__}"
    if have:
        fail(f"{name} must be a dense tensor [{', '.join(axes.split())}], {have}")


def host_lengths(cu_seqlens_cpu) -> tuple[int, ...] | torch.Tensor | None:
    """The lengths that a host copy of cu_seqlens holds; under torch.compile as a tensor, whatever their number."""
    if cu_seqlens_cpu is None:
        return None
    if isinstance(cu_seqlens_cpu, torch.Tensor) and cu_seqlens_cpu.device.type != "cpu":
        fail(f"cu_seqlens_cpu is on {cu_seqlens_cpu.device}, it must be on the CPU", "pass it as cu_seqlens")
    check_tensor(cu_seqlens_cpu, torch.device("cpu"), "cu_seqlens_cpu")
    if torch.compiler.is_compiling():
        return cu_seqlens_cpu.diff()
    return tensor_lengths(cu_seqlens_cpu, "cu_seqlens_cpu")


def loaded(pipeline: str, chunk_size: int, given: Given, mode: str) -> Op:
    """The op with this chunk length, loaded at its first use. given: stages that the caller stands in for, each with
    the name of the input that brings what it would make."""
    if not isinstance(chunk_size, int) or chunk_size not in CHUNK_SIZES:
        fail(f"chunk_size must be one of {', '.join(map(str, CHUNK_SIZES))}, it is {chunk_size!r:.40}")
    # the number itself, where the compiler holds a symbol
    chunk_size = CHUNK_SIZES[CHUNK_SIZES.index(chunk_size)]
    prepare(pipeline, chunk_size, given, mode)
    return _ops[pipeline, chunk_size, given, mode]


def prepare(pipeline: str, chunk_size: int, given: Given, mode: str) -> None:
    with _lock:
        if (pipeline, chunk_size, given, mode) not in _ops:
            op = load(pipeline, mode=mode).with_axes({"C": chunk_size})
            _ops[pipeline, chunk_size, given, mode] = op.given(dict(given)) if given else op


# under torch.compile it runs while the compiler reads the code; torch.compiler.assume_constant_result sets the same
# mark, but imports the compiler (3 s) to do so
prepare._dynamo_marked_constant = True


def refuse(function: Callable, others: Mapping) -> None:
    """Arguments without an effect here: an error that names each, unless its value asks for nothing."""
    found = []
    for name, value in others.items():
        if name in REFUSED and (value is None or value is False):
            continue
        close = nearest(name, [each for each in inspect.signature(function).parameters if each not in REFUSED])
        help = REFUSED.get(name) or (f"did you mean {close}?" if close else None)
        found.append(Diagnostic(codes.TENSOR, f"{function.__name__} does not support {name}", help=help))
    if found:
        raise ChunkwiseError(*found)


def fail(message: str, help: str | None = None):
    raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help=help))
