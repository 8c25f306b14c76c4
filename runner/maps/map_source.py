"""The two texts that an expression becomes: functions over tensors, and Triton kernels. One body, printed twice."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .gradients import gradients
from .layout import Layout
from .terms import Tensor, Term, scalars, tensors
from .write_source import Writer, row_place, spread

D = "d_y"
INDENT = "    "


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

    # --- over tensors

    def functions(self, reference: str = "reference", vjp: str = "vjp") -> str:
        """reference and vjp as the text of two functions; ``maps`` is stages/_maps.py."""
        named = f", *, {', '.join(self.scalars)}" if self.scalars else ""
        head = [f"def {reference}({', '.join(self.layout.has)}{named}):", *self.docstring(f"y = {self.text}")]
        body = Writer(self.at_result).lines({"y": self.term})
        last = [f'return {{"y": {body.pop().removeprefix("y = ")}}}']
        return "\n".join([*head, *indented([*body, *last]), "", "", *self.vjp_lines(vjp)])

    def vjp_lines(self, vjp: str) -> list[str]:
        keywords = ", ".join(["needs", *self.vjp_scalars])
        lines = [f"def {vjp}({', '.join(self.read_by_vjp)}, *, {keywords}):", *self.docstring("The gradients of y.")]
        lines += indented(Writer(self.at_result).lines({f"d_{name}": term for name, term in self.gradients.items()}))
        found = ", ".join(f'"{name}": d_{name}{self.summed(name)}' for name in self.layout.has)
        return [*lines, *indented([f"found = {{{found}}}", "return {name: found[name] for name in found if name in needs}"])]

    def at_result(self, name: str) -> str:
        return name if name == D else name + spread(self.layout, name)

    def summed(self, name: str) -> str:
        missing = self.layout.missing(name)
        return f".sum({missing})" if missing else ""

    # --- over tiles

    def kernels(self, forward: str = "map_kernel", backward: str = "map_vjp_kernel") -> str:
        """Both kernels as the text of two functions; ``maps`` is kernels/_maps.py."""
        return "\n".join([*self.forward_kernel(forward), "", "", *self.vjp_kernel(backward)])

    def forward_kernel(self, name: str) -> list[str]:
        numbers = [*self.scalars, "rows", "cols", *self.sizes]
        body = ["o_r, o_c = maps.tile(cols, BR, BC)", "m = (o_r < rows) & (o_c < cols)", *self.loads(self.layout.has)]
        body += Writer(tile).lines({"b_y": self.term})
        body.append("tl.store(y + (o_r * cols + o_c), b_y, mask=m)")
        return [*self.header(name, [*self.layout.has, "y"], numbers), *self.docstring(f"y = {self.text}"), *indented(body)]

    def vjp_kernel(self, name: str) -> list[str]:
        """Gradients as wide as the result are stored, the others summed over the columns that their operand lacks, or
        stored as terms for the sums that follow."""
        reduced = self.layout.reduced
        by_row = [each for each in reduced if not self.layout.has[each][-1]]
        targets = [f"{'sum' if each in reduced else 'd'}_{each}" for each in self.layout.has]
        numbers = [*self.vjp_scalars, "rows", "cols", *self.sizes]
        numbers += ["ends", "N", "inner", "length"] if reduced else []
        lines = self.header(name, [*self.read_by_vjp, *targets], numbers)
        lines += self.docstring("The gradients of y, their sums left to other kernels.")
        if not by_row:
            return [*lines, *indented(["o_r, o_c = maps.tile(cols, BR, BC)", *self.vjp_body(by_row)])]
        body = ["o_r = maps.row_tile(BR)", *(f"b_sum_{each} = tl.zeros([BR, 1], tl.float32)" for each in by_row)]
        body += ["for i_c in range(0, cols, BC):"]
        body += indented(["o_c = (i_c + tl.arange(0, BC)).to(tl.int64)[None, :]", *self.vjp_body(by_row)])
        for each in by_row:
            body += [f"if sum_{each} is not None:", f"{INDENT}tl.store(sum_{each} + o_r, b_sum_{each}, mask=o_r < rows)"]
        return [*lines, *indented(body)]

    def vjp_body(self, by_row: list[str]) -> list[str]:
        body = ["m = (o_r < rows) & (o_c < cols)", *self.loads(self.read_by_vjp)]
        body += Writer(tile).lines({f"b_d_{name}": term for name, term in self.gradients.items()})
        if self.layout.reduced:
            body.append("m_sum = m & maps.before_end(o_r * cols + o_c, ends, N, inner, length)")
        for name in self.layout.has:
            if name in by_row:
                body.append(f"b_sum_{name} += tl.sum(tl.where(m_sum, b_d_{name}, 0.0), axis=1, keep_dims=True)")
                continue
            target, value = f"d_{name}", f"b_d_{name}"
            if name in self.layout.reduced:
                target, value = f"sum_{name}", f"tl.where(m_sum, b_d_{name}, 0.0)"
            body += [f"if {target} is not None:", f"{INDENT}tl.store({target} + (o_r * cols + o_c), {value}, mask=m)"]
        return body

    def loads(self, names) -> list[str]:
        lines = []
        for name in names:
            has = self.layout.has.get(name, (True,))
            place = row_place(self.layout, name) if name in self.layout.has else "o_r * cols + o_c"
            mask = "m" if has[-1] and any(has[:-1]) or len(has) == 1 else "o_c < cols" if has[-1] else "o_r < rows"
            lines.append(f"{tile(name)} = tl.load({name} + ({place}), mask={mask}, other=0.0).to(tl.float32)")
        return lines

    @property
    def sizes(self) -> list[str]:
        return [f"n{at}" for at in range(1, len(self.layout.segments) - 1)]

    def header(self, name: str, pointers: list[str], numbers: list[str]) -> list[str]:
        fixed = ", ".join(f'"{each}"' for each in numbers if each != "ends")
        parameters = ", ".join([*pointers, *numbers, "BR: tl.constexpr", "BC: tl.constexpr"])
        return [f"@triton.jit(do_not_specialize=[{fixed}])", f"def {name}({parameters}):"]

    def docstring(self, text: str) -> list[str]:
        text = text.replace("\\", "\\\\").replace('"""', "'''")
        return textwrap.wrap(f'"""{text}"""', 110, initial_indent=INDENT, subsequent_indent=INDENT)


def tile(name: str) -> str:
    return f"b_{name}"


def indented(lines: list[str]) -> list[str]:
    return [f"{INDENT}{line}" for line in lines]
