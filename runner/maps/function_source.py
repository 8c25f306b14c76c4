"""An expression over tensors: the text of its reference and of its vjp. ``_maps`` in it is stages/_maps.py."""

from collections.abc import Iterable

from ..exporting.python_text import WIDTH, call
from .map_source import INDENT, MapSource, docstring, indented
from .write_source import Writer


def function_source(source: MapSource, reference: str = "reference", vjp: str = "vjp") -> str:
    """The two functions, under these names."""
    return "\n".join([*reference_lines(source, reference), "", "", *vjp_lines(source, vjp), ""])


def reference_lines(source: MapSource, name: str) -> list[str]:
    keywords = ["*", *source.scalars] if source.scalars else []
    head = call(f"def {name}(", [*source.layout.has, *keywords], "):", "")
    body = [*spread_lines(source, source.layout.has), *Writer(str).lines({"y": source.term}), 'return {"y": y}']
    return [*head, *docstring(f"y = {source.text}"), *indented(body)]


def vjp_lines(source: MapSource, name: str) -> list[str]:
    head = call(f"def {name}(", [*source.read_by_vjp, "*", "needs", *source.vjp_scalars], "):", "")
    terms = {f"d_{name}": term for name, term in source.gradients.items()}
    items = [f'"{each}": d_{each}{summed(source, each)}' for each in source.layout.has]
    return [
        *head,
        *docstring("The gradients of y by what it is made of."),
        *indented(spread_lines(source, source.read_by_vjp)),
        *indented(Writer(str).lines(terms)),
        *indented(dictionary("found", items)),
        *indented(["return {name: found[name] for name in found if name in needs}"]),
    ]


def spread_lines(source: MapSource, names: Iterable[str]) -> list[str]:
    """Operands that lack some of the result's axes, lined up with it."""
    layout, lines = source.layout, []
    for name in names:
        if name in layout.reduced:
            missing = set(layout.missing(name))
            places = ("None" if place in missing else ":" for place in range(len(layout.axes)))
            lines.append(f"{name} = {name}[{', '.join(places)}]")
    return lines


def summed(source: MapSource, name: str) -> str:
    missing = source.layout.missing(name)
    return f".sum({missing})" if missing else ""


def dictionary(name: str, items: list[str]) -> list[str]:
    line = f"{name} = {{{', '.join(items)}}}"
    if len(INDENT + line) <= WIDTH:
        return [line]
    return [f"{name} = {{", *(f"{INDENT}{each}," for each in items), "}"]
