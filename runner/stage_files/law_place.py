"""Whether a value law can be said of a tensor with these axes and this dtype."""

from collections.abc import Sequence

from ...stages._contract import INT, Q8
from ...stages._laws import ROWS, Law


def misplaced(law: Law, axes: Sequence[str], dtype: str) -> str | None:
    """What is wrong with the law there; None if it fits. axes: names, sizes as text."""
    shape = " ".join(axes)
    if law.kind == "interval":
        return None
    if law.kind in ("slots", *ROWS):
        if dtype != INT:
            return f"{law.text} speaks of row numbers, and the dtype is {dtype}"
        return f"{law.text} is a list's, and the shape is {shape}" if law.kind == "slots" and len(axes) != 1 else None
    if dtype in (INT, Q8):
        return f"{law.text} speaks of real numbers, and the dtype is {dtype}"
    return f"{law.text} speaks of {law.axis}, and the shape is {shape}" if law.axis not in axes else None
