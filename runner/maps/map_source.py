"""What an expression's two texts are made from: its term, its operands' layout, and its gradients."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..exporting.python_text import INDENT, WIDTH
from .gradients import gradients
from .layout import Layout
from .terms import Tensor, Term, scalars, tensors

D = "d_y"


@dataclass(frozen=True)
class MapSource:
    """text: the expression as written. term: over ports. layout: of its operands. scalars: names, in order."""

    text: str
    term: Term
    layout: Layout
    scalars: tuple[str, ...]

    @cached_property
    def gradients(self) -> Mapping[str, Term]:
        """Operand -> its gradient before any sum, in the order of the operands."""
        found = gradients(self.term, Tensor(D))
        return {name: found[name] for name in self.layout.has}

    @property
    def read_by_vjp(self) -> list[str]:
        """d_y, then the operands that some gradient reads."""
        read = tensors(*self.gradients.values())
        return [D, *(name for name in self.layout.has if name in read)]

    @property
    def vjp_scalars(self) -> list[str]:
        used = scalars(*self.gradients.values())
        return [name for name in self.scalars if name in used]


def docstring(text: str) -> list[str]:
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.wrap(f'"""{text}"""', WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)


def indented(lines: list[str]) -> list[str]:
    return [f"{INDENT}{line}" for line in lines]
