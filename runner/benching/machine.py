"""Where it was measured: the device, its clock, what it can do, its description, and the code that ran."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ..calling.fingerprint import fingerprint
from ..calling.function import Op
from ..reporting.clocks import Clock, clock_of
from ..reporting.environment import environment
from .device_rates import DeviceRates, device_rates
from .record import content_id

ROOT = Path(__file__).parents[2]
CODE = ("kernels", "stages", "runner")


@dataclass(frozen=True)
class Machine:
    """rates: in the IO dtype of what is measured. facts: what reporting.environment says; id: their hash."""

    device: torch.device
    clock: Clock
    rates: DeviceRates | None
    facts: Mapping[str, Any]

    @property
    def id(self) -> str:
        return content_id(self.facts)


def this_machine(device: torch.device, io: torch.dtype, progress: Callable[[str], None]) -> Machine:
    return Machine(device, clock_of(device), device_rates(device, io, progress), environment(device))


@cache
def code_of(op: Op) -> str:
    """The hash of the op and of all the code that could run it: a record of other code is none of this one. Taken once:
    a file that is edited while a bench runs is not what the bench has imported."""
    return hashlib.sha256(f"{fingerprint(op)} {package_hash()}".encode()).hexdigest()[:12]


@cache
def package_hash() -> str:
    found = hashlib.sha256()
    for path in sorted(path for part in CODE for path in (ROOT / part).rglob("*.py")):
        found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()
