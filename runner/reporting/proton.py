"""Triton's own profiler, Proton, with a scope for each stage: its kernels, its FLOPs and its bytes.

``proton-viewer -m tflop/s,gbyte/s,time/ms FILE`` shows the rates of what was really launched, by kernel.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from ..calling.call import Call
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.flops import flops
from ..planning.execute import Observer, run_step
from ..planning.plan import Plan, Step, require_triton
from .timing import moved_bytes, passes

RUNS = 10
"""Metrics and times of a scope add up over them."""


def refuse_without_gpu(device: torch.device) -> None:
    if device.type != "cuda":
        message = f"Proton listens to the driver of a GPU, and this runs on {device.type}"
        raise ChunkwiseError(Diagnostic(codes.NO_GPU, message, help="leave out --proton"))
    require_triton("triton")


def profile(call: Call, backward: bool, folder: Path) -> Path:
    """Runs the op a few times, compiled and warm, and writes ``proton.hatchet`` into the folder."""
    import triton.profiler as proton

    plans, run_all = passes(call, backward)
    run_all(run_step)
    torch.cuda.synchronize(call.device)
    session = started(str(folder / "proton"))
    try:
        for _ in range(RUNS):
            with proton.scope(call.graph.name):
                run_all(scopes(plans[0]))
        torch.cuda.synchronize(call.device)
    finally:
        proton.finalize(session)
    return folder / "proton.hatchet"


def started(file: str) -> int:
    """A session; the driver takes one listener a process, and may have another one."""
    import triton.profiler as proton

    try:
        return proton.start(file)
    except RuntimeError as error:
        message = f"Proton cannot listen to the GPU: {error}"
        help = "a process has one profiler: run without others (torch.profiler, nsys, ncu) in or around it"
        raise ChunkwiseError(Diagnostic(codes.BACKEND, message, help=help)) from None


def scopes(plan: Plan) -> Observer:
    """Runs each step in a scope of its node's id. plan: any of those over the graph that runs."""
    import triton.profiler as proton

    def observe(step: Step, run: Callable[[], None], outputs: Mapping[str, torch.Tensor | None]) -> None:
        metrics = {"flops": flops(step.node, plan.sizes), "bytes": float(moved_bytes(plan, step))}
        with proton.scope(step.node.id, metrics):
            run()

    return observe
