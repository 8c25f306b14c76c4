"""A term as source text: the same lines over tensors (stages/_maps.py) and over tiles (kernels/_maps.py)."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .layout import Layout
from .terms import OPERATORS, Apply, Number, Scalar, Tensor, Term, number_text, tensors, walk

LOOSEST, SUM, PRODUCT, SIGN, TIGHT = range(5)
LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "negative": SIGN}


@dataclass(frozen=True)
class Writer:
    """spoken: what an operand is called. module: what functions stand under."""

    spoken: Callable[[str], str]
    module: str = "maps."

    def lines(self, terms: Mapping[str, Term]) -> list[str]:
        """``name = term`` for every term; parts that are used more than once get a line of their own first."""
        uses = Counter(each for part in walk_all(terms.values()) if isinstance(part, Apply) for each in part.args)
        uses.update(terms.values())
        named: dict[Term, str] = {}
        lines = []
        for part in walk_all(terms.values()):
            if isinstance(part, Apply) and uses[part] > 1:
                text = self.text(part, named)
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


def spread(layout: Layout, operand: str) -> str:
    """How a tensor is indexed to line up with the result: ``[None, None, :]``, or nothing."""
    missing = set(layout.missing(operand))
    if not missing:
        return ""
    return f"[{', '.join('None' if place in missing else ':' for place in range(len(layout.axes)))}]"


def row_place(layout: Layout, operand: str) -> str:
    """The operand's place in memory at rows o_r and columns o_c."""
    has = layout.has[operand]
    rows, last = list(has[:-1]), has[-1]
    place = row_number(rows)
    if not last:
        return place or "0 * o_r"
    return f"{place} * cols + o_c" if place else "o_c"


def row_number(rows: list[bool]) -> str:
    """The row number of an operand that has some of the segments that make up the rows."""
    if all(rows):
        return "o_r" if rows else ""
    kept = [at for at, there in enumerate(rows) if there]
    terms = []
    for at in kept:
        inner = "".join(f" // n{each}" for each in reversed(range(at + 1, len(rows))))
        stride = "".join(f" * n{each}" for each in kept if each > at)
        number = f"o_r{inner}" + (f" % n{at}" if at else "")
        terms.append(f"({number}){stride}" if stride else f"({number})")
    return f"({' + '.join(terms)})" if len(terms) > 1 else "".join(terms)
