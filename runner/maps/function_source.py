"""An expression over tensors: the text of its reference and of its vjp. ``maps`` in it is stages/_maps.py."""

from ..exporting.python_text import WIDTH, call
from .map_source import INDENT, D, MapSource, docstring, indented
from .write_source import Writer, spread


def function_source(source: MapSource, reference: str = "reference", vjp: str = "vjp") -> str:
    """The two functions, under these names."""
    return "\n".join([*reference_lines(source, reference), "", "", *vjp_lines(source, vjp), ""])


def reference_lines(source: MapSource, name: str) -> list[str]:
    keywords = ["*", *source.scalars] if source.scalars else []
    head = call(f"def {name}(", [*source.layout.has, *keywords], "):", "")
    body = Writer(at_result(source)).lines({"y": source.term})
    return [*head, *docstring(f"y = {source.text}"), *indented([*body, 'return {"y": y}'])]


def vjp_lines(source: MapSource, name: str) -> list[str]:
    head = call(f"def {name}(", [*source.read_by_vjp, "*", "needs", *source.vjp_scalars], "):", "")
    terms = {f"d_{name}": term for name, term in source.gradients.items()}
    items = [f'"{each}": d_{each}{summed(source, each)}' for each in source.layout.has]
    return [
        *head,
        *docstring("The gradients of y by what it is made of."),
        *indented(Writer(at_result(source)).lines(terms)),
        *indented(dictionary("found", items)),
        *indented(["return {name: found[name] for name in found if name in needs}"]),
    ]


def at_result(source: MapSource):
    """How an operand is written where it lines up with the result."""
    return lambda name: name if name == D else name + spread(source.layout, name)


def summed(source: MapSource, name: str) -> str:
    missing = source.layout.missing(name)
    return f".sum({missing})" if missing else ""


def dictionary(name: str, items: list[str]) -> list[str]:
    line = f"{name} = {{{', '.join(items)}}}"
    if len(INDENT + line) <= WIDTH:
        return [line]
    return [f"{name} = {{", *(f"{INDENT}{each}," for each in items), "}"]
