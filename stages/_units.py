"""The closed list of units. A unit is part of an edge's type; each has its law in words."""

UNITS = {
    "log_decay/ln/token": "natural log of the factor by which the state decays at this token",
    "log_decay/log2/chunk_sum": "base-2 log decay summed from the chunk's first token to this one, inclusive",
    "log_decay/log2/chunk_total": "base-2 log decay of a whole chunk: the chunk sum at its last valid row",
    "decay/linear/token": "the factor itself by which the state decays at this token, 0 to 1",
    "log_decay/ln/slope": "natural log decay per token, fixed for a head",
    "state/sequence_start": "the state before a sequence's first token",
    "state/sequence_end": "the state after a sequence's last token",
    "state/chunk_entry": "the state entering each chunk, before the chunk's own decay",
    "state/slot": "the states of many sequences, each in its own row, before a call's first token and after its last",
    "index/slot": "the row of the states that a sequence owns; -1 for a sequence that is to be skipped",
    "index/first_key": "of each query, the first key that it sees; never falls along the queries of a sequence",
    "index/end_key": "of each query, one more than the last key that it sees; never falls; not above the first: none",
    "index/own_key": "of each query, the key that stands at its own place",
    "lse/ln": "natural log of the sum of exp of the scores that a query sees; -inf for a query that sees none",
    "gram/strict_lower/gated": "A[i, j] = beta_i <k_i, k_j> 2^(g_i - g_j) for j < i in the chunk, else 0",
    "gram/strict_lower/ungated": "A[i, j] = beta_i <k_i, k_j> for j < i in the chunk, else 0",
    "gram/unit_lower_inverse/gated": "(I + A)^-1 of the gated strict lower Gram matrix",
    "gram/unit_lower_inverse/ungated": "(I + A)^-1 of the ungated strict lower Gram matrix",
    "wy/decayed_key": "w = Ai (beta 2^g k): what each row reads from the state that enters its chunk",
    "wy/value": "u = Ai (beta v): the row's write if the entering state were zero",
    "attention/lower/gated": "A[i, j] = scale sum over K of q_i k_j 2^(b_i - b_j) for j <= i in the chunk, else 0",
    "query/decayed": "scale 2^b q: what each row reads from the state that enters its chunk",
    "key/decayed": "2^b k: each row's key against the state that enters its chunk",
    "key/to_chunk_end": "2^(b_C - b) k: what each row's key leaves in the state at its chunk's end",
}
"""Unit name -> its law in words."""
