"""States of the whole call's sequences, [N, ...], and those of the pieces that lie here. Both ways are differentiable.

A whole state has the rows of all sequences on every rank. Of initial states a rank reads those of the sequences that
begin on it; of final states it fills those of the sequences that end on it, the others are 0. So what a rank returns,
and the gradient that it gives, is its share: added over the ranks it is what one process would return.
"""

import torch

from .cut import Cut


def states_here(whole: torch.Tensor, cut: Cut) -> torch.Tensor:
    """[total, ...] -> [N here, ...]: of sequences that come in from the rank before, 0."""
    rows = torch.tensor([max(n, 0) for n in cut.of], device=whole.device)
    begins = torch.tensor([n >= 0 and here for n, here in zip(cut.of, cut.begins)], device=whole.device)
    found = whole.index_select(0, rows) if len(whole) else whole.new_zeros(len(cut.of), *whole.shape[1:])
    return torch.where(begins.view(-1, *[1] * (whole.dim() - 1)), found, 0)


def whole_states(here: torch.Tensor, cut: Cut) -> torch.Tensor:
    """[N here, ...] -> [total, ...]: of sequences that end on another rank, 0."""
    places = [place for place, (n, end) in enumerate(zip(cut.of, cut.ends)) if n >= 0 and end]
    rows = torch.tensor([cut.of[place] for place in places], dtype=torch.long, device=here.device)
    ended = here.index_select(0, torch.tensor(places, dtype=torch.long, device=here.device))
    return here.new_zeros(cut.total, *here.shape[1:]).index_copy(0, rows, ended)
