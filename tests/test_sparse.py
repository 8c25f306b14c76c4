"""Attention to chosen keys by its references: choosing, gathering, and the op against its definition."""

import pytest
import torch
from support.ops import check, inputs
from support.sparse import (
    FUSED,
    SIZES,
    all_chosen_is_dense,
    chooses_largest,
    nan_past_a_length,
    scores_of_any_numbers,
    sparse,
)

from chunkwise.runner.main import main


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_dtypes(io):
    dsa, _ = sparse()
    check(dsa, inputs(dsa, io, **SIZES), params=dict(window=30), backward=True)


@pytest.mark.parametrize("sizes", [dict(B=0), dict(Sq=0), dict(Sk=0), dict(Sk=3), dict(Sq=1)], ids=str)
def test_few(sizes):
    """E10, E7: nothing at all, queries that see nothing, fewer keys than are asked for."""
    check(*sparse(**sizes), backward=True)


def test_all_chosen():
    all_chosen_is_dense("reference")


def test_nan():
    nan_past_a_length("reference")


def test_choosing(tmp_path):
    chooses_largest("reference", tmp_path)


def test_scores(tmp_path):
    scores_of_any_numbers("reference", tmp_path)


def test_fused():
    """Without the gathered latents; gradients too."""
    dsa, given = sparse(fuse=FUSED)
    assert list(dsa.bind(given).forward_plan().notes) == [f"attend: {FUSED} in place of gather, attend"]
    check(dsa, given, backward=True)


def test_a_choice_has_no_gradient():
    """What the indexer is given takes none: whole numbers stand between."""
    dsa, given = sparse()
    leaves = {name: x.requires_grad_() for name, x in given.items() if x is not None and x.is_floating_point()}
    dsa(**given | leaves).o.sum().backward()
    assert {name for name, x in leaves.items() if x.grad is None} == {"q_index", "k_index", "w_index"}


def test_run_times_each_part(capsys, tmp_path):
    """The whole numbers among the results have no budget, and are not what is closest to it."""
    sizes = "TOP=4,Sq=3,Sk=20,HQ=2,DN=16,DR=8,DC=16,DV=16,HI=2,KI=16"
    assert main(["run", "dsa", "--axes", sizes, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert [stage for stage in ("index", "choose", "gather", "attend") if f"│ {stage} " not in text] == []
    assert "verified: 14 tensors within budget" in text and "closest: " in text
