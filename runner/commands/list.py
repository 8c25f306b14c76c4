"""``list``: the pipelines, stages and workloads that are there."""

from collections.abc import Iterable, Mapping, Sequence

from ...stages._contract import Launcher
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.wire import written_stages
from ..loading.load_spec import read_spec
from ..loading.pipelines import find_pipeline, names
from ..loading.spec import PipelineSpec
from ..reporting.outcome import Outcome
from ..stage_files.stage_library import Stage, scan_stages
from ..workloads import WORKLOADS
from ._options import stage_folders
from ._tables import table

NAME = "list"
HELP = "list pipelines, stages (and which have kernels) and workloads"


def arguments(parser) -> None:
    stage_folders(parser)


def execute(args) -> Outcome:
    """What is broken is left out of the tables and reported as an error."""
    stages, errors = scan_stages(args.stages)
    specs, found = shipped_pipelines()
    document = {
        "pipelines": [pipeline_document(spec) for spec in specs],
        "stages": [stage_document(stage) for stage in stages.values()],
        "workloads": {name: dict(sizes) for name, sizes in WORKLOADS.items()},
    }
    tables = [pipeline_table(specs), stage_table(stages.values()), workload_table(WORKLOADS)]
    errors += found
    return Outcome.of_errors(errors, document, tables) if errors else Outcome(document, tables)


def shipped_pipelines() -> tuple[list[PipelineSpec], list[Diagnostic]]:
    specs, errors = [], []
    for name in names():
        try:
            specs.append(read_spec(find_pipeline(f"{name}.yaml")))
        except ChunkwiseError as error:
            errors += error.diagnostics
    return specs, errors


def pipeline_document(spec: PipelineSpec) -> dict:
    return {
        "name": spec.name,
        "file": spec.file,
        "summary": spec.summary,
        "source": spec.source,
        "stages": [spec.stages[name].use for name in written_stages(spec)],
    }


def stage_document(stage: Stage) -> dict:
    return {
        "name": stage.name,
        "file": stage.file,
        "summary": stage.doc,
        "kernels": [launcher.name for launcher in stage.launchers],
        "gradient": stage.gradient,
        "gradient_kernels": [launcher.name for launcher in stage.vjp_launchers],
    }


def pipeline_table(specs: Sequence[PipelineSpec]):
    columns = {"name": "left", "stages": "right", "summary": "left", "source": "left"}
    rows = ((spec.name, str(len(written_stages(spec))), spec.summary, spec.source) for spec in specs)
    return table("pipelines", columns, rows)


def stage_table(stages: Iterable[Stage]):
    columns = dict.fromkeys(("name", "kernels", "gradient", "what it does"), "left")
    return table("\nstages", columns, (stage_row(stage) for stage in stages))


def stage_row(stage: Stage) -> tuple[str, ...]:
    gradient = launcher_names(stage.vjp_launchers) if stage.vjp else stage.gradient
    return stage.name, launcher_names(stage.launchers), gradient, stage.doc.removesuffix(":")


def launcher_names(launchers: Sequence[Launcher]) -> str:
    return ", ".join(launcher.name for launcher in launchers) or "reference"


def workload_table(workloads: Mapping[str, Mapping[str, int]]):
    rows = ((name, " ".join(f"{axis}={size}" for axis, size in sizes.items())) for name, sizes in workloads.items())
    return table("\nworkloads", {"name": "left", "sizes": "left"}, rows)
