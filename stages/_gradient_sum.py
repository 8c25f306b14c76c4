"""Contributions to one gradient, added in float32 and rounded once. The runner makes the contract per fan-out."""

from ._contract import Contract, Launch, Launcher, Port, ceil_div

MOST = 8


def contract(shape: str, dtypes: list[str], dtype: str) -> Contract:
    """shape: of every tensor. dtypes: of the contributions. dtype: of the sum."""
    inputs = {f"x{i}": Port(shape, each) for i, each in enumerate(dtypes)}
    axes = " * ".join(shape.split()) or "1"
    return Contract(inputs, {"y": Port(shape, dtype)}, flops=f"{len(dtypes)} * {axes}")


def reference(**contributions):
    return {"y": sum(contributions.values())}


def configs(axes, device):
    return [{"BLOCK": 2048, "num_warps": 4, "num_stages": 1}]


def launch(*tensors, seqs, config):
    from ..kernels.gradient_sum import gradient_sum_kernel

    *parts, y = tensors
    parts += [None] * (MOST - len(parts))
    return [
        Launch(
            gradient_sum_kernel,
            grid=(ceil_div(y.numel(), config["BLOCK"]),),
            args={f"x{i}": part for i, part in enumerate(parts)} | {"y": y, "count": y.numel()},
            constexprs={"BLOCK": config["BLOCK"]},
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


LAUNCHERS = (Launcher("triton", launch, configs),)
