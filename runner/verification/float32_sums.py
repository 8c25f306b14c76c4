"""What float32 loses when a long sum is taken term by term, as a kernel's accumulator takes it.

A partial sum s_k is rounded by up to half a unit in the last place, so n of them slip together by
2^-24 sqrt(sum of s_k^2 / 3). For n terms with squares summing to Q and total S that is estimated, from terms of
random sign to terms of one sign, as 2^-24 sqrt(n) sqrt(Q / 6 + S^2 / 9). A library splits its sums and loses less;
which split it takes is no property of the mathematics, so the model does not rest on it. But no kernel adds millions
of terms one after another: past LONGEST terms a sum is one of partial sums.
"""

import torch

ROUNDOFF = 2.0**-24
LONGEST = 2**14
"""Terms that one accumulator takes."""


def slipped(total: torch.Tensor, squares: torch.Tensor, terms: int, noise: torch.Tensor) -> torch.Tensor:
    """total with an error of that size: squares, the sum of the squared terms; noise, standard normal."""
    in_turn = terms if terms <= LONGEST else LONGEST + terms / LONGEST
    variance = squares / 6 + total.square() / 9
    some = variance != 0  # the root has no slope at 0, where autograd would make nan of it
    size = variance.where(some, 1).sqrt().where(some, 0)
    return total + ROUNDOFF * in_turn**0.5 * size * noise


def accumulated(total: torch.Tensor, terms: int, noise: torch.Tensor) -> torch.Tensor:
    """A product of that many terms added to what was there: each partial sum is about as large as the total."""
    return total + ROUNDOFF * (terms / 3) ** 0.5 * total.abs() * noise


def squared(args):
    """The arguments of a product or sum with every floating-point tensor squared: its result is the sum of squares."""
    return tuple(
        arg.square() if isinstance(arg, torch.Tensor) and arg.is_floating_point()
        else type(arg)(squared(arg)) if isinstance(arg, (list, tuple)) else arg
        for arg in args
    )  # fmt: skip


def product_terms(func, args) -> int:
    """How many terms each sum of a matrix product has."""
    if func is torch.einsum:
        return einsum_terms(args[0], args[1:] if isinstance(args[1], torch.Tensor) else args[1])
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return tensors[-2].shape[-1]


def einsum_terms(equation: str, operands) -> int:
    """The product of the sizes of the indices that the result does not have."""
    left, _, right = equation.replace(" ", "").partition("->")
    sizes = {index: n for names, x in zip(left.split(","), operands) for index, n in zip(names, x.shape)}
    terms = 1
    for index, n in sizes.items():
        terms *= n if index not in right else 1
    return terms


def sum_terms(x: torch.Tensor, total: torch.Tensor) -> int:
    return max(1, x.numel() // max(1, total.numel()))
