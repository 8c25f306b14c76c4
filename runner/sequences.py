"""Packed sequences: checked lengths, chunk tables, and rows past the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index

import torch

from ..stages._contract import ceil_div
from ..stages._seqs import Seqs
from . import codes
from .errors import ChunkwiseError, Diagnostic


@dataclass(frozen=True)
class Packing:
    """How one call packs its tokens. cu_seqlens [N + 1] on the tensors' device; lengths on the host where known."""

    cu_seqlens: torch.Tensor
    lengths: tuple[int, ...] | None

    @property
    def N(self) -> int:
        return self.cu_seqlens.shape[0] - 1

    def on_host(self) -> tuple[int, ...]:
        """The lengths; waits for the device when the caller did not give them."""
        if self.lengths is not None:
            return self.lengths
        return tuple(self.cu_seqlens.diff().tolist())


def refuse(message: str, help: str | None = None):
    raise ChunkwiseError(Diagnostic(codes.BAD_SEQLENS, message, help=help))


def read_packing(cu_seqlens, seqlens: Sequence[int] | None, sizes, device: torch.device) -> Packing | None:
    """Check what the caller gave. cu_seqlens without seqlens is read back once, to be checked: pass seqlens
    (the lengths, on the host) to keep the device running ahead."""
    if cu_seqlens is None and seqlens is None:
        return None
    if "T" not in sizes or "B" not in sizes:
        refuse("this pipeline has no axes B and T along which sequences could be packed")
    if sizes["B"] != 1:
        refuse(f"packed sequences need B = 1, here B = {sizes['B']}", "concatenate the sequences along T")
    if cu_seqlens is not None:
        check_tensor(cu_seqlens, device)
    lengths = tensor_lengths(cu_seqlens) if seqlens is None else host_lengths(seqlens)
    if not lengths:
        refuse("there is no sequence: cu_seqlens has fewer than 2 entries", STARTS)
    if sum(lengths) > sizes["T"]:
        refuse(f"the sequences have {sum(lengths)} tokens in all, the tensors have T = {sizes['T']}")
    if seqlens is None:
        return Packing(cu_seqlens.contiguous(), lengths)
    packing = Packing(cumulative(lengths, device), lengths)
    if cu_seqlens is not None:
        check_agreement(cu_seqlens, packing)
    return packing


STARTS = "cu_seqlens holds 0 and then the end of each sequence: lengths 3, 5 are [0, 3, 8]"


def check_tensor(cu_seqlens, device: torch.device) -> None:
    if not isinstance(cu_seqlens, torch.Tensor) or cu_seqlens.dim() != 1:
        what = f"has the shape {list(cu_seqlens.shape)}" if isinstance(cu_seqlens, torch.Tensor) else "is no tensor"
        refuse(f"cu_seqlens must be a tensor [N + 1], it {what}", "for lengths as a list, pass seqlens=[...]")
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        dtype = str(cu_seqlens.dtype).removeprefix("torch.")
        refuse(f"cu_seqlens must be int32 or int64, it is {dtype}", "pass cu_seqlens.to(torch.int32)")
    if cu_seqlens.device != device:
        refuse(f"cu_seqlens is on {cu_seqlens.device}, the tensors are on {device}", f"pass cu_seqlens.to('{device}')")


def check_agreement(cu_seqlens: torch.Tensor, packing: Packing) -> None:
    """cu_seqlens against host lengths: how many always, the values where that waits for no device."""
    if cu_seqlens.shape != packing.cu_seqlens.shape:
        refuse(f"cu_seqlens has {cu_seqlens.shape[0] - 1} sequences, seqlens has {packing.N}")
    if cu_seqlens.device.type == "cpu" and not torch.equal(cu_seqlens.long(), packing.cu_seqlens.long()):
        refuse(f"cu_seqlens is {cu_seqlens.tolist()}, and the lengths in seqlens make it {packing.cu_seqlens.tolist()}")


def host_lengths(seqlens) -> tuple[int, ...]:
    try:
        lengths = tuple(index(length) for length in seqlens)
    except TypeError:
        refuse(f"seqlens must be whole numbers, it is {seqlens!r:.80}", "pass the lengths, as in seqlens=[100, 0, 28]")
    for at, length in enumerate(lengths):
        if length < 0:
            refuse(f"seqlens gives sequence {at} the length {length}")
    return lengths


def tensor_lengths(cu_seqlens: torch.Tensor) -> tuple[int, ...]:
    if cu_seqlens.is_cuda and torch.cuda.is_current_stream_capturing():
        refuse("cu_seqlens cannot be checked while a CUDA graph is captured", "pass the lengths too: seqlens=[...]")
    ends = cu_seqlens.tolist()
    if ends and ends[0] != 0:
        refuse(f"cu_seqlens must start at 0, it starts at {ends[0]}", STARTS)
    for at, (start, end) in enumerate(zip(ends, ends[1:])):
        if end < start:
            message = f"cu_seqlens must not decrease: sequence {at} would go from {start} to {end}"
            refuse(message, STARTS)
    return tuple(end - start for start, end in zip(ends, ends[1:]))


@lru_cache(maxsize=256)
def cumulative(lengths: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """cu_seqlens of host lengths; cached by value, never by address."""
    ends = torch.tensor((0, *lengths), dtype=torch.int64).cumsum(0).to(torch.int32)
    return ends.to(device)


@lru_cache(maxsize=256)
def chunk_tables(lengths: tuple[int, ...], NT: int, C: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(chunk_table [NT, 2], chunk_offsets [N + 1]) of host lengths; cached by value."""
    rows = [(n, i) for n, length in enumerate(lengths) for i in range(ceil_div(length, C))]
    table = torch.tensor(rows + [(-1, 0)] * (NT - len(rows)), dtype=torch.int32).reshape(NT, 2)
    counts = torch.tensor([0, *(ceil_div(length, C) for length in lengths)], dtype=torch.int32)
    return table.to(device), counts.cumsum(0).to(torch.int32).to(device)


def seqs_of(packing: Packing | None, sizes) -> Seqs:
    """What launchers see. A pipeline without chunks has C = 1 and no use for the tables."""
    T, C, N = sizes.get("T", 1), sizes.get("C", 1), sizes.get("N", 1)
    NT = sizes.get("NT", T)
    if packing is None:
        return Seqs(N, T, C, NT)
    table, offsets = chunk_tables(packing.lengths, NT, C, packing.cu_seqlens.device)
    return Seqs(N, T, C, NT, packing.cu_seqlens, table, offsets, packing.lengths)
