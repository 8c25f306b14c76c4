"""Train a two-layer model on one long text that is cut over the ranks: the losses of one process, on any number.

The first layer is linear attention, gated_delta, the second softmax attention, flash_varlen; documents of several
lengths are packed and cut wherever a rank ends, and the first ranks have a row more where that is left. Weights are
sharded by PyTorch's FSDP over the same ranks, activations are checkpointed. Rank 0 trains the same model alone beside
it and exits 1 where the losses part by more than float32 explains:

    torchrun --nproc-per-node 2 examples/context_parallel/train.py [--steps 6]
"""

import argparse
import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from chunkwise.runner import load
from chunkwise.runner.parallel.torchrun import require_ranks
from chunkwise.runner.script import told, whole

DOCUMENTS = (37, 251, 140, 85)
WIDTH, HEADS, HEAD = 64, 2, 32
CLOSE = 1e-4
"""Of two losses: float32 sums in another order, and what some steps of training make of that."""


class Block(nn.Module):
    """A block around one op: what it reads are projections of the rows, which are the rank's own. rows: of each rank,
    None on one process."""

    def __init__(self, pipeline: str, rows: list[int] | None):
        super().__init__()
        op = load(pipeline)
        self.op = partial(op.context_parallel(), rows=rows) if rows else op
        self.norm, self.out = nn.RMSNorm(WIDTH), nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.qkv = nn.Linear(WIDTH, 3 * HEADS * HEAD, bias=False)

    def forward(self, x: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
        """x [1, T here, WIDTH]. lengths: of the documents, whole."""
        y = self.norm(x)
        q, k, v = self.qkv(y).unflatten(-1, (3, HEADS, HEAD)).unbind(2)
        return x + self.out(self.mix(y, q, nn.functional.normalize(k, dim=-1), v, lengths).flatten(2))


class Linear(Block):
    def __init__(self, rows: list[int] | None):
        super().__init__("gated_delta", rows)
        self.gates = nn.Linear(WIDTH, 2 * HEADS)

    def mix(self, y, q, k, v, lengths) -> torch.Tensor:
        g, beta = self.gates(y).chunk(2, -1)
        gates = {"g": nn.functional.logsigmoid(g + 3), "beta": beta.sigmoid()}
        return self.op(q=q, k=k, v=v, **gates, seqlens=lengths, outputs=["o"]).o


class Softmax(Block):
    def __init__(self, rows: list[int] | None):
        super().__init__("flash_varlen", rows)

    def mix(self, y, q, k, v, lengths) -> torch.Tensor:
        ends = torch.tensor(lengths, device=y.device).cumsum(0)
        return self.op(q=q, k=k, v=v, q_ends=ends, k_ends=ends, scale=1, outputs=["o"]).o


class Model(nn.Module):
    def __init__(self, rows: list[int] | None):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(256, WIDTH), nn.Linear(WIDTH, 256, bias=False)
        self.layers = nn.ModuleList([Linear(rows), Softmax(rows)])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, DOCUMENTS, use_reentrant=False)
        return self.head(x)


def text() -> torch.Tensor:
    """[1, T + 1] bytes that a model can learn something of."""
    noise = torch.randint(0, 8, (1, sum(DOCUMENTS) + 1), generator=torch.Generator().manual_seed(1))
    return (noise + 17 * torch.arange(noise.shape[1]) % 97) % 256


def train(steps: int, rank: int, ranks: int, parallel: bool, device: torch.device) -> list[float]:
    """The loss before each step: the mean over all tokens, whoever holds them."""
    tokens, whole = text().to(device), sum(DOCUMENTS)
    places = torch.arange(whole).tensor_split(ranks)
    mine = places[rank].to(device)
    model = Model([len(each) for each in places] if parallel else None).to(device)
    if parallel:
        for each in (*model.layers, model):
            fully_shard(each)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        logits = model(tokens[:, mine])
        total = nn.functional.cross_entropy(logits[0], tokens[0, mine + 1], reduction="sum")
        # FSDP takes the mean over the ranks, and each has a share of one sum
        (total * ranks / whole).backward()
        optimiser.step()
        optimiser.zero_grad()
        total = total.detach()
        if parallel:
            dist.all_reduce(total)
        losses.append(total.item() / whole)
    return losses


@told
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=whole, default=6)
    steps = parser.parse_args(argv).steps
    require_ranks("train.py", "examples/context_parallel/train.py")
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    cut, alone = train(steps, rank, ranks, True, device), train(steps, 0, 1, False, device)
    dist.destroy_process_group()
    if rank == 0:
        print(f"step  loss on {ranks} ranks  on one")
        for step, (here, there) in enumerate(zip(cut, alone)):
            print(f"{step:4d}  {here:15.6f}  {there:6.6f}")
    return 0 if all(abs(here - there) <= CLOSE * there for here, there in zip(cut, alone)) else 1


if __name__ == "__main__":
    sys.exit(main())
