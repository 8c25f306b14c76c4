"""Other implementations of the same ops, one file each: its name is what ``--vs`` takes.

A peer maps a case's inputs, by name, onto the peer's function; it casts nothing and copies nothing that the peer does
not ask for. What it cannot serve it says: Inapplicable, with the reason. ``peer(case)`` is what is timed. In files that
have it, ``compared(case)`` is what ``verify`` holds against the definition: it may serve more, and be slow.
"""

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType

from ..case import Case
from ..whole_op import Forward

FAILURES = (Exception, SystemExit)
"""What somebody else's code may raise: a row, not ours to stop at."""


class Inapplicable(Exception):
    """Why a peer does not serve a case, in words."""


@dataclass(frozen=True)
class Peer:
    """implementation: its name and version, as records have it. function: what is called. forward: calls it."""

    implementation: str
    function: str
    forward: Forward


def names() -> list[str]:
    return sorted(each.name for each in pkgutil.iter_modules(__path__) if not each.name.startswith("_"))


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f".{name}", __name__)


def find_peer(name: str, case: Case, timed: bool = True) -> Peer:
    """Raises Inapplicable; whatever else it raises is the peer's own failure."""
    try:
        module = module_of(name)
        make = module.peer if timed else getattr(module, "compared", module.peer)
        return make(case)
    except ImportError as error:
        raise Inapplicable(f"{name} cannot be imported: {error}") from None


def pick(case: Case, served: dict, what: str):
    """What a peer has for the case's pipeline, by its name."""
    name = case.op.spec.name
    if name not in served:
        raise Inapplicable(f"{what} has nothing for {name}; it has {', '.join(served)}")
    return served[name]


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
