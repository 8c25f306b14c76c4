"""A term as source text: the same lines over tensors (stages/_maps.py) and over tiles (kernels/_maps.py)."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .terms import OPERATORS, Apply, Number, Scalar, Tensor, Term, number_text, tensors, walk

LOOSEST, SUM, PRODUCT, SIGN, TIGHT = range(5)
LONG = 70
"""Characters of a part that shares its line with others."""

LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "negative": SIGN}


@dataclass(frozen=True)
class Writer:
    """spoken: what an operand is called. module: what functions stand under."""

    spoken: Callable[[str], str]
    module: str = "_maps."

    def lines(self, terms: Mapping[str, Term]) -> list[str]:
        """``name = term`` for every term; parts that are used more than once, and parts of what would be too long a
        line, get a line of their own first."""
        uses = Counter(each for part in walk_all(terms.values()) if isinstance(part, Apply) for each in part.args)
        uses.update(terms.values())
        named: dict[Term, str] = {}
        lines = []
        for part in walk_all(terms.values()):
            if not isinstance(part, Apply):
                continue
            text = self.text(part, named)
            if uses[part] > 1 or len(text) > LONG:
                named[part] = f"t{len(named)}"
                lines.append(f"{named[part]} = {text}")
        return [*lines, *(f"{name} = {self.text(term, named)}" for name, term in terms.items())]

    def text(self, term: Term, named: Mapping[Term, str], level: int = LOOSEST) -> str:
        if term in named:
            return named[term]
        match term:
            case Number(value=value):
                return f"({number_text(value)})" if value < 0 and level > SUM else number_text(value)
            case Tensor(name=name):
                return self.spoken(name)
            case Scalar(name=name):
                return name
            case Apply(function=function, args=args):
                text, own = self.applied(function, args, named)
                return f"({text})" if own < level else text
        raise TypeError(f"not a term: {term!r}")

    def applied(self, function: str, args: tuple[Term, ...], named) -> tuple[str, int]:
        """(text, how tightly it binds)."""
        if function == "negative":
            return f"-{self.text(args[0], named, SIGN)}", SIGN
        if function in OPERATORS:
            own = LEVELS.get(function, LOOSEST)
            left, right = self.text(args[0], named, own or SUM), self.text(args[1], named, own + 1)
            return f"{left} {function} {right}", own
        return f"{self.module}{function}({', '.join(self.argument(each, args, named) for each in args)})", TIGHT

    def argument(self, term: Term, args: tuple[Term, ...], named) -> str:
        """A number among numbers takes its dtype from some operand of the call."""
        text = self.text(term, named)
        values = args[1:] if len(args) == 3 else args
        if term in values and len(values) > 1 and not any(tensors(each) for each in values):
            like = next(iter(tensors(*args)), None)
            return f"{self.module}full({text}, {self.spoken(like)})" if like else text
        return text


def walk_all(terms) -> list[Term]:
    return list(dict.fromkeys(part for term in terms for part in walk(term)))
