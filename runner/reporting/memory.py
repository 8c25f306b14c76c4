"""Whether an exception says that there is no memory left."""

import re

CPU = re.compile("can't allocate memory|not enough memory|Storage size calculation overflowed")
"""What PyTorch says on a CPU, where it raises a plain RuntimeError."""


def out_of_memory(error: BaseException) -> bool:
    return type(error).__name__ in ("OutOfMemoryError", "MemoryError") or bool(CPU.search(str(error)))
