"""What a piece of a sequence has forgotten when it ends is not scanned, and the state that it leaves is the same."""

import pytest
import torch
from support.one_stage import STAGES, stage_inputs, stage_op

from chunkwise.runner.planning.execute import run_kernel
from chunkwise.stages._forgotten import FORGOTTEN, forgotten_launch
from chunkwise.stages._seqs import Seqs

C, SIZES = 16, dict(H=1, HV=2, K=24, V=20)
CASES = {
    "chunk_h_segment": "g", "chunk_h_k_segment": "b_end", "chunk_delta_states_segment": "g",
    "chunk_h_reverse_segment": "g", "chunk_delta_reverse_segment": "g",
}  # fmt: skip
"""Stage -> its gate."""
KEPT = 3
"""The chunk that forgets all before it, counted from the end, and all after it, from the begin."""


def chunk_sums(length):
    lost = torch.full((-(-length // C),), -2.0)
    if len(lost) > KEPT:
        lost[KEPT - 1], lost[-KEPT] = 1.5 * FORGOTTEN, 1.5 * FORGOTTEN
    return lost


def given(op, name, lengths, packed):
    """(inputs of which the first head forgets and the second does not, the rows that it has forgotten)."""
    sizes = dict(B=1, T=sum(lengths), **SIZES)
    inputs = stage_inputs(op, seqlens=lengths if packed else None, **sizes)
    at = torch.cat([torch.arange(length) for length in lengths])
    sums = [chunk_sums(length) for length in lengths]
    counts = torch.cat([torch.full((length,), len(lost)) for length, lost in zip(lengths, sums)])
    after = torch.where(counts > KEPT, counts - KEPT, 0)
    forgotten = (at // C >= KEPT) & (counts > KEPT) if "reverse" in name else at // C < after
    heads = torch.tensor([1.0, 0.01])
    if CASES[name] == "b_end":
        slots = inputs["b_end"].shape[1]
        table = torch.cat([*sums, torch.zeros(slots)])[:slots]
        inputs["b_end"] = torch.einsum("n,h,k->nhk", table, heads, torch.ones(SIZES["K"]))[None]
    else:
        by_row = torch.cat([lost[torch.arange(length) // C] for length, lost in zip(lengths, sums)])
        inputs["g"] = torch.einsum("t,h->th", by_row, heads)[None]
    if "Ai" in inputs:
        inputs["Ai"] = torch.eye(C)[at % C][None, :, None].repeat(1, 1, 2, 1)
    return inputs, forgotten


@pytest.mark.parametrize("lengths,packed", [((90,), False), ((0, 70, 3, 97), True)])
@pytest.mark.parametrize("name", CASES)
def test_what_is_forgotten_is_not_read(tmp_path, name, lengths, packed):
    op = stage_op(tmp_path, name, ("g_gamma",), C, "interpret")
    inputs, forgotten = given(op, name, lengths, packed)
    seqlens = lengths if packed else None
    right = stage_op(tmp_path, name, ("g_gamma",), C)(**inputs, seqlens=seqlens)
    values = "d_o" if "reverse" in name else "v"
    inputs[values] = inputs[values].clone()
    inputs[values][:, forgotten, 0] = torch.nan
    made = op(**inputs, seqlens=seqlens)
    assert forgotten.sum() > 2 * C
    for port in STAGES[name].contract.outputs:
        torch.testing.assert_close(getattr(made, port), getattr(right, port), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("long", [1.0, 4.0, float("nan")])
def test_how_many_chunks(long, reverse):
    """Long keys may make a state grow under the delta rule: it forgets later. A nan forgets nothing."""
    T, K, HV = 8 * C, 24, 2
    g = (FORGOTTEN / 2.5 / C * (torch.arange(T) % C + 1)).repeat(HV, 1).T.contiguous()[None]
    k, beta = torch.nn.functional.normalize(torch.rand(1, T, 1, K), dim=-1) * long, torch.full((1, T, HV), 0.9)
    found = torch.full((1, HV), -1, dtype=torch.int32)
    run_kernel(forgotten_launch(g, None, None, k, beta, found, K=K, C=C, seqs=Seqs(1, T, C, 8), reverse=reverse))
    grown = C * torch.log2(torch.tensor(0.9 * long**2 - 1).clamp(min=1))
    wanted = torch.ceil(FORGOTTEN / (FORGOTTEN / 2.5 + grown)) if long == long else 8
    assert found.tolist() == [[8 - int(wanted)] * HV] and (long != 4 or wanted == 6)
