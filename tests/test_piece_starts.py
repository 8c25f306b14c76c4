"""Where pieces of a long sequence start: what stands before a start leaves nothing in any float32 state."""

import math

import pytest
import torch

from chunkwise.stages import chunk_delta_o, chunk_local_cumsum, chunk_scaled_dot_kkt, solve_tril
from chunkwise.stages._forgotten import FORGOTTEN
from chunkwise.stages._piece_starts import WINDOW, piece_starts, scan_pieces

C, PIECES = 16, 4
LEAST = 2.0**-149
"""Float32's least number."""


@pytest.mark.parametrize(
    "T, HV, V, count",
    [
        (32768, 4, 128, 16), (65536, 2, 128, 32), (32768, 8, 128, 8), (16384, 4, 128, 16), (32768, 32, 128, 2),
        (32768, 34, 128, 1), (8192, 1, 128, 8), (8192 - 64, 1, 128, 1), (8192 - 63, 1, 128, 8), (32768 + 1, 4, 64, 32),
    ],
)  # fmt: skip
def test_how_many_pieces(T, HV, V, count):
    axes = dict(T=T, C=64, HV=HV, K=128, V=V)
    assert scan_pieces(axes) == scan_pieces({**axes, "B": 8}) == count


def gates(kind, T, generator):
    """A natural log decay for each of two heads."""
    draw = torch.rand(T, 2, generator=generator, dtype=torch.float64)
    weak = torch.tensor([1.0, 0.02], dtype=torch.float64)
    return (
        -draw
        * {"plain": 5 * weak, "middle": 8 * weak, "strong": 20 * weak, "late": 6 * (torch.arange(T)[:, None] > T // 2)}[
            kind
        ]
    )


def given(kind, length, generator, T=40 * C + 5):
    """k [1, T, 1, K] of that norm, beta, g [1, T, 2], chunk sums in log2. Long keys are all the same: they leave as
    much as there can be."""
    k = torch.nn.functional.normalize(torch.randn(1, T, 1, 8, generator=generator, dtype=torch.float64), dim=-1)
    k = k if length == 1 else k[:, :1].expand_as(k)
    beta = 0.5 + torch.rand(1, T, 2, generator=generator, dtype=torch.float64) / 2
    g = chunk_local_cumsum.reference(gates(kind, T, generator)[None], C=C)["y"]
    return length * k, beta, g


def log_norm_of_what_is_left(k, beta, g, head, begin, end):
    """log2 of the norm of what tokens do to a state, one after another, from a chunk's first to another one's."""
    product, log = torch.eye(k.shape[-1], dtype=torch.float64), 0.0
    for t in range(begin * C, end * C):
        decay = g[0, t, head] - (g[0, t - 1, head] if t % C else 0)
        product = product - beta[0, t, head] * torch.outer(k[0, t, 0], k[0, t, 0] @ product)
        norm = torch.linalg.matrix_norm(product, 2).item()
        product, log = product / norm, log + math.log2(norm) + decay.item()
    return log


@pytest.mark.parametrize("kind, length", [("plain", 1.0), ("strong", 1.0), ("middle", 3.0), ("late", 1.0)])
def test_what_stands_before_a_start_is_forgotten(kind, length):
    generator = torch.Generator().manual_seed(0)
    k, beta, g = given(kind, length, generator)
    starts, chunks = piece_starts(k, beta, g, pieces=PIECES, C=C)[0], -(-k.shape[1] // C)
    assert (starts[0] == 0).all() and (starts[1:, 0] > 0).any()
    for p, head in torch.cartesian_prod(torch.arange(1, PIECES), torch.arange(2)).tolist():
        start, begin = starts[p, head].item(), p * chunks // PIECES
        if start > 0:
            assert begin - WINDOW <= start < begin
            assert log_norm_of_what_is_left(k, beta, g, head, start, begin) <= FORGOTTEN


def test_in_reverse_what_stands_behind_a_start_is_forgotten():
    k, beta, g = given("middle", 3.0, torch.Generator().manual_seed(0))
    starts = piece_starts(k, beta, g, pieces=PIECES, C=C, reverse=True)[0]
    assert (starts[-1] == 41).all() and (starts[:-1, 0] > 0).all() and (starts[:-2, 1] == -1).all()
    for p in range(PIECES - 1):
        start, end = starts[p, 0].item(), (p + 1) * 41 // PIECES
        assert end < start <= end + WINDOW
        assert start == 41 or log_norm_of_what_is_left(k, beta, g, 0, end, start) <= FORGOTTEN
    assert (starts[:-1, 0] < 41).any()


def test_a_start_is_as_late_as_the_bound_allows():
    """Unit keys: the bound is the sum of the gates."""
    k, beta, g = given("strong", 1.0, torch.Generator().manual_seed(1))
    starts, ends = piece_starts(k, beta, g, pieces=PIECES, C=C)[0], g[0, C - 1 :: C]
    for p in range(1, PIECES):
        start, begin = starts[p, 0].item(), p * 41 // PIECES
        assert ends[start:begin, 0].sum() <= FORGOTTEN < ends[start + 1 : begin, 0].sum()


def test_heads_that_do_not_forget_have_no_start():
    k, beta, g = given("strong", 3.0, torch.Generator().manual_seed(0))
    assert (piece_starts(k, beta, g, pieces=PIECES, C=C)[0, :, 1] == torch.tensor([0, 0, -1, -1])).all()


@pytest.mark.parametrize("name", ["k", "beta", "g"])
def test_a_nan_forgets_nothing(name):
    found = dict(zip(("k", "beta", "g"), given("strong", 1.0, torch.Generator().manual_seed(0)), strict=True))
    before = piece_starts(**found, pieces=PIECES, C=C)
    begin = 3 * 41 // PIECES
    found[name] = found[name].clone()
    found[name][0, begin * C - 1] = torch.nan
    after = piece_starts(**found, pieces=PIECES, C=C)
    assert before[0, 3, 0] > 0 and after[0, 3, 0] == -1 and torch.equal(after[:, :3], before[:, :3])


def test_a_scan_from_a_start_is_the_whole_one_from_its_piece_on():
    """From any finite state: what differs is less than half of float32's least number."""
    generator = torch.Generator().manual_seed(2)
    k, beta, g = given("strong", 1.0, generator)
    T = k.shape[1]
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    Ai = solve_tril.reference(chunk_scaled_dot_kkt.reference(k, beta, g, C=C)["A"], C=C)["Ai"]
    rows = dict(q=draw(1, T, 1, 8), k=k, v=torch.zeros(1, T, 2, 4, dtype=torch.float64), beta=beta, Ai=Ai, g=g)
    starts = piece_starts(k, beta, g, pieces=PIECES, C=C)[0]
    largest = torch.full((1, 2, 8, 4), torch.finfo(torch.float32).max, dtype=torch.float64)
    p, start = 2, starts[2, 0].item()
    tokens = slice(start * C, p * 41 // PIECES * C)
    given_rows = {name: x[:, tokens] for name, x in rows.items()}
    left = chunk_delta_o.reference(**given_rows, initial_state=largest, scale=1.0, C=C)["final_state"]
    assert start > 0 and 0 < left[0, 0].abs().max() < LEAST / 2
