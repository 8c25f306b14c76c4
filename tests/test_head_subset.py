"""Verification on some heads, where float64 copies of all would not fit."""

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.verification import head_subset
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.verification.verify import verify

SIZES = dict(B=2, T=70, H=6, HV=12, K=8, V=16)


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(head_subset, "free_bytes", lambda device: 700_000)


def test_picks_heads_spread_over_all(little_memory):
    graph = load("gated_delta").whole
    heads = head_subset.pick_heads(graph, complete(graph, SIZES), torch.device("cpu"), {})
    assert heads is not None and 1 <= len(heads) < 6 and heads[0] == 0


def test_verifies_gradients_on_the_heads_and_says_which(little_memory):
    op = load("gated_delta")
    inputs = make_inputs(op.whole, complete(op.whole, SIZES), torch.float32, "cpu")
    result = verify(op, inputs, backward=True)
    assert result.heads and result.ok
    assert {row.value for row in result.rows if row.id == "op"} >= {"o", "final_state", "d_k", "d_g"}


def test_under_dropout_the_first_heads(monkeypatch):
    monkeypatch.setattr(head_subset, "free_bytes", lambda device: 7_000_000)
    graph, sizes = load("flash").whole, dict(B=2, Sq=40, Sk=40, HQ=12, H=6, D=8, DV=8)
    params = dict(scale=1.0, softcap=0, causal=1, window=0, prefix_lm=0, dropout=0.1, seed=0, first_batch=0)
    heads = head_subset.pick_heads(graph, complete(graph, sizes), torch.device("cpu"), params)
    assert heads == tuple(range(len(heads))) and 1 < len(heads) < 6
    spread = head_subset.pick_heads(graph, complete(graph, sizes), torch.device("cpu"), params | {"dropout": 0})
    assert spread[-1] == 5


def test_an_error_on_a_chosen_head_is_found(little_memory, monkeypatch):
    op = load("simple_gla")
    inputs = make_inputs(op.whole, complete(op.whole, SIZES), torch.float32, "cpu")
    heads = head_subset.pick_heads(op.whole, complete(op.whole, SIZES), torch.device("cpu"), {})
    from chunkwise.runner.verification import verify as module

    honest = module.run_whole

    def with_one_wrong_head(subject):
        results = dict(honest(subject))
        results["o"][:, :, 2 * heads[-1]] *= 1.01
        return results

    monkeypatch.setattr(module, "run_whole", with_one_wrong_head)
    result = verify(op, inputs)
    assert not result.ok and (result.first_bad.id, result.first_bad.value) == ("op", "o")
