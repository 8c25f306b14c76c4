"""What run verifies before it times: the case of the run, made small."""

import json
from pathlib import Path

import pytest

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete, size_errors
from chunkwise.runner.main import main
from chunkwise.runner.verification.small_case import small_case
from chunkwise.runner.workloads import SMALL, WORKLOADS

OP = load("gated_delta")
LARGE = WORKLOADS["B2_T16384_H16_D128"]


def small(asked=None, lengths=None, op=OP, base=LARGE):
    asked = asked or {}
    run = {**base, **({"B": 1, "T": sum(lengths)} if lengths else {}), **asked}
    return small_case(op.whole, complete(op.whole, run, len(lengths) if lengths else None), asked, lengths)


def test_the_usual_sizes():
    sizes, lengths = small()
    assert lengths is None and sizes == complete(OP.whole, SMALL)


@pytest.mark.parametrize("asked, kept", [
    (dict(K=16, V=16), dict(K=16, V=16)),
    (dict(K=512, V=16), dict(K=32, V=16)),
    (dict(B=1, T=200), dict(B=1, T=200)),
    (dict(T=4096), dict(T=130)),
    (dict(H=1, HV=1), dict(H=1, HV=1)),
    (dict(H=3, HV=3), dict(H=3, HV=3)),
    (dict(H=3, HV=48), dict(H=3, HV=6)),
    (dict(H=32, HV=96), dict(H=2, HV=4)),
    (dict(T=0), dict(T=0)),
])  # fmt: skip
def test_what_was_asked_for_stays_where_it_is_small(asked, kept):
    sizes, _ = small(asked)
    assert sizes == complete(OP.whole, SMALL | kept) and size_errors(OP.whole, sizes) == []


@pytest.mark.parametrize("C, T", [(16, 34), (128, 258)])
def test_tokens_follow_the_chunk_length(C, T):
    assert small(op=OP.with_axes({"C": C}))[0]["T"] == T


@pytest.mark.parametrize("lengths, kept", [
    ((100, 0, 28), (100, 0, 28)),
    ((8192,), (128,)),
    ((8191, 1, 0, 4096, 1, 300), (127, 1, 0, 128, 108)),
    (tuple(range(400)), (0, 1, 2, 3, 4, 5, 6, 7)),
])  # fmt: skip
def test_packed_sequences_stay_packed(lengths, kept):
    sizes, found = small(lengths=lengths)
    assert found == kept and (sizes["B"], sizes["T"], sizes["N"]) == (1, sum(kept), len(kept))


def test_rows_past_the_last_sequence_stay():
    assert small({"B": 1, "T": 9000}, (8192, 7))[0]["T"] == 128 + 7 + 3


@pytest.mark.parametrize("constraint, sizes", [("K == V", dict(K=128, V=128, T=256)), ("T % 100 == 84", LARGE)])
def test_a_constraint_that_the_usual_sizes_break(constraint, sizes, tmp_path):
    text = (Path(__file__).parents[1] / "pipelines" / "gated_delta.yaml").read_text()
    (tmp_path / "op.yaml").write_text(text.replace("axes: {C: 64}", f"axes: {{C: 64}}\nconstraints: [{constraint}]"))
    op = load(tmp_path / "op.yaml")
    found, _ = small(op=op)
    assert size_errors(op.whole, found) == [] and sizes.items() <= found.items()


@pytest.mark.parametrize("H, kept", [(1, 1), (2, 2), (3, 3), (8, 2)])
def test_heads_that_follow_from_others_stay_as_many(H, kept):
    """H alone was asked for, which sets HV too: grouped heads would be another case than the run's."""
    sizes, _ = small_case(OP.whole, complete(OP.whole, LARGE | {"H": H, "HV": H}), {"H"}, None)
    assert (sizes["H"], sizes["HV"]) == (kept, kept)


def test_run_says_at_which_sizes_it_verified(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["run", "simple_gla", "--axes", "K=8,V=8,H=1,HV=1,C=16", "--seqlens", "9,0,1", "--device", "cpu"]
    assert main(argv) == 0
    assert "; at C=16, B=1, T=10, H=1, K=8, HV=1, V=8, N=3, NT=3, packed 9,0,1; closest" in capsys.readouterr().out
    verified = json.loads(Path("out/simple_gla/report.json").read_text())["verify"]
    assert verified["seqlens"] == [9, 0, 1] and verified["axes"]["K"] == 8
