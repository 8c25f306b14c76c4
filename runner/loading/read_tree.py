"""Text to a tree whose keys are right: of a pipeline, or of a file that extends one."""

from collections.abc import Sequence

from ..diagnostics.codes import LIMIT, SCHEMA_VERSION
from ..diagnostics.errors import ChunkwiseError, Diagnostic, by_place, quoted
from .check_keys import check, first_character
from .names_twice import names_twice
from .spec_keys import FAMILY, PIPELINE, VERSIONS
from .variant_keys import VARIANT, is_variant
from .yaml_nodes import Map, Node, Scalar, entries
from .yaml_text import MAX_ERRORS, parse_tree


def read_tree(text: bytes | str, file: str) -> Map:
    """The tree of one file, what it extends left out of account. Raises ChunkwiseError with all that is wrong."""
    root, errors = parse_tree(text, file)
    if wrong := version_error(root):
        raise ChunkwiseError(wrong)
    if is_variant(root):
        errors += check(root, VARIANT, "", first_character(root))
    else:
        errors += pipeline_errors(root, [file])
    if errors:
        raise refusal(errors)
    return root


def pipeline_errors(root: Node, files: Sequence[str]) -> list[Diagnostic]:
    """What is wrong with the tree of a whole pipeline. files: those that its marks are in, as they are read."""
    return check(root, PIPELINE, "", first_character(root)) + names_twice(root, files)


def refusal(errors: list[Diagnostic]) -> ChunkwiseError:
    return ChunkwiseError(*first_of(by_place(once(errors))))


def once(errors: list[Diagnostic]) -> list[Diagnostic]:
    """errors without those that an alias repeats: the same at the same place, for another part of the file."""
    return list({(each.code, each.mark, each.help): each for each in reversed(errors)}.values())[::-1]


def first_of(errors: list[Diagnostic]) -> list[Diagnostic]:
    """The first MAX_ERRORS, and how many more there are."""
    more = len(errors) - MAX_ERRORS
    return errors if more <= 0 else [*errors[:MAX_ERRORS], Diagnostic(LIMIT, f"{more:,} more errors are not shown")]


def version_error(root: Node) -> Diagnostic | None:
    """An error if the file follows another format; then nothing else in it is worth a word."""
    node = entries(root).get("schema")
    if node is None or not isinstance(node.value, Scalar) or node.value.text in VERSIONS:
        return None
    text, read = node.value.text, " and ".join(VERSIONS)
    if text.startswith(f"{FAMILY}/"):
        message, help = f"the file follows {quoted(text)}, and this build reads {read}", "update chunkwise"
    else:
        message, help = f"{quoted(text)} is not the format of a pipeline", f"write schema: {VERSIONS[-1]}"
    return Diagnostic(SCHEMA_VERSION, message, node.value.mark, help=help)
