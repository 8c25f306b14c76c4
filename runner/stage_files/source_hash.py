"""What a stage's kernels are made of, as a short hash: its file, and what that imports of stages and kernels."""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .stage_library import SHIPPED

ROOT = SHIPPED.parent
OURS, SOURCES = __name__.partition(".")[0], ("stages", "kernels")


@cache
def source_hash(file: str) -> str:
    """Twelve hexadecimal digits. file: a stage's. Once for each process, which has loaded what it has."""
    found: dict[Path, str] = {}
    collect(Path(file), found)
    text = "\0".join(found[path] for path in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def collect(path: Path, found: dict[Path, str]) -> None:
    if path in found:
        return
    found[path] = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(found[path])):
        for imported in modules(node, path):
            collect(imported, found)


def modules(node: ast.AST, path: Path) -> Iterator[Path]:
    """The files of stages and kernels that an import names. path: of the file that it stands in."""
    if not isinstance(node, ast.ImportFrom):
        return
    if node.level:
        base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
    else:
        package, _, rest = (node.module or "").partition(".")
        if package != OURS or rest.partition(".")[0] not in SOURCES:
            return
        base = ROOT.joinpath(*rest.split("."))
    for each in (base, *(base / name.name for name in node.names)):
        if (file := each.with_suffix(".py")).is_file():
            yield file
