"""The kernels on a GPU at the sizes that people compare on, in every dtype, with hard inputs and packed sequences."""

import pytest
import torch
from support.gpu_room import op_bytes, room
from support.ops import OPS, PIPELINES, RAGGED, check, has_gradient_kernels, inputs, op, sizes_for

from chunkwise.runner.verification.generate import CASES
from chunkwise.runner.workloads import WORKLOADS

pytestmark = pytest.mark.gpu

SMALL = dict(B=2, T=150, H=2, HV=4, K=128, V=128)


CELLS = [
    pytest.param(io, fuse, id=f"{fuse}-{io}")
    for io in (torch.bfloat16, torch.float16, torch.float32)
    for fuse in (("auto", "none") if io.itemsize == 2 else ("auto",))
]
"""What auto takes was timed in 16 bits: in float32 it is none."""


def verified(
    name, io, C=None, *, seqlens=None, case="typical", params=None, backward=False, seed=0, fuse="auto", **sizes
):
    kernel = op(name, C, "triton", fuse=fuse)
    given = inputs(kernel, io, seqlens=seqlens, case=case, seed=seed, device="cuda", **sizes)
    result = check(kernel, given, seqlens=seqlens, case=case, params=params, backward=backward)
    assert "reference" not in {row.backend for row in result.rows}
    return result


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("io,fuse", CELLS)
def test_workloads(name, workload, io, fuse):
    """Outputs and gradients; where memory is short, the truth of some heads at full length."""
    sizes, whole = WORKLOADS[workload], op(name).trainable_graph()
    with room(op_bytes(whole, sizes_for(op(name), **sizes), io)):
        verified(name, io, fuse=fuse, backward=has_gradient_kernels(name), **sizes)


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("seqlens", [None, RAGGED, (1000, 1, 64, 63, 0, 300)], ids=str)
@pytest.mark.parametrize("name", PIPELINES)
def test_plain_and_packed(name, seqlens, io):
    """D2 and the V cases; float32 products are ieee (D8)."""
    verified(name, io, seqlens=seqlens)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", OPS)
def test_cases(name, case):
    """N2, N9, N13."""
    verified(name, torch.bfloat16, case=case, **SMALL)
    verified(name, torch.float32, case=case, **SMALL)


@pytest.mark.parametrize("C", [16, 32, 64, 128])
@pytest.mark.parametrize("name", OPS)
def test_e14_chunk_lengths(name, C):
    verified(name, torch.bfloat16, C, **SMALL)
    verified(name, torch.float32, C, **SMALL)
    verified(name, torch.bfloat16, C, seqlens=(C + 3, 0, 1, 2 * C), **{**SMALL, "B": 1, "T": 3 * C + 9})


WIDTHS = [
    (8, 8), (16, 32), (32, 48), (48, 60), (60, 100), (100, 48), (96, 128), (160, 128), (192, 128), (256, 64),
]  # fmt: skip


@pytest.mark.parametrize("K,V", WIDTHS)
@pytest.mark.parametrize("name", OPS)
def test_e1_e2_e7_widths(name, K, V):
    for T in (1, 130):
        verified(name, torch.bfloat16, T=T, K=K, V=V)


@pytest.mark.parametrize("fuse", ["auto", "none"])
@pytest.mark.parametrize("name", [name for name in PIPELINES if has_gradient_kernels(name)])
def test_gradients(name, fuse):
    verified(name, torch.bfloat16, seqlens=(70, 0, 1, 64), backward=True, seed=1, fuse=fuse)


@pytest.mark.parametrize("workload", ["B1_T8192_H96_D128", "B4_T2048_H16_D128", "B8_T2048_H32_D256"])
@pytest.mark.parametrize("name", "gated_delta delta_rule qwen3_next_gdn simple_gla retention gla kda".split())
def test_fused_in_float32(name, workload):
    """What auto leaves alone, and a name asks for."""
    fuse = "delta_prescan,chunk_delta_o,chunk_h_o,chunk_h_o_k,chunk_delta_o_k"
    kernel = op(name, backend="triton", fuse=fuse)
    with room(op_bytes(kernel.whole, sizes_for(kernel, **WORKLOADS[workload]), torch.float32)):
        check(kernel, inputs(kernel, device="cuda", **WORKLOADS[workload]))


@pytest.mark.parametrize("name", ["gated_delta", "delta_rule", "qwen3_next_gdn", "simple_gla", "retention", "mamba2"])
def test_fused_gradients_in_float32(name):
    kernel = op(name, backend="triton", fuse="chunk_delta_grads,chunk_delta_states,chunk_h_o_grads")
    check(kernel, inputs(kernel, device="cuda", **SMALL), backward=True)


@pytest.mark.parametrize("scale", [1, 1.0, 0.999])
@pytest.mark.parametrize("name", OPS)
def test_c3_a_scale_of_one(name, scale):
    verified(name, torch.bfloat16, params={"scale": scale}, **SMALL)


@pytest.mark.parametrize("A_log,a", [(100.0, -200.0), (80.0, -80.0), (90.0, 50.0), (3.0, 4.0)])
def test_n17_gates_computed_in_the_op(A_log, a):
    kernel = op("qwen3_next_gdn", backend="triton")
    given = inputs(kernel, device="cuda")
    given["A_log"], given["dt_bias"] = torch.full([4], A_log, device="cuda"), torch.zeros(4, device="cuda")
    check(kernel, {**given, "a": torch.full_like(given["a"], a)})


@pytest.mark.parametrize("name", OPS)
def test_d8_no_tf32_whatever_pytorch_is_set_to(name, monkeypatch):
    kernel = op(name, backend="triton")
    given = inputs(kernel, device="cuda", **SMALL)
    plain = kernel(**given)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    assert torch.equal(kernel(**given).o, plain.o)
