"""Other implementations of the same ops, one file each: its name is what ``--vs`` takes.

A peer maps a case's inputs, by name, onto the peer's function; it casts nothing and copies nothing that the peer does
not ask for. What it cannot serve it says: Inapplicable, with the reason.
"""

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType

from ..case import Case
from ..whole_op import Forward


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


def find_peer(name: str, case: Case) -> Peer:
    """Raises Inapplicable; whatever else it raises is the peer's own failure."""
    try:
        return module_of(name).peer(case)
    except ImportError as error:
        raise Inapplicable(f"{name} cannot be imported: {error}") from None


def pick(case: Case, served: dict, what: str):
    """What a peer has for the case's pipeline, by its name."""
    name = case.op.spec.name
    if name not in served:
        raise Inapplicable(f"{what} has nothing for {name}; it has {', '.join(served)}")
    return served[name]
