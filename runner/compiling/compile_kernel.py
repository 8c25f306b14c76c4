"""Compile one launch for a GPU that need not be here, and read off what it takes: registers, spills, shared memory.

The launch's arguments may be meta tensors; they are specialised as Triton's own launcher would, with every
pointer aligned to 16 bytes. Results are kept on disk by the source's hash, so an unchanged kernel costs no time.
"""

import contextlib
import hashlib
import io
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ...stages._contract import Launch
from ...stages._tiles import SHARED_MEMORY

SHARED_LIMIT = {int(device.removeprefix("sm_")): size for device, size in SHARED_MEMORY.items()}
"""Compute capability (8.0 as 80) -> bytes of shared memory that one block may use."""

MATRIX_INSTRUCTIONS = ("wgmma", "tcgen05.mma", "mma")


@dataclass(frozen=True)
class Compiled:
    """What a kernel takes on one architecture.

    registers: per thread. stack: bytes per thread. spills: bytes stored to and loaded from local memory per thread.
    shared: bytes per block. matrix: the matrix instruction in it, or "". seconds: compile time when it was compiled.
    error: why it does not compile, or "".
    """

    registers: int = 0
    stack: int = 0
    spills: int = 0
    shared: int = 0
    matrix: str = ""
    seconds: float = 0.0
    error: str = ""


def compile_launch(launch: Launch, arch: int, cache: Path | None = None) -> Compiled:
    """arch: 80, 90 or 100. cache: a folder for results, or None."""
    import triton
    from triton.backends.compiler import GPUTarget

    options, signature, constexprs, attributes = specialise(launch, arch)
    source = source_of(launch.kernel)(launch.kernel, signature, constexprs, attributes)
    kept = None
    if cache is not None:
        key = f"{source.hash()} {sorted(options.items(), key=str)} {arch} {triton.__version__}"
        kept = cache / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        if kept.exists():
            return Compiled(**json.loads(kept.read_text()))
    found = build(source, GPUTarget("cuda", arch, 32), options)
    if kept is not None and not found.error:
        write_whole(kept, json.dumps(asdict(found)))
    return found


def source_of(kernel):
    """The kind of source that Triton compiles a kernel of it, or of Gluon, from."""
    from triton.compiler.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource if kernel.is_gluon() else ASTSource


def specialise(launch: Launch, arch: int):
    """(options, signature, constexprs, attributes) that the just-in-time launcher would compile this launch with."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    kernel, backend = launch.kernel, make_backend(GPUTarget("cuda", arch, 32))
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, _ = bind(**launch.args, **launch.constexprs)
    asked = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    options, signature, constexprs, attributes = kernel._pack_args(backend, asked, bound, specialization, None)
    return dict(options.__dict__), signature, constexprs, attributes


def build(source, target, options) -> Compiled:
    import triton
    from triton import knobs

    printed, start = io.StringIO(), time.perf_counter()
    try:
        with knobs.nvidia.scope(), knobs.compilation.scope(), contextlib.redirect_stdout(printed):
            # ptxas is asked anew even where Triton has a binary: only its log has the spills
            knobs.nvidia.dump_ptxas_log = True
            knobs.compilation.always_compile = True
            kernel = triton.compile(source, target=target, options=options)
    except Exception as error:  # a compiler's own failures have no common base class
        return Compiled(seconds=time.perf_counter() - start, error=last_line(error))
    seconds = round(time.perf_counter() - start, 2)
    log = printed.getvalue()
    return Compiled(
        registers=largest(r"Used (\d+) registers", log),
        stack=largest(r"(\d+) bytes stack frame", log),
        spills=largest(r"(\d+) bytes spill stores", log) + largest(r"(\d+) bytes spill loads", log),
        shared=kernel.metadata.shared,
        matrix=matrix_instruction(kernel.asm["ptx"]),
        seconds=seconds,
    )


def largest(pattern: str, log: str) -> int:
    """Of the kernel and the functions it calls."""
    return max(int(number) for number in re.findall(pattern, log))


def matrix_instruction(ptx: str) -> str:
    for name in MATRIX_INSTRUCTIONS:
        if re.search(rf"^\s*(@%p\d+ )?{re.escape(name)}\.", ptx, re.MULTILINE):
            return name.split(".")[0]
    return ""


def last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def write_whole(path: Path, text: str) -> None:
    """Two processes may write the same result: neither must read half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{time.monotonic_ns()}")
    part.write_text(text)
    part.replace(path)
