"""An expression over tiles: the text of its two Triton kernels. ``_maps`` in it is kernels/_maps.py.

Results and operands are matrices of rows and columns (layout.py). A gradient as wide as the result is stored. That of
an operand without the columns is summed over them, by programs that take whole rows; what else it is to be summed
over is left to the kernels of stages/_middle_sums.py, which read it in float32.
"""

from collections.abc import Iterable

from ..exporting.python_text import call
from .layout import Layout
from .map_source import INDENT, D, MapSource, docstring, indented
from .write_source import Writer

WHOLE = "(o_r * cols + o_c)"
TAIL = ("ends", "N", "inner", "length")


def kernel_source(source: MapSource, forward: str = "map_kernel", backward: str = "map_vjp_kernel") -> str:
    """The two kernels, under these names."""
    return "\n".join([*forward_lines(source, forward), "", "", *backward_lines(source, backward), ""])


def forward_lines(source: MapSource, name: str) -> list[str]:
    operands = list(source.layout.has)
    body = [
        "o_r, o_c = _maps.tile(cols, BR, BC)",
        "m = (o_r < rows) & (o_c < cols)",
        *loads(source.layout, operands),
        *Writer(tile).lines({"b_y": source.term}),
        f"tl.store(y + {whole(source.layout)}, b_y, mask=m)",
    ]
    head = header(source.layout, name, [*operands, "y"], source.scalars)
    return [*head, *docstring(f"y = {source.text}"), *indented(body)]


def backward_lines(source: MapSource, name: str) -> list[str]:
    layout = source.layout
    by_row = [each for each in layout.reduced if not layout.has[each][-1]]
    targets = [f"{'sum' if each in layout.reduced else 'd'}_{each}" for each in layout.has]
    head = header(layout, name, [*source.read_by_vjp, *targets], source.vjp_scalars, TAIL if layout.reduced else ())
    head += docstring("The gradients of y by what it is made of, or what these are sums of.")
    if not by_row:
        return [*head, *indented(["o_r, o_c = _maps.tile(cols, BR, BC)", *gradient_lines(source, by_row)])]
    body = ["o_r = _maps.row_tile(BR)", *(f"b_sum_{each} = tl.zeros([BR, 1], tl.float32)" for each in by_row)]
    body += ["for i_c in range(0, cols, BC):", f"{INDENT}o_c = (i_c + tl.arange(0, BC)).to(tl.int64)[None, :]"]
    body += indented(gradient_lines(source, by_row))
    for each in by_row:
        body += stored(f"sum_{each}", "o_r", f"b_sum_{each}", "o_r < rows")
    return [*head, *indented(body)]


def gradient_lines(source: MapSource, by_row: list[str]) -> list[str]:
    """One tile: operands loaded, gradients computed, and stored or added to their rows' sums."""
    lines = ["m = (o_r < rows) & (o_c < cols)", *loads(source.layout, source.read_by_vjp)]
    lines += Writer(tile).lines({f"b_d_{name}": term for name, term in source.gradients.items()})
    if source.layout.reduced:
        lines.append(f"m_sum = m & _maps.before_end{WHOLE[:-1]}, ends, N, inner, length)")
    for name in source.layout.has:
        counted = f"tl.where(m_sum, b_d_{name}, 0.0)"
        if name in by_row:
            lines.append(f"b_sum_{name} += tl.sum({counted}, axis=1, keep_dims=True)")
        elif name in source.layout.reduced:
            lines += stored(f"sum_{name}", WHOLE, counted, "m")
        else:
            lines += stored(f"d_{name}", whole(source.layout), f"b_d_{name}", "m")
    return lines


def stored(target: str, place: str, value: str, mask: str) -> list[str]:
    """A gradient that nobody asked for is None."""
    return [f"if {target} is not None:", f"{INDENT}tl.store({target} + {place}, {value}, mask={mask})"]


def header(layout: Layout, name: str, pointers: list[str], scalars: Iterable[str], tail=()) -> list[str]:
    """Sizes are those of rows and columns, and of the segments that a row's number is taken apart into."""
    numbers = [*scalars, "rows", "cols", *(f"n{at}" for at in range(1, len(layout.segments) - 1)), *tail]
    blocks = ["BR: tl.constexpr", "BC: tl.constexpr"]
    if layout.fixed_columns:
        numbers.remove("cols")
        blocks.insert(0, "cols: tl.constexpr")
    fixed = ", ".join(f'"{each}"' for each in numbers if each != "ends")
    lines = call("@triton.jit(", [f"do_not_specialize=[{fixed}]"], ")", "")
    return [*lines, *call(f"def {name}(", [*pointers, *numbers, *blocks], "):", "")]


def whole(layout: Layout) -> str:
    """The place of a number of the result; a result that is one row has it in its column alone."""
    return WHOLE if len(layout.segments) > 1 else "o_c"


def loads(layout: Layout, names: Iterable[str]) -> list[str]:
    lines = []
    for name in names:
        place, mask = (whole(layout), "m") if name == D else place_of(layout, name)
        lines.append(f"{tile(name)} = tl.load({name} + {place}, mask={mask}, other=0.0).to(tl.float32)")
    return lines


def tile(name: str) -> str:
    return f"b_{name}"


def place_of(layout: Layout, operand: str) -> tuple[str, str]:
    """(an operand's place in memory at rows o_r and columns o_c, the mask of a load from there)."""
    *rows, columns = layout.has[operand]
    if all(rows) and columns:
        return whole(layout), "m"
    if not any(rows):
        return "o_c", "o_c < cols"
    place = row_number(rows)
    return (f"({place} * cols + o_c)", "m") if columns else (place, "o_r < rows")


def row_number(rows: list[bool]) -> str:
    """The row number of an operand that has some of the segments that make up the rows."""
    if all(rows):
        return "o_r"
    kept = [at for at, there in enumerate(rows) if there]
    terms = []
    for at in kept:
        inner = "".join(f" // n{each}" for each in reversed(range(at + 1, len(rows))))
        stride = "".join(f" * n{each}" for each in kept if each > at)
        number = f"o_r{inner}" + (f" % n{at}" if at else "")
        terms.append(f"({number}){stride}" if stride else f"({number})")
    return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]
