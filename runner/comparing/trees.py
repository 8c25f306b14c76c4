"""The code of a git revision of this checkout, as a folder that Python imports it from. The repository stays as it is:
files are written by an index of their own."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, quoted
from ..reporting.environment import output_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "chunkwise"
PARTS = ("kernels", "pipelines", "runner", "stages")
WORKING_TREE = "the working tree"


@dataclass(frozen=True)
class Tree:
    """name: as the user says it. hash: short, of the working tree with + where it has changes. about: the commit's
    first line. home: what stands where ``chunkwise`` is imported from: folder/chunkwise."""

    name: str
    hash: str
    about: str
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / PACKAGE

    def own(self, text: str) -> str:
        """A path as this tree has it where the checkout has it, else as it is: a name, or a file of somewhere else."""
        path = Path(text).resolve()
        if not Path(text).exists():
            return text
        return str(self.home / path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)

    def shown(self, file: str) -> str:
        """A file of this tree as git names it (``git show HASH:FILE``), of the working tree by its own path."""
        path = Path(file)
        if not path.is_relative_to(self.home):
            return file
        inside = path.relative_to(self.home)
        return str(ROOT / inside) if self.name == WORKING_TREE else f"{self.hash}:{inside.as_posix()}"


def tree_of(name: str | None, folder: Path) -> Tree:
    """The files of a revision in the folder, which is made; None: those of the working tree, by links. Raises
    ChunkwiseError."""
    require_checkout()
    if name is None:
        return working_tree(folder)
    commit = commit_of(name)
    if commit is None:
        help = "name a commit, a branch or a tag of this checkout: git log --oneline lists commits"
        refuse(f"there is no revision {quoted(name)} in {ROOT}", help)
    tree = Tree(name, git("rev-parse", "--short", commit), git("log", "-1", "--format=%s", commit), folder)
    tree.home.mkdir(parents=True)
    index = {"GIT_INDEX_FILE": str(folder / "index")}
    write(index, "read-tree", commit)
    write(index, "checkout-index", "--all", "--quiet", f"--prefix={tree.home}/")
    if not (tree.home / "runner" / "commands" / "bench.py").exists():
        refuse(f"{said(tree)} has no bench", "take a later revision: only what bench measures can be compared")
    return tree


def working_tree(folder: Path) -> Tree:
    (folder / PACKAGE).mkdir(parents=True)
    for part in PARTS:
        (folder / PACKAGE / part).symlink_to(ROOT / part, target_is_directory=True)
    return Tree(WORKING_TREE, f"{git('rev-parse', '--short', 'HEAD')}{changed()}", "", folder)


def changed() -> str:
    return "+" if git("status", "--porcelain") else ""


def said(tree: Tree) -> str:
    """``3453fea (HEAD~1)``"""
    return tree.hash if tree.hash == tree.name else f"{tree.hash} ({tree.name})"


def is_revision(name: str) -> bool:
    return in_checkout() and commit_of(name) is not None


def commit_of(name: str) -> str | None:
    return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def in_checkout() -> bool:
    """Whether this code stands at the top of a git checkout; one that merely lies around it is another's."""
    top = git("rev-parse", "--show-toplevel")
    return top is not None and Path(top).resolve() == ROOT


def require_checkout() -> None:
    if not in_checkout():
        help = "run it from a git checkout of chunkwise, or compare two files of records"
        refuse(f"{ROOT} is no git checkout, or git cannot be run: it has no revisions", help)


def git(*words: str) -> str | None:
    return output_of("git", *words, folder=ROOT)


def write(variables: dict[str, str], *words: str) -> None:
    environment = {**os.environ, **variables, "LC_ALL": "C"}
    done = subprocess.run(["git", *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        message = f"git {words[0]} failed: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}"
        raise ChunkwiseError(Diagnostic(codes.OUTPUT, message, help="is there room where temporary files go?"))


def refuse(message: str, help: str):
    raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))
