"""The four shapes that attention is compared at, verified: every stage, every gradient, the op against its definition.

    python examples/attention_shapes.py [--vs sdpa,flex] [--device cuda] [--divide N]

Causal, bf16 on a GPU, [batch, query heads, key heads, tokens, width]: [2, 32, 8, 1024, 128], [1, 64, 8, 4096, 128],
[1, 32, 32, 512, 128], [1, 16, 1, 512, 128]. Each is a run of `chunkwise verify flash --backward`; with --vs other
implementations stand beside it. --divide makes tokens and width so many times smaller: 1 on a GPU, 8 on a CPU, where
the whole shapes take minutes each. Exit 1 where one of the shapes is wrong.
"""

import argparse
import sys

from chunkwise.runner.main import main as chunkwise
from chunkwise.runner.script import device_option, peer_names, told, whole

SHAPES = ((2, 32, 8, 1024, 128), (1, 64, 8, 4096, 128), (1, 32, 32, 512, 128), (1, 16, 1, 512, 128))
WITHOUT = "lengths,sinks,slopes,lse"
"""Plain attention, which other implementations have too."""


def command(shape: tuple[int, ...], divide: int) -> list[str]:
    B, HQ, H, tokens, width = shape
    N, D = max(1, tokens // divide), max(16, width // divide)
    axes = f"B={B},HQ={HQ},H={H},Sq={N},Sk={N},D={D},DV={D}"
    return ["verify", "flash", "--backward", "--axes", axes, "--without", WITHOUT]


@told
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vs", type=peer_names, default=[], metavar="sdpa,flex")
    parser.add_argument("--divide", type=whole, metavar="N")
    device_option(parser)
    args = parser.parse_args(argv)
    more = ["--device", str(args.device), *(["--vs", ",".join(args.vs)] if args.vs else [])]
    divide = args.divide or (1 if args.device.type == "cuda" else 8)
    return max(chunkwise([*command(shape, divide), *more]) for shape in SHAPES)


if __name__ == "__main__":
    sys.exit(main())
