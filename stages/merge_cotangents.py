"""The cotangent of the state that each sequence here ends with: its own, and what comes back from the ranks after.

    D = 0;  for r in last, .., last - count + 1:  D <- map_r^T D + cotangent_r
    end[n] = d_final_state[n] + D of its lane, for the last LANES sequences; d_final_state[n], or 0, for the others

The mirror of merge_segments: a state that goes on to the ranks after is read there, through the same maps.
"""

from ._contract import F32, Contract, Launcher, Port
from ._merge import INPUTS, SCRATCH, merge_configs, merge_launches, merged
from ._tiles import width_limits

CONTRACT = Contract(
    inputs={
        **INPUTS,
        "cotangents": Port("RANKS LANES HV K V", F32, unit="cotangent/state/segment_start"),
        "d_final_state": Port("N HV K V", F32, unit="cotangent/state/sequence_end", optional=True),
    },
    outputs={"end": Port("N HV K V", F32, unit="cotangent/state/sequence_end")},
    requires=("LANES <= N",),
    params={"last": 1, "count": 2},
    flops="2 * RANKS * LANES * HV * K * K * V",
    across=True,
)


def reference(maps, decays, cotangents, d_final_state, *, N, last, count):
    """maps [RANKS, LANES, HV, K, K], decays [.., K], cotangents [.., K, V], d_final_state [N, HV, K, V]."""
    entered = merged(maps, decays, cotangents, range(last, last - count, -1), reverse=True)
    end = entered.new_zeros(N, *entered.shape[1:]) if d_final_state is None else d_final_state.clone()
    end[N - len(entered) :] += entered
    return {"end": end}


def launch(maps, decays, cotangents, d_final_state, end, passed, *, last, count, seqs, config):
    given = dict(first=last, count=count, reverse=True, config=config)
    return merge_launches(maps, decays, cotangents, d_final_state, end, passed, **given)


LAUNCHERS = [Launcher("triton", launch, merge_configs, width_limits, SCRATCH)]
