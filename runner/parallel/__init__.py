"""Sequences cut across the ranks of a process group: context parallel pipelines on torch.distributed.

Every rank holds some of the rows. A scan's state is all that crosses a cut, and a piece of a sequence acts on it as an
affine map, S -> M S + H. So the pipeline stays as it is, but for its scan (split_graph.py):

    forward    scan.segment     (M, H) of each piece here; H from initial_state where a sequence begins here
               scan.gather      the maps of all ranks, on all ranks
               scan.enter       what the ranks before make of them: the state that each piece starts from
               scan             as before, from that state
    backward   scan.vjp.segment the cotangent of the state that enters each piece, had none come back from later ranks
               scan.vjp.gather  those of all ranks, on all ranks
               scan.vjp.enter   what the ranks after make of them, through the transposed maps
               scan.vjp         as before, with that as the cotangent of its final state

Stages are fused before the cut, as they are on one GPU (split_op.py): whoever does the scan's work, with its output
say, names the stage that gives the map from what it reads itself, and takes the state that comes in. So does what
stands for the scan's gradient. What is placed has the scan's name all the same.

No gradient goes through the maps: the scan is seeded with the state that the sequence really has there, and its
gradient with the cotangent that it really has there, so each rank's own vjp gives the gradients of its own rows.

What is sent does not depend on T: K (K + V) float32 numbers a head forward (K + K V where a state only decays), K V
backward, from each rank to each. Where no sequence lies on three ranks, no map is made or sent; and of more than two
ranks each then sends its state to the next one alone, ``scan.pass`` in place of ``scan.gather`` (reach_of in
split_graph.py).

A scan says which stage gives its map by ``SEGMENT = "..."`` in its file. A stage that holds a state of each sequence
and says no such thing cannot be cut, and is refused.

Softmax attention needs the keys of all ranks instead: they are gathered around it, and their gradients scattered
(gather_graph.py). Its stages say so by ``GATHERED = "Sk"``.

    cut.py             which rows of which sequences lie on which rank: host numbers only
    split_graph.py     the rewrite of scans, and what cannot be cut
    exchange_stage.py  their stage of communication, bound to a process group
    gather_graph.py    the rewrite of attention
    gather_stage.py    its stages of communication
    kept.py            what a rewritten graph keeps for its backward pass
    split_op.py        an op's split graphs, fused before they are cut, and their plans
    agreement.py       whether all ranks mean the same call, asked before the first launch
    whole_numbers.py   inputs that are the same on every rank: where documents end
    lost_rank.py       a collective that fails: one readable message
    states.py          states of whole sequences <-> states of the pieces here
    parallel_op.py     the op: load(PIPE).context_parallel(mesh)
    parallel_library_op.py   the same as torch.compile sees it
    segmented_op.py    the same cut on one device, a piece after the other: load(PIPE).in_segments(chunks=n)
    segmented_call.py  one such call: what calls of a signature share, and the forward pass
    segmented_training.py    the same under autograd
    rows.py            a segment's rows of tensors
    segment_states.py  the states on the way, and their cotangents on the way back
    verify_ranks.py    what all ranks make together, against the definition and one process
    rank_clock.py      a clock that runs a thing equally often on every rank
    cost_model.py      what more ranks would cost
"""
