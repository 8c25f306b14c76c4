"""A GPU that need not be here, to plan and compile for. Nothing can be launched on it."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..planning.plan import absent_gpu


class AbsentDriver:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, arch: int):
        self.arch = arch

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> str:
        """The name that Triton keeps what it compiled under: a GPU that is here has a number."""
        return f"sm_{self.arch}"

    def get_current_stream(self, device: str) -> int:
        return 0


@contextmanager
def target(arch: int) -> Iterator[None]:
    """While it lasts, cuda devices are of this architecture (90 for sm_90), here and for Triton."""
    from triton.runtime import driver

    standing = driver._active
    driver.set_active(AbsentDriver(arch))
    try:
        with absent_gpu(f"sm_{arch}"):
            yield
    finally:
        driver.set_active(standing)
