"""Named sizes that people compare on. Sources: fla's benchmark shapes; Qwen3.5's gated delta layer."""

from collections.abc import Mapping

WORKLOADS: Mapping[str, Mapping[str, int]] = {
    "tiny": dict(B=1, T=256, H=2, HV=4, K=32, V=32),
    "B1_T8192_H96_D128": dict(B=1, T=8192, H=96, HV=96, K=128, V=128),
    "B2_T16384_H16_D128": dict(B=2, T=16384, H=16, HV=16, K=128, V=128),
    "B4_T2048_H16_D128": dict(B=4, T=2048, H=16, HV=16, K=128, V=128),
    "B4_T4096_H64_D128": dict(B=4, T=4096, H=64, HV=64, K=128, V=128),
    "B8_T2048_H32_D256": dict(B=8, T=2048, H=32, HV=32, K=256, V=256),
    "B8_T1024_H8_D64": dict(B=8, T=1024, H=8, HV=8, K=64, V=64),
    "T32768_H16_HV32_D128": dict(B=1, T=32768, H=16, HV=32, K=128, V=128),
}


def other_axes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of the axes that only some ops have: D, the side of a square state or the width of a key, DI channels with
    NS states each; and those of attention."""
    steps = {"D": sizes["K"], "DI": sizes["HV"] * sizes["V"], "NS": sizes["K"]}
    return steps | attention_axes(sizes)


def attention_axes(sizes: Mapping[str, int]) -> dict[str, int]:
    """HQ query heads, Sq queries and Sk keys, DV value columns, ND sequences one after another; of a cache, PAGES of
    PAGE rows, NP for each sequence; of a latent, its width DC, and key widths without and with positions, DN and DR; of
    an indexer, HI heads of width KI; NB blocks of M tokens each; GO groups of HG heads, projected to DO columns."""
    K, pages, groups = sizes["K"], -(-sizes["T"] // PAGE), max(1, sizes["HV"] // 2)
    whole = {"HQ": sizes["HV"], "Sq": sizes["T"], "Sk": sizes["T"], "DV": sizes["V"], "ND": 4}
    cache = {"PAGE": PAGE, "NP": pages, "PAGES": sizes["B"] * pages}
    latent = {"DC": 4 * K, "DN": K, "DR": max(1, K // 2), "HI": groups, "KI": K}
    blocks = {"M": BLOCK, "NB": -(-sizes["T"] // BLOCK), "GO": groups, "HG": 2, "DO": sizes["V"]}
    return whole | cache | latent | blocks


PAGE, BLOCK = 64, 4
SMALL = dict(B=2, T=130, H=2, HV=4, K=32, V=48)
"""Where ``run`` verifies before it times: ragged, grouped heads, K different from V."""
