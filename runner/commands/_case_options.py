"""Options that say what bench measures, but for the pipelines."""

import argparse
from collections.abc import Iterator

from ..planning.dtypes import IO_DTYPES
from ..planning.plan import BACKENDS
from ..rewriting.recurrent import MODES
from ..workloads import WORKLOADS
from ._options import HEADS, STEPS, backward_options, fusion_option, seed, stage_folders

SWEEP_HELP = "write T=1k..64k*2 (each twice the one before), T=64..256+64 (each 64 more), or H=16,96"


def case_options(parser) -> None:
    stage_folders(parser)
    parser.add_argument("--workload", metavar="NAME,...", help=f"of {', '.join(WORKLOADS)}; {STEPS}")
    parser.add_argument("--axes", default="", metavar="B=1,T=4096", help=f"sizes, over the workload's; {HEADS}")
    over = f"in turn, over --axes: {SWEEP_HELP}"
    parser.add_argument("--sweep", action="append", default=[], metavar="T=1k..64k*2", help=over)
    parser.add_argument("--dtype", metavar="bf16,fp32", help=f"of {', '.join(IO_DTYPES)} (bf16 on a GPU, fp32 without)")
    parser.add_argument("--mode", default="auto", metavar="chunk,recurrent", help=f"of {', '.join(MODES)}")
    parser.add_argument("--device", metavar="cpu|cuda[:N]", help="where to run (a GPU if there is one)")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="auto: triton on a GPU, reference without")
    fusion_option(parser)
    parser.add_argument("--seqlens", metavar="100,0,28", help="lengths of packed sequences (B = 1)")
    parser.add_argument("--without", metavar="NAME,...", help="optional inputs and outputs to leave out")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the generated inputs")
    backward_options(parser, "forward, rebuild and backward, each stage of them")


def given(args) -> dict[str, object]:
    """Those that were given, by option."""
    usual = argparse.ArgumentParser(add_help=False)
    case_options(usual)
    defaults = vars(usual.parse_args([])).items()
    return {f"--{name.replace('_', '-')}": getattr(args, name) for name, usually in defaults
            if getattr(args, name) != usually}  # fmt: skip


def words(options: dict[str, object]) -> Iterator[str]:
    """As a command line has them."""
    for option, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            yield from (option,) if each is True else (option, str(each))
