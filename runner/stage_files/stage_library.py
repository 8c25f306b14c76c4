"""Finds and loads stages: the checkout's, those of ``--stages DIR``, and those of installed packages.

One file is one stage, named after the file; names that begin with ``_`` are not stages. A folder from outside is
loaded as a package of its own, so that its files may import each other relatively; the shared vocabulary is
imported as ``from chunkwise.stages._contract import ...``. A package brings stages in by the entry-point group
``chunkwise.stages``; each entry point names a module (one stage) or a package (a folder of them). A name that
exists twice is an error: nothing shadows a shipped stage.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ...stages._contract import INT, Contract, Launcher
from ..diagnostics.codes import STAGE_BROKEN, STAGE_FOLDER, STAGE_TWICE
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note
from .stage_checks import stage_errors
from .stage_source import StageSource

SHIPPED = Path(__file__).resolve().parents[2] / "stages"
SHIPPED_PACKAGE = __name__.removesuffix(".runner.stage_files.stage_library") + ".stages"
GROUP = "chunkwise.stages"


@dataclass(frozen=True, eq=False)
class Stage:
    """One loaded stage file, or one made from it. doc: the first paragraph of its docstring. vjp: None where
    autograd serves. is_vjp: its reference takes ``needs``, the inputs whose gradients are wanted. vjp_stages: the
    stages that its gradient is, in the same form as a pattern, over what its vjp takes. pattern: the stages
    whose work it does, as the ``stages`` and ``outputs`` of a pipeline over its own ports; None where it replaces none.
    fuses: whether it does so chunk by chunk, in any call (FUSES), rather than token by token in short ones (REPLACES).
    gradient_of: a pipeline whose backward pass some stages can be, this one among them; gradient_stages: these, in the
    form of a pattern (rewriting/gradient_pattern.py). None where it is no such stage.
    faster_on: the classes of device on which it was timed faster, in 16 bits, than what it stands for.
    segment: the stage that says what a piece of a sequence does to the state (runner/parallel); None where a sequence
    cannot be cut. gathered: the axis along which each rank needs the rows of all; None where its own are enough.
    transport: the back end of the process group that a stage of communication sends over, or "".
    """

    name: str
    file: str
    doc: str
    contract: Contract
    reference: Callable[..., Mapping[str, Any]]
    launchers: tuple[Launcher, ...] = ()
    vjp: Callable[..., Mapping[str, Any]] | None = None
    vjp_launchers: tuple[Launcher, ...] = ()
    is_vjp: bool = False
    vjp_stages: str | None = None
    pattern: str | None = None
    fuses: bool = False
    gradient_of: str | None = None
    gradient_stages: str | None = None
    faster_on: tuple[str, ...] = ()
    segment: str | None = None
    gathered: str | None = None
    transport: str = ""

    @cached_property
    def path(self) -> Path:
        return Path(self.file)

    @cached_property
    def shipped(self) -> bool:
        """Whether it is one of the checkout's: its faults are ours."""
        return self.path.parent == SHIPPED

    @property
    def gradient(self) -> str:
        """Where the gradient comes from: vjp (the file's), autograd (through the reference) or none."""
        whole = all(port.dtype == INT for port in self.contract.outputs.values())
        return "vjp" if self.vjp else "none" if self.contract.mutated or whole else "autograd"

    @cached_property
    def axis_names(self) -> tuple[str, ...]:
        """Every axis of the contract, in order of appearance."""
        ports = (*self.contract.inputs.values(), *self.contract.outputs.values())
        return tuple(dict.fromkeys(axis for port in ports for axis in port.axes if not axis.isdigit()) | {
            name: None for name in self.reference_keywords if name not in self.contract.params
        })

    @cached_property
    def reference_keywords(self) -> tuple[str, ...]:
        """Axes and params that the reference takes by name."""
        return keyword_names(self.reference)


@lru_cache(maxsize=1024)
def keyword_names(function: Callable) -> tuple[str, ...]:
    """A function's keyword-only parameters, less those that the runner always passes."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in ("seqs", "config", "needs"))


@dataclass(frozen=True)
class Candidate:
    """A stage file that was found, and the module name to load it by."""

    file: Path
    module: str


def find_stages(extra_dirs: Iterable[str | Path] = ()) -> dict[str, Stage]:
    """Every stage by name. Raises ChunkwiseError with everything that is wrong with any of them."""
    stages, errors = scan_stages(extra_dirs)
    if errors:
        raise ChunkwiseError(*errors)
    return stages


def scan_stages(extra_dirs: Iterable[str | Path] = ()) -> tuple[dict[str, Stage], list[Diagnostic]]:
    """Every stage that loads, by name, and what is wrong with the others."""
    candidates, errors = in_folder(SHIPPED, SHIPPED_PACKAGE), []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        found, wrong = at_entry_point(point)
        candidates, errors = candidates + found, errors + wrong
    for folder in extra_dirs:
        found, wrong = in_extra_folder(Path(folder))
        candidates, errors = candidates + found, errors + wrong
    stages, first = {}, {}
    for candidate in candidates:
        name, path = candidate.file.stem, candidate.file.resolve()
        if name not in first:
            first[name] = path
            stage, wrong = load_stage(candidate)
            stages |= {name: stage} if stage else {}
            errors += wrong
        elif path != first[name]:
            errors.append(twice(name, candidate.file, first[name]))
    return dict(sorted(stages.items())), errors


def in_folder(folder: Path, package: str) -> list[Candidate]:
    files = sorted(folder.glob("*.py"))
    return [Candidate(file, f"{package}.{file.stem}") for file in files if not file.stem.startswith("_")]


def in_extra_folder(folder: Path) -> tuple[list[Candidate], list[Diagnostic]]:
    """The stage files of a folder outside the checkout, under a package made for it."""
    try:
        found = folder.is_dir()
    except OSError:  # a name that no file system takes
        found = False
    if not found:
        return [], [Diagnostic(STAGE_FOLDER, f"no such folder of stages: {str(folder):.80}")]
    folder = folder.resolve()
    package = "chunkwise_stages_" + hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    if package not in sys.modules:
        module = types.ModuleType(package)
        module.__path__ = [str(folder)]
        sys.modules[package] = module
    importlib.invalidate_caches()
    return in_folder(folder, package), []


def at_entry_point(point: EntryPoint) -> tuple[list[Candidate], list[Diagnostic]]:
    """The stage files that an installed package's entry point names."""
    try:
        spec = importlib.util.find_spec(point.module)
    except Exception as error:  # a package of someone else's, run by find_spec: anything may be raised
        return [], [broken_entry_point(point, f"{type(error).__name__}: {error}")]
    if spec is None:
        return [], [broken_entry_point(point, "no such module")]
    if spec.submodule_search_locations:
        return [each for path in spec.submodule_search_locations for each in in_folder(Path(path), point.module)], []
    if not spec.origin or not spec.origin.endswith(".py"):
        return [], [broken_entry_point(point, "it is no Python file and no package")]
    return [Candidate(Path(spec.origin), point.module)], []


def broken_entry_point(point: EntryPoint, reason: str) -> Diagnostic:
    help = f"correct or uninstall {point.dist.name}" if point.dist else None
    return Diagnostic(STAGE_BROKEN, f"entry point {point.name} = {point.value}: {reason}", help=help)


def load_stage(candidate: Candidate) -> tuple[Stage | None, list[Diagnostic]]:
    """The stage of a file, or what is wrong with it."""
    try:
        module = importlib.import_module(candidate.module)
    except (Exception, SystemExit) as error:  # a stage file is code: anything may be raised
        return None, [import_error(candidate, error)]
    return stage_of(module, candidate.file)


@cache
def stage_of(module: types.ModuleType, file: Path) -> tuple[Stage | None, list[Diagnostic]]:
    """Held against its contract once: Python, too, keeps what it has imported."""
    if errors := stage_errors(file.stem, module, StageSource(file)):
        return None, errors
    stage = Stage(
        name=file.stem,
        file=str(file),
        doc=first_paragraph(module.__doc__),
        contract=module.CONTRACT,
        reference=module.reference,
        launchers=tuple(getattr(module, "LAUNCHERS", ())),
        vjp=getattr(module, "vjp", None),
        vjp_launchers=tuple(getattr(module, "VJP_LAUNCHERS", ())),
        vjp_stages=getattr(module, "VJP_STAGES", None),
        pattern=getattr(module, "FUSES", getattr(module, "REPLACES", None)),
        fuses=hasattr(module, "FUSES") or hasattr(module, "GRADIENT_OF"),
        gradient_of=getattr(module, "GRADIENT_OF", None),
        gradient_stages=getattr(module, "GRADIENT", None),
        faster_on=getattr(module, "FASTER_ON", ()),
        segment=getattr(module, "SEGMENT", None),
        gathered=getattr(module, "GATHERED", None),
    )
    return stage, []


def import_error(candidate: Candidate, error: BaseException) -> Diagnostic:
    """What stopped the import, at the line of the stage file that led there."""
    source, own = StageSource(candidate.file), str(candidate.file)
    lines = [number for frame, number in walk_tb(error.__traceback__) if frame.f_code.co_filename == own]
    mark = source.line(lines[-1] if lines else 1)
    reason = str(error)
    if isinstance(error, SyntaxError) and error.filename == own:
        mark, reason = source.line(error.lineno or 1, max(error.offset or 1, 1)), error.msg
    help = None
    if isinstance(error, ImportError) and "triton" in (error.name or ""):
        help = "import triton and kernels inside launch: the rest of a stage works without them"
    elif isinstance(error, ImportError) and "_contract" in (error.name or ""):
        help = "outside the checkout: from chunkwise.stages._contract import ..."
    message = f"stage {candidate.file.stem} cannot be imported"
    return Diagnostic(STAGE_BROKEN, message, mark, (), help, f"{type(error).__name__}: {reason}")


def twice(name: str, file: Path, first: Path) -> Diagnostic:
    note = Note(f"{name} is already there", StageSource(first).line(1))
    help = "give the file a name of its own; one stage never shadows another"
    return Diagnostic(STAGE_TWICE, f"two stages are called {name}", StageSource(file).line(1), (note,), help)


def first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())
