"""The kernels that a stage launched: each by itself, with what its compiled binary says."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from ...stages._contract import Launch
from ..compiling.compile_kernel import matrix_instruction
from ..planning.execute import Kernels, run_kernel
from ..reporting.clocks import Clock
from .record import Kernel

REGISTER_UNIT, SHARED_UNIT, SHARED_OF_SYSTEM, WARP = 256, 128, 1024, 32
"""Registers are given to a warp in units of 256, shared memory to a block in units of 128 bytes, besides the KiB that
the system takes of every block's."""


def kernels_of(run: Callable[[], None], clock: Clock, device: torch.device) -> tuple[Kernel, ...]:
    """Nothing for a stage that runs its reference: PyTorch launches what it likes."""
    if not isinstance(run, Kernels):
        return ()
    return tuple(kernel_of(launch, clock, device, len(run.launches) > 1) for launch in run.launches)


def kernel_of(launch: Launch, clock: Clock, device: torch.device, timed: bool) -> Kernel:
    """timed: by itself, on the buffers as they are; the only kernel of a stage is timed as the stage."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        name, compiled = launch.kernel.__name__, run_kernel(launch)
    ms = clock.race([lambda _: run_kernel(launch)], ahead=True)[0].median_ms if timed else None
    if device.type != "cuda" or compiled is None:
        return Kernel(name, ms)
    room = Room.of(device)
    registers, shared = compiled.n_regs, compiled.metadata.shared
    share = occupancy_pct(registers, shared, launch.num_warps, room)
    matrix = matrix_instruction(compiled.asm["ptx"]) or "none"
    return Kernel(name, ms, registers, 4 * compiled.n_spills, shared, share, matrix)


@dataclass(frozen=True)
class Room:
    """What one multiprocessor has for the blocks that it holds at a time."""

    registers: int
    shared: int
    threads: int
    blocks: int = 32

    @staticmethod
    def of(device: torch.device) -> "Room":
        found = torch.cuda.get_device_properties(device)
        return Room(
            found.regs_per_multiprocessor,
            found.shared_memory_per_multiprocessor,
            found.max_threads_per_multi_processor,
        )


def occupancy_pct(registers: int, shared: int, warps: int, room: Room) -> float:
    """Warps that are resident at a time, in percent of those that a multiprocessor takes. registers: per thread.
    shared: bytes per block. 0 where not even one block fits."""
    per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    per_block = -(-shared // SHARED_UNIT) * SHARED_UNIT + SHARED_OF_SYSTEM
    by_registers = room.registers // per_warp // warps if per_warp else room.blocks
    blocks = min(by_registers, room.shared // per_block, room.threads // (WARP * warps), room.blocks)
    return 100 * blocks * warps * WARP / room.threads
