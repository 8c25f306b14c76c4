"""Imports run one way: tests, examples -> runner -> stages -> kernels -> triton. Read from the files' syntax."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("kernels", "stages", "runner")
LONGEST_FILE = 400
STAGE_LIBRARIES = {"torch", "math", "functools", "re", "dataclasses", "collections.abc", "typing"}


def files(*parts):
    return sorted(path.relative_to(ROOT) for part in parts for path in (ROOT / part).rglob("*.py"))


def tree(file):
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), str(file))


def imports(node, file, inside=False):
    """(module, inside a function) of every import below a node; of our own modules the path from the root."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from ((name, inside) for name in import_from(child, file))
        yield from imports(child, file, inside or isinstance(child, (ast.FunctionDef, ast.Lambda)))


def import_from(node, file):
    """``from ..kernels.x import f`` in stages/y.py is kernels.x; ``from . import x`` in runner/y.py is runner.x."""
    if node.level == 0:
        return [node.module.removeprefix("chunkwise.")]
    above = file.parent.parts[: len(file.parent.parts) + 1 - node.level]
    if node.module is not None:
        return [".".join([*above, node.module])]
    return [".".join([*above, alias.name]) for alias in node.names]


def top(module):
    return module.split(".")[0]


@pytest.mark.parametrize("text, file, module", [
    ("from ..kernels.x import f", "stages/y.py", "kernels.x"),
    ("from ..kernels import x", "stages/y.py", "kernels"),
    ("from .. import kernels", "stages/y.py", "kernels"),
    ("from ._chunks import f", "kernels/y.py", "kernels._chunks"),
    ("from . import codes", "runner/y.py", "runner.codes"),
    ("from ...stages._laws import f", "runner/commands/y.py", "stages._laws"),
    ("from ..commands import run", "runner/expression/y.py", "runner.commands"),
    ("from chunkwise.runner.commands import run", "runner/y.py", "runner.commands"),
])  # fmt: skip
def test_relative_imports_are_resolved(text, file, module):
    assert list(imports(ast.parse(text), Path(file))) == [(module, False)]


def wrong(part, allowed):
    """Imports of the part's files that are not allowed, as lines for the failure."""
    return [
        f"{file} imports {module}{'' if inside else ' at module level'}"
        for file in files(part)
        for module, inside in imports(tree(file), file)
        if not allowed(file, module, inside)
    ]


def test_there_is_something_to_read():
    assert all(len(files(part)) > 3 for part in PARTS)


def test_kernels_import_triton_and_each_other():
    """Device functions may be used by several kernels; nothing else of ours is in reach."""

    def allowed(file, module, inside):
        return top(module) in ("triton", "kernels")

    assert wrong("kernels", allowed) == []


def test_stages_import_each_other_and_kernels_only_where_they_launch():
    """A stage may be another one under other port names; kernels are imported where they are launched."""

    def allowed(file, module, inside):
        return module in STAGE_LIBRARIES or top(module) == "stages" or (inside and top(module) == "kernels")

    assert wrong("stages", allowed) == []


def test_stages_read_no_files_no_environment_and_no_device():
    for file in files("stages"):
        used = {ast.unparse(node) for node in ast.walk(tree(file)) if isinstance(node, (ast.Attribute, ast.Name))}
        assert used.isdisjoint({"os.environ", "os.getenv", "open", "yaml", "torch.cuda", "torch.load"}), file


def test_the_runner_imports_nothing_above_it_and_triton_only_where_it_compiles():
    def allowed(file, module, inside):
        return top(module) not in ("tests", "examples", "kernels") and (inside or top(module) != "triton")

    assert wrong("runner", allowed) == []


def test_commands_are_imported_by_main_alone():
    def allowed(file, module, inside):
        own = file.parts[:2] == ("runner", "commands") or file.name == "main.py"
        return own or not module.startswith("runner.commands")

    assert wrong("runner", allowed) == []


def test_files_are_short():
    lengths = {str(file): len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files(*PARTS)}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_folders_that_others_could_import_are_no_packages():
    """A regular package called kernels would shadow Hugging Face's for anyone who stands in the checkout."""
    assert [part for part in ("kernels", "stages", "pipelines") if (ROOT / part / "__init__.py").exists()] == []
