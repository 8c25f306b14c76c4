"""A file with inputs and a definition and without stages: what ``chunkwise new`` starts from."""

from pathlib import Path

from ..diagnostics.codes import KEYS_CLASH
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from .check_keys import check, first_character
from .decode_text import read_bytes
from .load_spec import pipeline
from .names_twice import names_twice
from .read_tree import refusal, version_error
from .spec import PipelineSpec
from .spec_keys import RECURRENCE
from .yaml_nodes import Node, entries
from .yaml_text import parse_tree


def read_recurrence(path: str | Path) -> PipelineSpec:
    """The spec of a file, its stages empty. Raises ChunkwiseError with everything that is wrong with it."""
    return parse_recurrence(read_bytes(path), str(path))


def parse_recurrence(text: bytes | str, file: str) -> PipelineSpec:
    """The spec of a text; file: what errors call it. Raises ChunkwiseError."""
    root, errors = parse_tree(text, file)
    if wrong := version_error(root) or stages_error(root):
        raise ChunkwiseError(wrong)
    errors += check(root, RECURRENCE, "", first_character(root)) + names_twice(root, [file])
    if errors:
        raise refusal(errors)
    return pipeline(root, file, {})


def stages_error(root: Node) -> Diagnostic | None:
    if "stages" not in entries(root):
        return None
    message = "the file has stages, and to find them from the definition is what was asked for"
    help = "take stages and outputs out, or `chunkwise verify` the file as it is"
    return Diagnostic(KEYS_CLASH, message, entries(root)["stages"].key.mark, help=help)
