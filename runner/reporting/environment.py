"""What machine and software a figure was measured with."""

import os
import platform
import re
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

LIMITS = {"sm_clock_max_mhz": "clocks.max.sm", "memory_clock_max_mhz": "clocks.max.mem", "power_limit_w": "power.limit"}
"""Fact -> what nvidia-smi calls it."""


@lru_cache(maxsize=4)
def environment(device: torch.device) -> dict[str, object]:
    """Versions, device and revision, for reports."""
    facts = {
        "python": platform.python_version(),
        "os": platform.platform(),
        "cpu": cpu_name(),
        "cpu_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "triton": package_version("triton"),
        "device": str(device),
        "revision": revision(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "gpu": properties.name,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "gpu_memory_mb": properties.total_memory // 10**6,
            "cuda": torch.version.cuda,
            "driver": driver(),
            "ptxas": ", ".join(compilers()),
            **power_and_clocks(device),
        }
    return facts


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def output_of(*command: str, folder: Path | None = None) -> str | None:
    """The first line that a command prints; None when there is no such command or it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=10, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def driver() -> str | None:
    return output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def compilers() -> list[str]:
    """The assemblers that Triton brings, or those that the environment puts in their place, with their versions."""
    instead = [os.environ.get("TRITON_PTXAS_PATH"), os.environ.get("TRITON_PTXAS_BLACKWELL_PATH")]
    paths = [Path(path) for path in instead if path]
    if not paths and (found := find_spec("triton")):
        paths = sorted((Path(found.origin).parent / "backends" / "nvidia" / "bin").glob("ptxas*"))
    return [f"{path.name} {version}" for path in paths if (version := compiler_version(path))]


def compiler_version(path: Path) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"V(\d+(?:\.\d+)+)", done.stdout)
    return found[1] if found else None


def power_and_clocks(device: torch.device) -> dict[str, str]:
    """The limits that the driver sets, not what a moment had: MHz and watts."""
    query = f"--query-gpu={','.join(LIMITS.values())}"
    said = output_of("nvidia-smi", query, "--format=csv,noheader,nounits", f"--id={uuid(device)}")
    return dict(zip(LIMITS, (each.strip() for each in said.split(",")))) if said else {}


def uuid(device: torch.device) -> str:
    """Its name for the driver, which knows nothing of CUDA_VISIBLE_DEVICES."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def revision() -> str | None:
    """The git revision of the checkout, with + when it has changes; None outside one."""
    folder = Path(__file__).parents[2]
    head = output_of("git", "rev-parse", "--short=12", "HEAD", folder=folder)
    if head is None:
        return None
    return head + ("+" if output_of("git", "status", "--porcelain", "-uno", folder=folder) else "")
