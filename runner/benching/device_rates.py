"""What a device can do: its copy bandwidth, its matrix rate in a dtype, and the time of an empty launch.

Measured once for a device, a PyTorch and a number of threads, and kept in a file that people can read and delete.
"""

import json
import os
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from ..compiling.compile_kernel import write_whole
from ..planning.dtypes import name_of
from ..reporting.clocks import Clock, clock_of
from ..reporting.environment import cpu_name

COPIED_BYTES = {"cuda": 2**30, "cpu": 2**27}
MATRIX_SIDE = {"cuda": 8192, "cpu": 1024}
CPU_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
SOME_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class DeviceRates:
    """copy_gbps: bytes read and written by a copy, a second. matrix_tflops: torch.matmul in the IO dtype of the name
    dtype, fp32 of a GPU as TF32. launch_ms: the smallest thing that can be run. Each is the 20th percentile of its
    runs, for it is a ceiling.

    cache_bytes: of the last cache level, below which a working set need not pass through memory.
    """

    copy_gbps: float
    matrix_tflops: float
    launch_ms: float
    cache_bytes: int
    dtype: str


def device_rates(device: torch.device, io: torch.dtype, progress: Callable[[str], None] = str) -> DeviceRates:
    """From the file of this user where it has them, else measured now and written there."""
    key, kept = key_of(device, io), read_kept()
    with suppress(KeyError, TypeError):
        return DeviceRates(**kept[key])
    progress(f"measure what {device} can do in {name_of(io)}, once")
    found = measure(device, io, clock_of(device))
    write_kept({**kept, key: asdict(found)})
    return found


def measured_again(device: torch.device, io: torch.dtype, before: DeviceRates) -> DeviceRates:
    """The better of before and now, kept: before, something else may have run on this machine."""
    now = measure(device, io, clock_of(device))
    best = replace(
        before,
        copy_gbps=max(before.copy_gbps, now.copy_gbps),
        matrix_tflops=max(before.matrix_tflops, now.matrix_tflops),
        launch_ms=min(before.launch_ms, now.launch_ms),
    )
    write_kept({**read_kept(), key_of(device, io): asdict(best)})
    return best


def key_of(device: torch.device, io: torch.dtype) -> str:
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    return f"{where}{threads}, torch {torch.__version__}, {name_of(io)}"


def measure(device: torch.device, io: torch.dtype, clock: Clock) -> DeviceRates:
    source = torch.ones(COPIED_BYTES[device.type] // 2, dtype=torch.int8, device=device)
    target, small = torch.empty_like(source), torch.ones(1, device=device)
    side = MATRIX_SIDE[device.type]
    a, b = (torch.randn(side, side, device=device).to(io) for _ in range(2))
    runs = [lambda _: target.copy_(source), lambda _: torch.matmul(a, b), lambda _: small.add_(1)]
    with tensor_floats(device):
        copy, matrix, launch = (clock.race([run], ahead=True)[0].p20_ms for run in runs)
    gbps, tflops = 2 * source.nbytes / copy / 1e6, 2 * side**3 / matrix / 1e9
    return DeviceRates(gbps, tflops, launch, cache_bytes(device), name_of(io))


@contextmanager
def tensor_floats(device: torch.device):
    """TF32 on: the most that a GPU's matrix units do with float32, and what kernels do with it where they may."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def cache_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size
    with suppress(OSError, ValueError):
        return int(CPU_CACHE.read_text().strip().removesuffix("K")) * 1024
    return SOME_CACHE_BYTES


def kept_file() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "chunkwise" / "device_rates.json"


def read_kept() -> dict:
    try:
        kept = json.loads(kept_file().read_text(encoding="utf-8"))
        return kept if isinstance(kept, dict) else {}
    except (OSError, ValueError):
        return {}


def write_kept(kept: dict) -> None:
    """A cache: where it cannot be kept, the next run measures again."""
    with suppress(OSError):
        write_whole(kept_file(), json.dumps(kept, indent=2) + "\n")
