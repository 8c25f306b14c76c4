"""The rounding model M: what it rounds, what it leaves, and how large its errors are."""

import math

import pytest
import torch

from chunkwise.runner.verification.float32_sums import LONGEST
from chunkwise.runner.verification.rounding import RHO, RoundedDots, RoundedResults, Stochastic, model_dtype, nearest

BF16 = torch.bfloat16


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def relative(x, truth):
    return ((x.double() - truth).norm() / truth.norm()).item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rho_is_the_error_of_one_rounding(dtype):
    x = torch.randn(2**18, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert relative(nearest(x, dtype), x) == pytest.approx(RHO[dtype], rel=0.05)


def test_float64_is_float32_made_finer():
    assert RHO[torch.float64] == RHO[torch.float32] * 2.0**-29
    assert model_dtype(torch.float64) == torch.float32
    assert [model_dtype(each) for each in (torch.float32, torch.float16, BF16)] == [torch.float32, torch.float16, BF16]


DOTS = {
    "@": lambda a, b: a @ b,
    "matmul": torch.matmul,
    "method": lambda a, b: a.matmul(b),
    "mm": torch.mm,
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "einsum of a list": lambda a, b: torch.einsum("ij,jk->ik", [a, b]),
    "bmm": lambda a, b: torch.bmm(a[None], b[None])[0],
}


@pytest.mark.parametrize("form", DOTS)
def test_operands_of_every_product_are_rounded(form):
    a, b = noise(8, 8), noise(8, 8, seed=1)
    with RoundedDots(BF16):
        found = DOTS[form](a, b)
    torch.testing.assert_close(found, a.bfloat16().float() @ b.bfloat16().float(), rtol=1e-6, atol=1e-6)
    assert found.dtype == torch.float32
    assert relative(found, a.double() @ b.double()) > 0.3 * RHO[BF16]


def test_what_is_no_product_keeps_float32():
    x = noise(8, 8)
    with RoundedDots(BF16):
        assert torch.equal(torch.exp2(x), x.exp2())
        assert torch.equal(x * x + x, (x * x) + x)
    assert torch.equal(nearest(x, BF16), x.bfloat16().float())


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_cumulative_sums_err_as_a_scan_in_any_order(dtype):
    """By halves each sum of 2^24 and more is rounded on its own: neighbours differ by a few units, not by one."""
    x = torch.full([1000, 64], -(2.0**18) - 1)
    truth = x.double().cumsum(1)
    with RoundedDots(dtype):
        found = x.cumsum(1)
    assert found.dtype == torch.float32 and 0 < relative(found, truth) < 20 * 2**-24
    assert len(found.unique(dim=0)) == 1, "equal chunks err alike"
    y = x + torch.arange(1000)[:, None] % 32
    with RoundedDots(dtype):
        each = y.cumsum(1)
    apart = each[:32].double().diff(dim=1) - y[:32, 1:].double()
    assert 0.4 < apart.square().mean().sqrt().item() < 2
    with RoundedDots(torch.float32):
        assert x[:0].cumsum(0).shape == (0, 64)


def test_terms_of_nothing_do_not_round():
    x = torch.zeros(1, 64)
    x[0, 0] = -1.3
    with RoundedDots(torch.float32):
        apart = x.cumsum(1) + 1.3
    assert apart.abs().max() < 4 * 2**-24


def test_the_same_number_errs_the_same_way():
    """The exponential of a decay that all chunks share."""
    x = torch.full([1000], -0.3)
    with RoundedDots(torch.float32):
        found, other = x.exp2(), (x - torch.arange(1000) / 1000).exp2()
    assert len(found.unique()) == 1
    err = other.double() / (x - torch.arange(1000) / 1000).double().exp2() - 1
    assert abs(err.mean().item()) < 0.2 * err.std().item()


def test_float32_sums_lose_what_an_accumulator_loses():
    """The error of a sum of n terms grows as 2^-24 sqrt(n), and is the same at every run."""
    a, b = noise(64, 4096), noise(4096, 64, seed=1)
    truth = a.double() @ b.double()
    with RoundedDots(torch.float32):
        one, two = a @ b, a @ b
    with RoundedDots(torch.float32):
        again = a @ b
    assert torch.equal(one, again)
    assert 2**-24 < relative(one, truth) < 2**-24 * math.sqrt(4096)
    assert relative(two, truth) < 2**-24 * math.sqrt(4096)


def test_millions_of_terms_are_partial_sums():
    """No kernel adds them one after another: what is lost stops growing."""
    x = noise(8, 2**20)
    with RoundedDots(torch.float32):
        lost = x.sum(1).double() - x.double().sum(1)
    rms = lost.square().mean().sqrt().item() / x.double().square().sum(1).mean().sqrt().item()
    assert 2**-24 * 20 < rms < 2**-24 * math.sqrt(LONGEST)


class TestStochastic:
    def test_up_or_down_and_right_on_average(self):
        x = torch.full([200_000], 1 + 0.3 * 2**-7)
        found = Stochastic(0)(x, BF16)
        assert set(found.unique().tolist()) == {1.0, 1 + 2**-7}
        assert found.mean().item() == pytest.approx(x[0].item(), abs=2**-7 * 0.01)

    def test_the_same_for_the_same_seed(self):
        x = noise(1000)
        assert torch.equal(Stochastic(3)(x, BF16), Stochastic(3)(x, BF16))
        assert not torch.equal(Stochastic(3)(x, BF16), Stochastic(4)(x, BF16))

    @pytest.mark.parametrize("value", [0.0, 1.0, -2.0, 0.5, 1.5, math.inf, -math.inf])
    def test_what_fits_stays(self, value):
        x = torch.full([1000], value)
        assert torch.equal(Stochastic(0)(x, BF16), x)

    def test_nan_stays_nan(self):
        assert Stochastic(0)(torch.tensor([math.nan]), BF16).isnan().all()

    def test_the_dtype_at_hand_is_left_alone(self):
        x = noise(100)
        assert Stochastic(0)(x, torch.float32) is x

    def test_cumulative_sums_slip_and_carry_on(self):
        """Late sums have slipped by a few units in the last place, by chance and with no lean to one side."""
        x = -1.3 - noise(4000, 128).double().abs() / 100
        slip = Stochastic(0).cumsum(x, 1) - x.cumsum(1)
        ulp = 2.0 ** (math.floor(math.log2(1.3 * 128)) - 23)
        assert 1 < slip[:, -1].std().item() / ulp < math.sqrt(128)
        assert abs(slip[:, -1].mean().item()) < 0.2 * slip[:, -1].std().item()


class TestRoundedResults:
    def test_every_result_is_a_float32_number(self):
        x = noise(100).double()
        with RoundedResults(Stochastic(0)):
            found = torch.exp(x) * x + 1 / x
        assert torch.equal(found, found.float().double())
        assert 0 < relative(found, torch.exp(x) * x + 1 / x) < 1e-6

    def test_views_are_not_copied(self):
        x = noise(4, 4).double()
        with RoundedResults(Stochastic(0)):
            assert x.transpose(0, 1).data_ptr() == x.data_ptr()

    def test_draws_differ(self):
        x = noise(64, 64).double()
        found = []
        for seed in (0, 1):
            with RoundedResults(Stochastic(seed)):
                found.append(x @ x)
        assert not torch.equal(*found)
        assert all(relative(each, x @ x) < 1e-6 for each in found)

    def test_gradients_pass(self):
        x = noise(8).double().requires_grad_()
        with RoundedResults(Stochastic(0)):
            torch.exp(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.exp(x.detach()), rtol=1e-5, atol=0)


@pytest.mark.parametrize("mode", [lambda: RoundedDots(torch.float32), lambda: RoundedResults(Stochastic(0))])
def test_a_product_of_zeros_has_a_gradient(mode):
    """A state that starts from 0 is multiplied by a matrix before anything is written into it."""
    matrix, state = torch.ones(3, 3, dtype=torch.float64, requires_grad=True), torch.zeros(3, 2, dtype=torch.float64)
    with mode():
        product = matrix @ state
    product.sum().backward()
    assert torch.equal(product, torch.zeros(3, 2, dtype=torch.float64)) and torch.equal(matrix.grad, 0 * matrix)
