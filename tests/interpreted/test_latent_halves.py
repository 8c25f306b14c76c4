"""The kernel that makes half of a latent's columns in each program. It is for 16 bits, which the interpreter has as
fp16: the launch is held against the reference in float32 on the same numbers."""

import pytest
import torch

from chunkwise.stages import latent_attention
from chunkwise.stages._decode import latent_launches

B, Sq, HQ, DC, DR, Sk = 2, 2, 5, 512, 16, 70
SPANS = {"first": [[0, 3], [0, 5]], "end": [[60, 61], [0, 33]]}
PAGES = torch.tensor([[3, 1, 0, 4, 7], [2, 6, 5, 8, 9]], dtype=torch.int32)


def tensors():
    generator = torch.Generator().manual_seed(3)
    shapes = {"q": (B, Sq, HQ, DC), "q_rope": (B, Sq, HQ, DR), "c": (B, Sk, DC), "k_rope": (B, Sk, DR)}
    found = {name: torch.randn(shape, generator=generator).half() for name, shape in shapes.items()}
    return found | {name: torch.tensor(rows, dtype=torch.int32) for name, rows in SPANS.items()}


def in_pages(x, size):
    """[10, size, *]: each sequence's rows where PAGES says; nan where no row is."""
    found = torch.full((10, size, x.shape[-1]), torch.nan, dtype=x.dtype)
    for b, pages in enumerate(PAGES):
        for place, page in enumerate(pages):
            rows = x[b, place * size : (place + 1) * size]
            found[page, : len(rows)] = rows
    return found


def run(given, table, page, splits, BM):
    config = dict(BM=BM, BN=16, num_warps=4, num_stages=1, HALVES=2, SPLITS=splits)
    o, lse = torch.full((B, Sq, HQ, DC), torch.nan, dtype=torch.float16), torch.full((B, Sq, HQ), torch.nan)
    parts = torch.full((splits, B, Sq, HQ, DC), torch.nan), torch.full((splits, B, Sq, HQ), torch.nan)
    own = (given[name] for name in ("q", "q_rope", "c", "k_rope"))
    spans = (given["first"], given["end"])
    for launch in latent_launches(*own, table, *spans, o, lse, *parts, Sk, page, 0.05, config):
        launch.kernel[launch.grid](**launch.args, **launch.constexprs)
    return o.float(), lse


@pytest.mark.parametrize("page, splits, BM", [(None, 1, 16), (None, 3, 1), (14, 3, 16), (16, 1, 1)])
def test_halves(page, splits, BM):
    """Rows of two queries in a tile, and (BM 1) each alone; nan past what any query sees leaves no trace."""
    given = tensors()
    right = latent_attention.reference(**{name: x.float() if x.is_floating_point() else x for name, x in given.items()},
                                       scale=0.05)  # fmt: skip
    given["c"][0, 61:], given["c"][1, 33:] = torch.nan, torch.nan
    if page:
        given |= {name: in_pages(given[name], page) for name in ("c", "k_rope")}
    o, lse = run(given, PAGES if page else None, page or 1, splits, BM)
    torch.testing.assert_close(o, right["o"], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(lse, right["lse"], rtol=1e-3, atol=1e-3)
    assert (o[1, 0] == 0).all() and (lse[1, 0] == -torch.inf).all()


def test_nan_that_one_query_sees():
    given = tensors()
    given["c"][0, 60, 3] = torch.nan  # its second query sees it, the first does not
    o, _ = run(given, None, 1, 1, 16)
    assert o[0, 0].isfinite().all() and o[1].isfinite().all() and o[0, 1].isnan().any(-1).all()
