"""Configurations of kernels that are written for Hopper, before those of the kernels that stand for all else."""

from functools import partial


def hopper_takes(axes, device):
    """Whether a scan over chunks that is written for Hopper takes these sizes, in 16 bits."""
    return device == "sm_90" and axes["C"] == 64 and axes["K"] in (64, 128) and axes["V"] % 64 == 0


def hopper_first(configs, **tiles):
    """gluon: the kernel for Hopper, in these tiles; float32 has no other than the plain one."""
    return partial(hopper_configs, configs, tiles)


def hopper_configs(configs, tiles, axes, device):
    plain = [{**config, "gluon": 0} for config in configs(axes, device)]
    first = [{**plain[0], **tiles, "gluon": 1, "gluon_F32": 0}] if hopper_takes(axes, device) else []
    return first + plain
