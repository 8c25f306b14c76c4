"""Packed sequences: checked lengths, and the tables that kernels read."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import index

import torch

from ...stages._contract import ceil_div
from ...stages._seqs import Seqs
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from .dtypes import other_layout

Tables = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Packing:
    """How one call packs its tokens. lengths: of each sequence, on the host; the caller's tensors are not kept."""

    lengths: tuple[int, ...]
    device: torch.device

    @property
    def N(self) -> int:
        return len(self.lengths)

    def on_host(self) -> tuple[int, ...]:
        return self.lengths


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
    if not lengths and seqlens is not None:
        refuse("there is no sequence: seqlens is empty")
    if not lengths:
        refuse("there is no sequence: cu_seqlens has fewer than 2 entries", STARTS)
    if sum(lengths) > sizes["T"]:
        refuse(f"the sequences have {sum(lengths)} tokens in all, the tensors have T = {sizes['T']}")
    if cu_seqlens is not None and seqlens is not None:
        check_agreement(cu_seqlens, lengths)
    return Packing(lengths, device)


def lengths_of(cu_seqlens: torch.Tensor) -> tuple[int, ...]:
    """The lengths that a tensor says, checked."""
    check_tensor(cu_seqlens, getattr(cu_seqlens, "device", None))
    return tensor_lengths(cu_seqlens)


STARTS = "cu_seqlens holds 0 and then the end of each sequence: lengths 3, 5 are [0, 3, 8]"


TENSOR = "lengths 3, 5 are torch.tensor([0, 3, 8]); an op takes them as a list too, as seqlens=[3, 5]"


def check_tensor(cu_seqlens, device: torch.device, name: str = "cu_seqlens") -> None:
    """Kind, shape, dtype and device. name: as the caller knows it."""
    if isinstance(cu_seqlens, torch.Tensor) and (layout := other_layout(cu_seqlens)):
        refuse(f"{name} must be a dense tensor, it is {layout}")
    if not isinstance(cu_seqlens, torch.Tensor) or cu_seqlens.dim() != 1:
        what = f"has the shape {list(cu_seqlens.shape)}" if isinstance(cu_seqlens, torch.Tensor) else "is no tensor"
        refuse(f"{name} must be a tensor [N + 1], it {what}", TENSOR)
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        dtype = str(cu_seqlens.dtype).removeprefix("torch.")
        refuse(f"{name} must be int32 or int64, it is {dtype}", f"pass {name}.to(torch.int32)")
    if cu_seqlens.device != device:
        refuse(f"{name} is on {cu_seqlens.device}, the tensors are on {device}", f"pass {name}.to('{device}')")


def check_agreement(cu_seqlens: torch.Tensor, lengths: tuple[int, ...]) -> None:
    """cu_seqlens against host lengths: how many always, the values where that waits for no device."""
    if cu_seqlens.shape[0] != len(lengths) + 1:
        refuse(f"cu_seqlens has {cu_seqlens.shape[0] - 1} sequences, the lengths on the host have {len(lengths)}")
    ends = [0, *accumulate(lengths)]
    if cu_seqlens.device.type == "cpu" and cu_seqlens.tolist() != ends:
        refuse(f"cu_seqlens is {cu_seqlens.tolist()}, and the lengths on the host make it {ends}")


def host_lengths(seqlens, name: str = "seqlens", of: str = "sequence") -> tuple[int, ...]:
    """Whole numbers as a caller gives them, under an argument's name. of: what each is the length of."""
    listed = f"pass the lengths, as in {name}=[100, 0, 28]"
    if isinstance(seqlens, torch.Tensor):
        if seqlens.device.type != "cpu":
            refuse(f"{name} is on {seqlens.device}, it must be on the host", "pass cu_seqlens alone, or a list")
        if layout := other_layout(seqlens):
            refuse(f"{name} must be a dense tensor, it is {layout}")
        seqlens = seqlens.tolist()
    if isinstance(seqlens, Set | Mapping | bytes | bytearray):
        kind = type(seqlens).__name__
        refuse(f"{name} must be whole numbers in the order of the {of}s, it is a {kind}", listed)
    try:
        lengths = tuple(whole(length) for length in seqlens)
    except TypeError:
        refuse(f"{name} must be whole numbers, it is {seqlens!r:.80}", listed)
    for at, length in enumerate(lengths):
        if length < 0:
            refuse(f"{name} gives {of} {at} the length {length}")
    return lengths


def whole(length) -> int:
    """A whole number of any type; True is none."""
    if isinstance(length, bool):
        raise TypeError
    return index(length)


def tensor_lengths(cu_seqlens: torch.Tensor, name: str = "cu_seqlens") -> tuple[int, ...]:
    """The lengths that checked starts and ends say. name: as the caller knows them."""
    if is_captured(cu_seqlens.device):
        refuse("cu_seqlens cannot be checked while a CUDA graph is captured", "pass the lengths too: seqlens=[...]")
    ends = cu_seqlens.tolist()
    if ends and ends[0] != 0:
        refuse(f"{name} must start at 0, it starts at {ends[0]}", STARTS)
    for at, (start, end) in enumerate(zip(ends, ends[1:])):
        if end < start:
            message = f"{name} must not decrease: sequence {at} would go from {start} to {end}"
            refuse(message, STARTS)
    return tuple(end - start for start, end in zip(ends, ends[1:]))


def is_captured(device: torch.device) -> bool:
    """Whether what is launched on a device now goes into a CUDA graph."""
    if device.type != "cuda":
        return False
    if device.index == torch.cuda.current_device():  # to switch to it would cost microseconds
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def host_tables(lengths: tuple[int, ...], NT: int, C: int) -> Tables:
    """(cu_seqlens [N + 1], chunk_table [NT, 2], chunk_offsets [N + 1]) as Seqs has them, int32, on the host."""
    with torch.device("cpu"):
        counts = torch.tensor([ceil_div(length, C) for length in lengths])
        cu_seqlens = torch.tensor([0, *accumulate(lengths)])
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        sequence = torch.repeat_interleave(torch.arange(len(lengths)), counts)
        used = torch.stack([sequence, torch.arange(len(sequence)) - offsets[sequence]], 1)
        table = torch.cat([used, torch.tensor([[-1, 0]]).expand(NT - len(used), 2)])
    return cu_seqlens.int(), table.int(), offsets.int()


@lru_cache(maxsize=256)
def tables_by_stream(lengths: tuple[int, ...], NT: int, C: int, device: torch.device) -> dict[int, Tables]:
    """The copies of a packing's tables on a device, by value and by the stream that copied them: another stream could
    read them too early."""
    return {}


_captured: dict[tuple, Tables] = {}
"""Tables that CUDA graphs read at every replay: never freed."""


def device_tables(lengths: tuple[int, ...], NT: int, C: int, device: torch.device) -> Tables:
    """The tables on the device, copied without waiting for it. During a capture nothing can be copied."""
    key = (lengths, NT, C, device)
    copies = tables_by_stream(*key)
    if is_captured(device):
        if key not in _captured and not copies:
            refuse(
                "these lengths are new, and a CUDA graph is being captured", "call once before, with the same lengths"
            )
        return _captured.setdefault(key, next(iter(copies.values()), None))
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    if stream not in copies:
        copies[stream] = tuple(to_device(x, device) for x in host_tables(lengths, NT, C))
    return copies[stream]


def to_device(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


plain_seqs = lru_cache(maxsize=256)(Seqs)


def seqs_of(packing: Packing | None, sizes) -> Seqs:
    """What launchers see. A pipeline without chunks has C = 1 and no use for the tables."""
    T, C, N = sizes.get("T", 1), sizes.get("C", 1), sizes.get("N", 1)
    NT = sizes.get("NT", T)
    if packing is None:
        return plain_seqs(N, T, C, NT)
    cu_seqlens, table, offsets = device_tables(packing.lengths, NT, C, packing.device)
    return Seqs(N, T, C, NT, cu_seqlens, table, offsets, packing.lengths)
