"""Tile sizes that follow from a stage's axes and dtype, and from what a device holds on chip."""

SHARED_MEMORY = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}
"""Device class -> bytes of shared memory that one block may use."""


def shared_memory(device):
    """Of another device, the interpreter's too, as much as any here has: its compiler says what it lacks."""
    return SHARED_MEMORY.get(device, max(SHARED_MEMORY.values()))


def padded(size):
    """The least tile that holds the axis whole: a power of two of 16 or more, as a dot wants it."""
    return max(16, 1 << (size - 1).bit_length())


def whole(size, dtype):
    """The least tile that holds the axis whole; 64 columns in 16 bits, as in by_dtype."""
    return padded(size) if dtype.itemsize == 4 else max(64, padded(size))


def by_dtype(config, name, dtype, size=None):
    """``config[name]``, or its ``_F32`` form for float32, whose operands take twice the shared memory; no wider
    than the axis of that size needs, but never under 64 columns in 16 bits: with 32, wgmma of Triton 3.6 reads
    outside memory (NOTES.md)."""
    value = config.get(f"{name}_F32", config[name]) if dtype.itemsize == 4 else config[name]
    return value if size is None else min(value, whole(size, dtype))


def precision(dtype):
    """Float32 products stay float32; tf32 would cost 3e-4."""
    return "ieee" if dtype.itemsize == 4 else "tf32"


def too_long(axes, *names):
    """None, or which of these axes is too long for a kernel that holds it on chip."""
    return next((f"{name} = {axes[name]}: at most 256" for name in names if axes[name] > 256), None)


def width_limits(axes, device):
    """None, or why a kernel that holds K and V on chip refuses these sizes."""
    return too_long(axes, "K", "V")


def state_limits(axes, device):
    """The same for a kernel that holds a chunk's rows too."""
    return width_limits(axes, device) or chunk_limits(axes, device)


def chunk_limits(axes, device):
    """None, or why a kernel that holds a chunk's rows in one tile refuses this chunk length."""
    if axes["C"] not in (16, 32, 64, 128):
        return f"C = {axes['C']}: a power of two from 16 to 128"
    return None
