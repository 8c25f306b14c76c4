"""Generated source as modules: written to a cache folder under the hash of what it says, then imported.

Triton reads a kernel's source from its file, so that a kernel must have one. The folder is $CHUNKWISE_CACHE, else
chunkwise in $XDG_CACHE_HOME or ~/.cache; where it cannot be written, a folder of this process.
"""

import hashlib
import importlib.util
import os
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from types import ModuleType

_lock = threading.Lock()


@cache
def load_source(text: str) -> ModuleType:
    """The module of a text; the same object for the same text."""
    name = f"chunkwise_map_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    file = write_once(f"{name}.py", text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect finds a function's source through its module
    spec.loader.exec_module(module)
    return module


def write_once(name: str, text: str) -> Path:
    """A file that holds exactly this text; one that was changed, or cut short, is written again."""
    with _lock:
        for folder in (cache_folder(), own_folder()):
            try:
                return written(folder / name, text)
            except OSError:
                continue
    raise OSError(f"no folder to write {name} to")


def written(file: Path, text: str) -> Path:
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(file)  # another process may read it now: never half of it
    return file


def cache_folder() -> Path:
    if own := os.environ.get("CHUNKWISE_CACHE"):
        return Path(own) / "maps"
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "chunkwise" / "maps"


@cache
def own_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="chunkwise-maps-"))
