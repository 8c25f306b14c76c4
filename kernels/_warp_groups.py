"""What groups of warps in one program share: slots in shared memory, and barriers by which one waits for another."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from ._barrier import barrier

SLOTS = gl.constexpr(3)
"""Chunks in shared memory at once."""


@gluon.jit
def next_slot(slot, phase):
    """The slot after this one, and the phase of its barriers."""
    last = slot == SLOTS - 1
    return gl.where(last, 0, slot + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def publish(filled):
    """What the group's threads have written to shared memory is there for those who wait for ``filled``."""
    fence_async_shared()
    barrier()
    mbarrier.arrive(filled, count=1)


@gluon.jit
def row_offsets(C: gl.constexpr, D: gl.constexpr, stride, n, N: gl.constexpr = 8):
    """Offsets of a tile of n rows, ``stride`` apart, N numbers (16 bytes) a thread; past them the last row's again."""
    L: gl.constexpr = gl.BlockedLayout([1, N], [32 * N // D, D // N], [4, 1], [1, 0])
    o_r = gl.minimum(gl.arange(0, C, gl.SliceLayout(1, L)), n - 1)
    return o_r[:, None] * stride + gl.arange(0, D, gl.SliceLayout(0, L))[None, :]


@gluon.jit
def barriers(N: gl.constexpr, count: gl.constexpr):
    """N barriers in shared memory, each of so many arrivals."""
    found = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(found.index(i), count=count)
    return found
