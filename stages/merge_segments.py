"""The state that each sequence here starts from: its own, and what comes in from the ranks before.

    S = 0;  for r in first, .., first + count - 1:  S <- map_r S + state_r
    start[n] = initial_state[n] + S of lane n, for the first LANES sequences; initial_state[n], or 0, for the others

A plain batch has a lane for each sequence. Packed sequences have one: only the first one here can come in from before.
A count of 0 means that it does not.
"""

from ._contract import F32, Contract, Launcher, Port
from ._merge import INPUTS, SCRATCH, merge_configs, merge_launches, merged
from ._tiles import width_limits

CONTRACT = Contract(
    inputs={
        **INPUTS,
        "states": Port("RANKS LANES HV K V", F32, unit="state/segment_end"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"start": Port("N HV K V", F32, unit="state/sequence_start")},
    requires=("LANES <= N",),
    params={"first": 0, "count": 2},
    flops="2 * RANKS * LANES * HV * K * K * V",
    across=True,
)


def reference(maps, decays, states, initial_state, *, N, first, count):
    """maps [RANKS, LANES, HV, K, K], decays [.., K], states [.., K, V], initial_state [N, HV, K, V]."""
    entered = merged(maps, decays, states, range(first, first + count), reverse=False)
    start = entered.new_zeros(N, *entered.shape[1:]) if initial_state is None else initial_state.clone()
    start[: len(entered)] += entered
    return {"start": start}


def launch(maps, decays, states, initial_state, start, passed, *, first, count, seqs, config):
    given = dict(first=first, count=count, reverse=False, config=config)
    return merge_launches(maps, decays, states, initial_state, start, passed, **given)


LAUNCHERS = [Launcher("triton", launch, merge_configs, width_limits, SCRATCH)]
