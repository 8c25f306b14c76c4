"""What the value heads of each key head give, added up."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n", "group"])
def group_sums_kernel(parts, total, n, group, K: tl.constexpr, BLOCK: tl.constexpr):
    """total [n / K, K] = the sum in order of parts [n / K, group, K] over the group, in float32, rounded once."""
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    p = (o // K) * (group * K) + o % K
    b = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(group):
        b += tl.load(parts + p + i * K, mask=m, other=0.0).to(tl.float32)
    tl.store(total + o, b.to(total.dtype.element_ty), mask=m)
