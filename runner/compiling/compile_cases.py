"""Which kernels the compile checks compile: every launcher of every stage, by configuration, dtype, size and form."""

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...stages._contract import Config, Launcher
from .compile_kernel import SHARED_LIMIT
from .meta_launches import FORMS

SIZES = {
    "B": 1, "T": 8192, "H": 16, "HV": 32, "K": 128, "V": 128, "C": 64, "W": 4,
    "Sq": 8192, "Sk": 8192, "HQ": 32, "D": 128, "DV": 128, "DC": 512, "DN": 128, "DR": 64,
    "PAGE": 64, "NP": 128, "PAGES": 256, "ND": 8, "TOP": 2048, "HI": 64, "KI": 128, "M": 4, "NB": 2048,
    "GO": 16, "HG": 8, "DO": 1024, "RANKS": 8, "LANES": 1,
}  # fmt: skip
FEW_HEADS = {"T": 65536, "H": 2, "HV": 2}
"""For launchers that take long sequences of few heads alone."""
WIDTHS, CHUNKS, DTYPES = (64, 128, 256), (16, 32, 64, 128), ("bf16", "fp16", "fp32")
ARCHITECTURES = tuple(SHARED_LIMIT)


@dataclass(frozen=True)
class Case:
    """One configuration of one launcher for one architecture. launcher: its place in the stage's list."""

    stage: str
    backward: bool
    launcher: int
    config: Config
    form: str
    dtype: str
    axes: Mapping[str, int]
    arch: int

    @property
    def name(self) -> str:
        return f"{self.stage}.vjp" if self.backward else self.stage


def default_cases(stages: Iterable) -> Iterator[Case]:
    """Each launcher's first configuration in bf16 at K = V = 128, C = 64, a plain batch."""
    for stage, backward, index, launcher in launchers(stages):
        for arch in ARCHITECTURES:
            yield from first_configs(stage, backward, index, launcher, usual_sizes(stage), "plain", "bf16", arch, 1)


def all_cases(stages: Iterable) -> Iterator[Case]:
    """Every shipped configuration over dtypes, widths and chunk lengths, as a plain batch; packed sequences and
    absent optional inputs at K = V = 128, C = 64. Axes that a stage does not have are not varied."""
    for stage, backward, index, launcher in launchers(stages):
        usual = usual_sizes(stage)
        dtypes = [dtype for dtype in DTYPES if dtype not in launcher.not_in]
        for axes, dtype, arch in itertools.product(varied_sizes(stage, launcher), dtypes, ARCHITECTURES):
            for form in FORMS if axes == usual else FORMS[:1]:
                yield from first_configs(stage, backward, index, launcher, axes, form, dtype, arch, None)


def launchers(stages: Iterable) -> Iterator[tuple]:
    for stage in stages:
        for backward, group in ((False, stage.launchers), (True, stage.vjp_launchers)):
            for index, launcher in enumerate(group):
                yield stage, backward, index, launcher


def first_configs(stage, backward, index, launcher: Launcher, axes, form, dtype, arch, count) -> Iterator[Case]:
    """The launcher's first count configurations (None: all); none when it refuses these sizes, of few heads too."""
    device = f"sm_{arch}"
    taken = [sizes for sizes in (axes, axes | FEW_HEADS) if launcher.when(sizes, device) is None]
    for sizes in taken[:1]:
        for config in launcher.configs(sizes, device)[:count]:
            yield Case(stage.name, backward, index, config, form, dtype, sizes, arch)


def port_axes(stage) -> set[str]:
    ports = [*stage.contract.inputs.values(), *stage.contract.outputs.values()]
    return {axis for port in ports for axis in port.axes if not axis.isdigit()}


def usual_sizes(stage) -> dict[str, int]:
    """SIZES, and 64 for axes of the stage's own."""
    return {axis: 64 for axis in port_axes(stage)} | SIZES


def varied_sizes(stage, launcher: Launcher) -> Iterator[dict[str, int]]:
    """The usual sizes with every K, V and C that the stage's kernels can notice."""
    noticed = port_axes(stage) | set(inspect.signature(launcher.launch).parameters)
    varied = {"K": WIDTHS, "V": WIDTHS, "D": WIDTHS, "DV": WIDTHS, "C": CHUNKS}
    choices = [values if axis in noticed else (SIZES[axis],) for axis, values in varied.items()]
    for values in itertools.product(*choices):
        yield usual_sizes(stage) | dict(zip(varied, values, strict=True))
