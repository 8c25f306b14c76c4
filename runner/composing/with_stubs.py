"""A pipeline with stages that are still to be written: one after another, until they make the definition."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..loading.spec import PipelineSpec
from ..reporting.write_file import write_file
from ..stage_files.stage_library import find_stages
from .compose import Composed, NotComposed, compose
from .declarations import declaration_errors
from .missing import missing_stage
from .stub import Stub, stub_of

MOST_STUBS = 6


def compose_with_stubs(
    spec: PipelineSpec, folders: Sequence[str], path: str, progress: Callable[[str], None] = str
) -> tuple[Composed | NotComposed, list[Stub]]:
    """The pipeline and the stages that it lacks, in the order in which they were missing. folders: of stages of one's
    own."""
    stubs = []
    with tempfile.TemporaryDirectory() as folder:
        while True:
            stages = find_stages([*folders, folder])
            found = compose(spec, stages, path, progress)
            sound = isinstance(found, NotComposed) and not declaration_errors(found)
            missing = missing_stage(found) if sound else None
            if missing is None or len(stubs) == MOST_STUBS:
                return found, stubs
            stubs.append(stub_of(missing, spec.name, stages))
            progress(f"a stage of its own: {stubs[-1].name}")
            write_file(Path(folder) / f"{stubs[-1].name}.py", stubs[-1].text)
