"""The rounding model M: what an honest kernel in the op's dtype may lose, and no more.

Stage references in float32 arithmetic; the operands of every dot rounded to the op's dtype; float32 sums;
every port rounded to its contract dtype. Gates, exponentials, the inverse and the running state stay float32.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from .float32_sums import accumulated, product_terms, slipped, squared, sum_terms

F32 = torch.float32
FINER = 2.0**-29
"""Rounding of float64 over that of float32. M of float64 is that of float32 with its errors scaled by this: there is
no wider arithmetic to take the truth from, so a model of its own would have nothing to be held against."""

RHO = {torch.bfloat16: 1.7e-3, torch.float16: 2.1e-4, torch.float32: 2.6e-8, torch.float64: 2.6e-8 * FINER}
"""Relative L2 error of rounding alone, by IO dtype."""

DOTS = {
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, torch.mm, torch.Tensor.mm,
    torch.bmm, torch.Tensor.bmm, torch.mv, torch.Tensor.mv, torch.dot, torch.einsum,
}  # fmt: skip

PRODUCTS = DOTS | {torch.linalg.solve_triangular}

APPROXIMATED = {
    getattr(place, name)
    for name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "logaddexp", "pow", "sigmoid", "rsqrt", "sqrt", "tanh")
    for place in (torch, torch.Tensor)
} | {torch.nn.functional.softplus, torch.nn.functional.logsigmoid, torch.nn.functional.silu}

CUMSUMS = {torch.cumsum, torch.Tensor.cumsum}
SUMS = {torch.sum, torch.Tensor.sum}
ACCUMULATED = DOTS | SUMS
ADDS = {
    torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__,
    torch.sub, torch.Tensor.sub, torch.Tensor.__sub__, torch.Tensor.__rsub__,
}  # fmt: skip


def nearest(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).to(x.dtype)


def model_dtype(io: torch.dtype) -> torch.dtype:
    """What M rounds to in a pipeline of that IO dtype."""
    return torch.float32 if io == torch.float64 else io


def power_of_two(x: torch.Tensor) -> torch.Tensor:
    """The largest up to each number's size, from its exponent's bits: 0 for 0, finite where x is not. x: float64."""
    bits = x.detach().view(torch.int64) & 0x7FF0_0000_0000_0000
    return bits.view(torch.float64).clamp_(max=2.0**1023)


class Stochastic:
    """Rounds up or down by chance, so that the mean of many draws is unbiased."""

    def __init__(self, seed: int):
        self.seed, self.generators = seed, {}

    def __call__(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if x.dtype == dtype:
            return x
        near = nearest(x, dtype)
        if torch.equal(near, x):  # half of all results only move numbers: there is nothing to round
            return near
        wide = x.double()
        return torch.where(near == x, wide, self.slips(wide, dtype).add_(wide)).to(dtype).to(x.dtype)

    def slips(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """An error for each number of x, in float64, at most half a unit in the last place of dtype; 0 stays 0."""
        if x.device not in self.generators:
            self.generators[x.device] = torch.Generator(x.device).manual_seed(self.seed)
        noise = torch.rand(x.shape, generator=self.generators[x.device], device=x.device, dtype=torch.float64)
        return noise.sub_(0.5).mul_(power_of_two(x)).mul_(torch.finfo(dtype).eps)

    def alike(self, x: torch.Tensor, salt: int = 0, key: torch.Tensor | None = None) -> torch.Tensor:
        """Slips to float32 that depend on the number, or on a key, alone: an exponential errs the same way wherever it
        is taken, and a decay that all chunks share the same way in all of them, so that the errors add up."""
        wide = x.detach().double()
        slips = spread(wide if key is None else key, self.seed, salt)
        return slips.mul_(power_of_two(wide)).mul_(torch.finfo(torch.float32).eps)

    def approximate(self, x: torch.Tensor) -> torch.Tensor:
        """An exponential or the like, which a GPU gives to two units in the last place."""
        return x + 4 * self.alike(x).to(x.dtype) if x.is_floating_point() else x

    def cumsum(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """In float32, in whatever order a scan takes its terms. One after another, each partial sum is rounded and each
        later one inherits that, so that neighbours err together; what is lost there depends on the term and on the
        exponent of the sum, and adds up where terms are equal. By halves, each sum is rounded on its own, and so are
        its parts: two of half its size, four of a quarter, which together err as one more of the whole."""
        sums = x.double().cumsum(dim)
        lost = self.alike(sums, 0, key=x.detach().double() * power_of_two(sums))
        in_turn = torch.where(x == 0, 0.0, lost)
        by_halves = self.alike(sums, 1) + self.alike(sums, 2)
        return (sums + in_turn.cumsum(dim) + by_halves).float().to(x.dtype)


def spread(x: torch.Tensor, seed: int, salt: int) -> torch.Tensor:
    """From -0.5 to 0.5, made of the bits of x (float64), the seed and the salt, with no pattern in any of them."""
    bits = (x.view(torch.int64) ^ (16 * seed + salt + 1) * 0x2545F4914F6CDD1D % 2**62) * 0x2127599BF4325C37
    bits = (bits ^ (bits >> 29)) * 0x1B8735939E3779B9
    return ((bits ^ (bits >> 32)) & (2**52 - 1)).double().mul_(2.0**-52).sub_(0.5)


class SlippingSums:
    """Products and sums with the error of a float32 accumulator (float32_sums.py), the same one at every run."""

    def __init__(self, seed: int = 0):
        self.seed, self.generators = seed, {}
        self.terms: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __call__(self, func, args, kwargs) -> torch.Tensor:
        total = func(*args, **kwargs)
        if not total.is_floating_point():
            return total
        terms = product_terms(func, args) if func in DOTS else sum_terms(args[0], total)
        total = slipped(total, func(*squared(args), **kwargs), terms, self.noise(total))
        if func in DOTS:
            self.terms[total] = terms
        return total

    def add(self, func, args, kwargs) -> torch.Tensor:
        """A sum of two; a product among them is accumulated onto the other term by term."""
        total = func(*args, **kwargs)
        terms = max((self.terms.get(x, 0) for x in args if isinstance(x, torch.Tensor)), default=0)
        return accumulated(total, terms, self.noise(total)) if terms else total

    def noise(self, like: torch.Tensor) -> torch.Tensor:
        """Standard normal numbers of a tensor's shape."""
        if like.device not in self.generators:
            self.generators[like.device] = torch.Generator(like.device).manual_seed(self.seed)
        return torch.randn(like.shape, generator=self.generators[like.device], device=like.device, dtype=like.dtype)


class RoundedDots(TorchFunctionMode):
    """Rounds the floating-point operands of every matrix product to a dtype before it is taken; sums, cumulative ones
    too, lose what they lose term by term in the dtype that they have. To float32, exponentials and the like err as
    they do on a GPU (elsewhere that is nothing beside the rounding)."""

    def __init__(self, dtype: torch.dtype, rounding=nearest):
        super().__init__()
        self.dtype, self.rounding = dtype, rounding
        self.slips = rounding if isinstance(rounding, Stochastic) else Stochastic(0)
        self.sums = SlippingSums() if dtype == torch.float32 else None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in DOTS:
            args = tuple(self.operand(arg) for arg in args)
        if func in CUMSUMS:
            return self.slips.cumsum(*args, **kwargs)
        if self.sums is None:
            return func(*args, **kwargs)
        if func in ACCUMULATED:
            return self.sums(func, args, kwargs)
        if func in ADDS:
            return self.sums.add(func, args, kwargs)
        result = func(*args, **kwargs)
        return self.slips.approximate(result) if func in APPROXIMATED else result

    def operand(self, arg):
        if isinstance(arg, (list, tuple)):
            return type(arg)(self.operand(each) for each in arg)
        if isinstance(arg, torch.Tensor) and arg.is_floating_point():
            return self.rounding(arg, self.dtype)
        return arg


class RoundedResults(TorchFunctionMode):
    """Float32 arithmetic by chance: all in float64, each result rounded to float32 up or down.

    A product is taken in float32, of operands that moved by chance in their last place: that stands for the rounding
    of its terms, and makes its own sums err differently each time. Exponentials and their like err by up to two units
    in the last place, as on a GPU.
    """

    def __init__(self, rounding: Stochastic):
        super().__init__()
        self.rounding, self.sums = rounding, SlippingSums(rounding.seed)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in CUMSUMS:
            return self.rounding.cumsum(*args, **kwargs)
        if func in ACCUMULATED:
            return self.sums(func, args, kwargs)
        if func in ADDS:
            return self.rounding(self.sums.add(func, args, kwargs), torch.float32)
        if func in PRODUCTS:
            return func(*map(self.moved, args), **kwargs).double()
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor) or result.dtype != torch.float64 or is_view(result, args):
            return result
        if func in APPROXIMATED:
            result = self.rounding.approximate(result)
        return self.rounding(result, torch.float32)

    def moved(self, arg):
        if isinstance(arg, (list, tuple)):
            return type(arg)(map(self.moved, arg))
        if isinstance(arg, torch.Tensor) and arg.dtype == torch.float64:
            return (arg + 2 * self.rounding.slips(arg, torch.float32)).float()
        return arg


def is_view(result: torch.Tensor, args) -> bool:
    start = result.untyped_storage().data_ptr()
    return any(isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() == start for x in args)
