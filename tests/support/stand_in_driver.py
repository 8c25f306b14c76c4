"""A GPU's driver without a GPU: kernels get as far as Triton's launcher, and their argument lists are kept.

What stands in: the driver (a device sm_90, one stream), the compiler (a kernel is its name and specialisation) and the
launcher, ``CompiledKernel.run``, which writes down what it is called with. Checks, plans, launchers, Triton's binder
with its specialisation of arguments, and what is prepared from them are the real ones; tensors are on the CPU.
"""

from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from unittest import mock

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from chunkwise.runner.calling import function
from chunkwise.runner.planning import plan
from chunkwise.runner.rewriting import fusion

STREAM = 7
numbers = count(1000)
"""No machine has that many devices: what Triton keeps for one of these is met by nobody else."""


class Driver:
    """launches: (kernel with its specialisation, grid, stream, arguments, pointers as addresses) of all that ran.
    compiled: the names of kernels."""

    def __init__(self, keeps: bool):
        self.launches, self.compiled, self.keeps, self.stream = [], [], keeps, STREAM
        self.utils, self.device = SimpleNamespace(), next(numbers)

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return self.device

    def get_current_stream(self, device):
        return self.stream


class Kernel:
    """What a compilation gives."""

    def __init__(self, name: str, key):
        self.function, self.packed_metadata, self.name = (name, key), ("metadata of", name), name

    def launch_metadata(self, grid, stream, *args):
        return None

    def run(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *args):
        if driver.active.keeps:
            assert metadata == self.packed_metadata
            driver.active.launches.append((function, (x, y, z), stream, tuple(map(pointer, args))))


def pointer(x):
    """A tensor as the launcher in C takes it."""
    return x.data_ptr() if hasattr(x, "data_ptr") else x


def compiled(self, key, signature, device, constexprs, options, attrs, warmup):
    driver.active.compiled.append(self.fn.__qualname__)
    kernel = Kernel(self.fn.__qualname__, str(key))
    self.device_caches[device][0][key] = kernel
    return kernel


@contextmanager
def stand_in_driver(keeps: bool = True):
    """The driver, while ops with the back end triton run on CPU tensors. keeps: writes down what is launched."""
    standing = driver._active
    driver.set_active(Driver(keeps))
    try:
        with (
            mock.patch.object(JITFunction, "_do_compile", compiled),
            mock.patch.object(function, "resolve_backend", lambda asked, device, io: asked),
            mock.patch.object(plan, "device_class", lambda device: "sm_90"),
            mock.patch.object(fusion, "device_class", lambda device: "sm_90"),
        ):
            yield driver.active
    finally:
        driver._active = standing
