"""Scans over chunks by kernels that are written for Hopper, where they take the sizes: configurations and launches."""

from dataclasses import replace
from functools import partial

from ._contract import ceil_div
from ._pieces import PROGRAMS


def hopper_takes(axes, device):
    """Whether such a kernel takes these sizes, in 16 bits."""
    return device == "sm_90" and axes["C"] == 64 and axes["K"] in (64, 128) and axes["V"] % 64 == 0


def hopper_first(configs, **tiles):
    """The plain kernel's configurations after that of the kernel for Hopper (gluon), which has none in float32."""
    return partial(hopper_configs, configs, tiles)


def hopper_configs(configs, tiles, axes, device):
    plain = [{**config, "gluon": 0} for config in configs(axes, device)]
    first = [{**plain[0], **tiles, "gluon": 1, "gluon_F32": 0}] if hopper_takes(axes, device) else []
    return first + plain


def on_hopper(launch, kernel):
    """The plain kernel's launch by the one for Hopper: num_stages chunks are in shared memory."""
    sizes = {name: launch.constexprs[name] for name in ("K", "V", "C", "BV")}
    return replace(launch, kernel=kernel, constexprs={**sizes, "STAGES": launch.num_stages, "W": launch.num_warps})


def groups_in_order(axes, BV):
    """Groups of four warps in the two kernels for Hopper, the faster first. Three of them are, unless one sequence's
    programs, of BV columns each, are more than the multiprocessors; what is taken may not follow from the batch, as
    the bits would."""
    return (3, 1) if axes["HV"] * ceil_div(axes["V"], BV) <= PROGRAMS else (1, 3)
