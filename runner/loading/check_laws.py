"""Whether the value laws of a file's inputs can be said of them."""

from ...stages import _laws
from ..diagnostics.codes import LAW_TEXT
from ..diagnostics.errors import Diagnostic
from ..diagnostics.hints import nearest
from ..stage_files.law_place import misplaced
from .check_expressions import axis_names
from .spec import InputSpec, PipelineSpec, Written


def law_errors(spec: PipelineSpec) -> list[Diagnostic]:
    axes = axis_names(spec)
    return [found for entry in spec.inputs.values() for law in entry.where if (found := law_error(entry, law, axes))]


def law_error(entry: InputSpec, written: Written, axes: set[str]) -> Diagnostic | None:
    """axes: the file's, of which laws about rows of another input may speak."""
    law = _laws.parse(written.value)
    if problem := misplaced(law, entry.shape, entry.dtype):
        return Diagnostic(LAW_TEXT, f"{entry.name}: {problem}", written.mark)
    unknown = min(axes_of_rows(written) - axes, default=None)
    if unknown is None:
        return None
    near = nearest(unknown, axes)
    help = f"did you mean {near}?" if near else f"the axes here are {', '.join(sorted(axes))}"
    message = f"{entry.name}: {law.text} speaks of {unknown}, and no input has it"
    return Diagnostic(LAW_TEXT, message, written.mark, help=help)


def axes_of_rows(written: Written) -> set[str]:
    """The axes whose rows a law counts or names, which may be another input's."""
    law = _laws.parse(written.value)
    return set(law.axis.split()) if law.kind in _laws.ROWS else set()
