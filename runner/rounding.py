"""The rounding model M: what an honest kernel in the op's dtype may lose, and no more.

Stage references in float32 arithmetic; the operands of every dot rounded to the op's dtype; float32 sums;
every port rounded to its contract dtype. Gates, exponentials, the inverse and the running state stay float32.
"""

import torch
from torch.overrides import TorchFunctionMode

RHO = {torch.bfloat16: 1.7e-3, torch.float16: 2.1e-4, torch.float32: 2.6e-8}
"""Relative L2 error of rounding alone, by IO dtype."""

DOTS = {
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, torch.mm, torch.Tensor.mm,
    torch.bmm, torch.Tensor.bmm, torch.mv, torch.Tensor.mv, torch.dot, torch.einsum, torch.tensordot,
    torch.baddbmm, torch.addmm, torch.nn.functional.linear,
}  # fmt: skip

CUMSUMS = {torch.cumsum, torch.Tensor.cumsum}


def nearest(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).to(x.dtype)


class Stochastic:
    """Rounds up or down by chance, so that the mean of many draws is unbiased."""

    def __init__(self, seed: int):
        self.seed, self.generators = seed, {}

    def __call__(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if x.device not in self.generators:
            self.generators[x.device] = torch.Generator(x.device).manual_seed(self.seed)
        noise = torch.rand(x.shape, generator=self.generators[x.device], device=x.device, dtype=torch.float64)
        wide = x.double()
        _, exponent = torch.frexp(wide)
        ulp = torch.ldexp(torch.full_like(wide, torch.finfo(dtype).eps), exponent - 1)
        return torch.where(wide == 0, wide, wide + (noise - 0.5) * ulp).to(dtype).to(x.dtype)


def cumsum_in_order(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Term by term in x's dtype: PyTorch's own keeps a wider sum on the CPU, which no kernel has."""
    total, sums = torch.zeros_like(x.select(dim, 0)) if x.shape[dim] else None, []
    for row in x.unbind(dim):
        total = total + row
        sums.append(total)
    return torch.stack(sums, dim) if sums else x.clone()


class RoundedDots(TorchFunctionMode):
    """Rounds the floating-point operands of every matrix product to a dtype before it is taken, and keeps
    cumulative sums in the dtype that they have."""

    def __init__(self, dtype: torch.dtype, rounding=nearest):
        super().__init__()
        self.dtype, self.rounding = dtype, rounding

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in DOTS:
            args = tuple(self.operand(arg) for arg in args)
        if func in CUMSUMS:
            return cumsum_in_order(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def operand(self, arg):
        if isinstance(arg, (list, tuple)):
            return type(arg)(self.operand(each) for each in arg)
        if isinstance(arg, torch.Tensor) and arg.is_floating_point():
            return self.rounding(arg, self.dtype)
        return arg
