"""Sum of partial results in a fixed order."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n"])
def sum_parts_kernel(parts, total, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """total[i] = parts[0, i] + parts[1, i] + ..., for parts [PARTS or more, n] in float32."""
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    b = tl.zeros([BLOCK], dtype=tl.float32)
    for i in tl.static_range(PARTS):
        b += tl.load(parts + i * n.to(tl.int64) + o, mask=o < n, other=0.0)
    tl.store(total + o, b, mask=o < n)
