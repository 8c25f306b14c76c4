"""What a chunk's values take of their gradients, a quarter of the rows at a time: by warps that have few registers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def row_lanes(P, V):
    """Layout of P rows on four warps, 8 columns to a thread."""
    return gl.BlockedLayout([1, 8], [256 // V, V // 8], [4, 1], [1, 0])


@gluon.jit
def load_quarter(v, n, HV, p: gl.constexpr, P: gl.constexpr, V: gl.constexpr):
    """The p-th P rows of a chunk's n, past them the last one again."""
    L: gl.constexpr = row_lanes(P, V)
    o_r = gl.minimum(p * P + gl.arange(0, P, gl.SliceLayout(1, L)), n - 1)
    return gl.load(v + (o_r[:, None] * (HV * V) + gl.arange(0, V, gl.SliceLayout(0, L))[None, :]))


@gluon.jit
def load_values(v, n, HV, V: gl.constexpr, C: gl.constexpr):
    """A chunk's values in four quarters, all on their way; past its n rows the last one again."""
    P: gl.constexpr = C // 4
    return (
        load_quarter(v, n, HV, 0, P, V),
        load_quarter(v, n, HV, 1, P, V),
        load_quarter(v, n, HV, 2, P, V),
        load_quarter(v, n, HV, 3, P, V),
    )


@gluon.jit
def store_quarter(s_dx, s_beta, s_rows, b_v, d_v, row, n, HV, p: gl.constexpr, VALUES: gl.constexpr):
    """Of those rows d_v = beta d_x, and <d_x, v> to s_rows."""
    P: gl.constexpr = s_dx.shape[0] // 4
    V: gl.constexpr = s_dx.shape[1]
    L: gl.constexpr = row_lanes(P, V)
    o_r = p * P + gl.arange(0, P, gl.SliceLayout(1, L))
    b_dx = s_dx.slice(p * P, P, dim=0).load(L).to(gl.float32)
    if VALUES:
        s_rows.slice(p * P, P).store(gl.sum(b_dx * b_v.to(gl.float32), axis=1))
    if d_v is not None:
        b_dv = b_dx * s_beta.slice(p * P, P).load(gl.SliceLayout(1, L))[:, None]
        o_v = o_r[:, None] * (HV * V) + gl.arange(0, V, gl.SliceLayout(0, L))[None, :]
        gl.store(d_v + row * V + o_v, b_dv.to(d_v.dtype.element_ty), mask=(o_r < n)[:, None])


@gluon.jit
def store_values(s_dx, s_beta, s_rows, b_v, d_v, row, n, HV, VALUES: gl.constexpr):
    """d_v = beta d_x from row on and, with VALUES, <d_x, v> of each row to s_rows."""
    for p in gl.static_range(4):
        store_quarter(s_dx, s_beta, s_rows, b_v[p], d_v, row, n, HV, p, VALUES)
