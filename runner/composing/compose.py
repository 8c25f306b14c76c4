"""The road from a definition to a pipeline: readings, a search level by level, the smallest graph that is confirmed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

import torch

from ..definition.evaluate import threads_for
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.build_graph import check_graphs
from ..graphs.check_warnings import long_keys
from ..loading.load_spec import parse_spec
from ..loading.spec import PipelineSpec
from ..stage_files.stage_library import Stage
from .algebra import Algebra, algebra
from .confirm import Confirmation, confirm, gradients_missing
from .edge_expression import expression_leaves, said_output
from .feeding import Found, Step
from .reached import Reached
from .readings import given_outputs, read_definition
from .search import LEVELS, Search
from .smallest import smallest_graphs
from .tiny_case import TinyCase, tiny_case
from .writing import pipeline_text

MOST_GRAPHS = 12
"""Graphs of one level that are held against the definition, at most."""
ALL_STEPS = 12_000
"""Stages that are run on the tiny case in all levels, at most: about a minute of two cores."""


@dataclass(frozen=True)
class Composed:
    """A pipeline that is its definition. text: the file. without_gradient: inputs that no stage has a gradient for.
    warnings: what may make it diverge all the same."""

    text: str
    spec: PipelineSpec
    confirmation: Confirmation
    level: str
    tried: int
    without_gradient: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class NotComposed:
    """What was searched in vain, level by level. refused: graphs that looked right on the tiny case, with why not."""

    case: TinyCase
    searches: tuple[Search, ...]
    refused: tuple[str, ...]


def compose(
    spec: PipelineSpec, stages: Mapping[str, Stage], path: str, progress: Callable[[str], None] = str
) -> Composed | NotComposed:
    """path: the file that the text is for. Raises ChunkwiseError for a definition that does not fit."""
    with threads_for(0, torch.device("cpu")):  # the case is tiny: threads would only wait for each other
        return searched(spec, stages, path, progress)


def searched(spec: PipelineSpec, stages: Mapping[str, Stage], path: str, progress) -> Composed | NotComposed:
    readings = read_definition(spec)
    case = tiny_case(spec, readings, list(spec.outputs) or given_outputs(readings.original))
    facts = algebra(case)
    searches, refused = [], []
    for search in attempts(case, stages, facts, searches, progress):
        search.run()
        searches.append(search)
        for goals, steps in islice(graphs(search), MOST_GRAPHS):
            found = held_against(spec, stages, search, goals, steps, [each.words for each in facts], path, progress)
            if isinstance(found, Composed):
                return found
            refused.append(found)
    return NotComposed(case, tuple(searches), tuple(refused))


def attempts(case: TinyCase, stages, facts: Sequence[Algebra], before: list[Search], progress) -> Iterator[Search]:
    """Searches in the order in which they are to be run; before: those that were. First with stages alone, then with
    expressions in edges for what no stage gives, last with other states than the definition's. Expressions are values
    by the dozen: those go to stages with a gradient of their own first, of which no one takes as many at once as the
    ones that go token by token."""
    strict, known, free = LEVELS
    yield Search(case, stages, strict, progress)
    yield Search(case, stages, known, progress)
    leaves = expression_leaves(Reached(before[-1]), facts)
    trained = {name: stage for name, stage in stages.items() if stage.vjp is not None}
    for some, level in product((trained, stages), (strict, known)) if leaves else ():
        yield Search(case, some, level, progress, leaves, left(before))
    yield Search(case, stages, free, progress, limit=left(before))


def left(before: Sequence[Search]) -> int:
    return max(ALL_STEPS - sum(search.steps for search in before), 0)


def graphs(search: Search):
    """(goals, steps) for every choice of values that are the outputs, the smallest graphs of each."""
    outputs = search.case.outputs
    reached = {name: [each for each in search.found if name in search.outputs_of(each)] for name in outputs}
    for name, values in reached.items():
        said = None if values else said_output(Reached(search), name)
        values += [said] if said else []
    for choice in product(*reached.values()):
        goals = dict(zip(outputs, choice))
        for steps in smallest_graphs(list(goals.values())):
            yield goals, steps


def held_against(
    spec: PipelineSpec,
    stages: Mapping[str, Stage],
    search: Search,
    goals: Mapping[str, Found],
    steps: list[Step],
    facts: list[str],
    path: str,
    progress: Callable[[str], None],
) -> Composed | str:
    """The graph as a pipeline that is its definition; or what speaks against it."""
    text = pipeline_text(spec, steps, goals, search.truths, facts)
    try:
        written = parse_spec(text, path)
        confirmation = confirm(written, stages, progress)
    except ChunkwiseError as error:
        first = error.diagnostics[0]
        return f"{first.message}: {first.label}" if first.label else first.message
    if confirmation.why:
        return confirmation.why
    missing, warnings = gradients_missing(written, confirmation), long_keys(check_graphs(written, stages))
    return Composed(text, written, confirmation, search.level.name, search.steps, tuple(missing), tuple(warnings))
