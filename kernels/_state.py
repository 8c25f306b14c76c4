"""A tile of a float32 matrix, such as a state, between memory and registers."""

import triton
import triton.language as tl


@triton.jit
def load_tile(x, p, o_r, o_c, R, C):
    """Rows o_r and columns o_c of the matrix [R, C] at offset p of x; zeros beyond its edges and where x is None."""
    if x is not None:
        m = (o_r < R)[:, None] & (o_c < C)[None, :]
        b_x = tl.load(x + p + o_r[:, None] * C + o_c[None, :], mask=m, other=0.0)
    else:
        b_x = tl.zeros([o_r.shape[0], o_c.shape[0]], dtype=tl.float32)
    return b_x


@triton.jit
def store_tile(x, p, b_x, o_r, o_c, R, C):
    m = (o_r < R)[:, None] & (o_c < C)[None, :]
    tl.store(x + p + o_r[:, None] * C + o_c[None, :], b_x, mask=m)
