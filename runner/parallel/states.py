"""States of the whole call's sequences, [N, ...], and those of the pieces that lie here. Both ways are differentiable.

A whole state has the rows of all sequences on every rank. Of initial states a rank reads those of the sequences that
begin on it; of final states it fills those of the sequences that end on it, the others are 0. So what a rank returns,
and the gradient that it gives, is its share: added over the ranks it is what one process would return.
"""

from collections.abc import Sequence

import torch

from .cut import Cut


def states_here(whole: torch.Tensor, cut: Cut, held: Sequence[bool]) -> torch.Tensor:
    """[total, ...] -> [N here, ...]. held: which sequences here this rank has the state of (cut.begins, cut.ends); of
    the others, 0."""
    rows = torch.tensor([max(n, 0) for n in cut.of], dtype=torch.long, device=whole.device)
    mine = torch.tensor([n >= 0 and each for n, each in zip(cut.of, held)], dtype=torch.bool, device=whole.device)
    found = whole.index_select(0, rows) if len(whole) else whole.new_zeros(len(cut.of), *whole.shape[1:])
    return torch.where(mine.view(-1, *[1] * (whole.dim() - 1)), found, 0)


def whole_states(here: torch.Tensor, cut: Cut, held: Sequence[bool]) -> torch.Tensor:
    """[N here, ...] -> [total, ...]: of sequences that this rank does not have the state of, 0."""
    places = [place for place, (n, each) in enumerate(zip(cut.of, held)) if n >= 0 and each]
    rows = torch.tensor([cut.of[place] for place in places], dtype=torch.long, device=here.device)
    mine = here.index_select(0, torch.tensor(places, dtype=torch.long, device=here.device))
    return here.new_zeros(cut.total, *here.shape[1:]).index_copy(0, rows, mine)
