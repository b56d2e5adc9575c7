"""Cuts a batch into parts of some samples, so that what comes of it can be compared with what comes of them."""

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import torch

from nfold.capture.batches.example import Example
from nfold.capture.batches.tree import map_tensors, may_list_samples, tensors_of
from nfold.capture.computing.step_outcome import close

PARTS = (5, 4, 3)
"""Uneven, so that a sum or an unweighted mean shows."""
SIZE = sum(PARTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchCut:
    """A batch, and the same samples in parts that are batches themselves."""

    whole: tuple[Any, Any]
    parts: list[tuple[Any, Any]]
    sizes: tuple[int, ...]
    """Samples of each part."""
    is_padded: bool = False
    """Whether parts are joined by themselves, and may be shorter than the whole."""

    @property
    def size(self) -> int:
        """The number of samples of the batch."""
        return sum(self.sizes)


def cut_example(example: Example, which: int, sizes: tuple[int, ...] = PARTS) -> BatchCut:
    """Return a batch and its chunks, which are padded by themselves where the program joins items itself."""
    is_padded = bool(example.varying)
    if joined := example.parts(sizes, which):
        return BatchCut(whole=joined[0], parts=joined[1], sizes=sizes, is_padded=is_padded)
    return cut_rows(example.batch(sum(sizes), which), sizes)


def cut_rows(batch: tuple[Any, Any], sizes: tuple[int, ...]) -> BatchCut:
    """Cut a batch whose parts are its rows."""
    parts = list(zip(split(batch[0], sizes), split(batch[1], sizes), strict=True))
    return BatchCut(whole=batch, parts=parts, sizes=sizes)


def is_all_rows(batch: tuple[Any, Any]) -> bool:
    """Whether each tensor of a batch has one row for each sample, and no list has one entry for each."""
    if may_list_samples(batch, SIZE):
        return False
    return all(tensor.ndim and len(tensor) == SIZE for tensor in tensors_of(batch))


def split(value: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Return copies of a value for parts of `sizes` samples; tensors without a row for each sample stay whole."""
    stops = list(itertools.accumulate(sizes))
    return [
        map_tensors(functools.partial(rows_of, size=sum(sizes), start=stop - count, stop=stop), value)
        for count, stop in zip(sizes, stops, strict=True)
    ]


def counts(tensor: torch.Tensor, size: int) -> bool:
    """Whether a tensor's first dimension counts `size` samples."""
    return tensor.ndim > 0 and tensor.shape[0] == size


def rows_of(tensor: torch.Tensor, *, size: int, start: int, stop: int) -> torch.Tensor:
    """Return a copy of some rows of a tensor that has `size` of them, else of all of it."""
    if not counts(tensor, size):
        return tensor.clone()
    if tensor.layout is torch.sparse_coo:  # of which torch takes no slices
        return tensor.index_select(0, torch.arange(start, stop, device=tensor.device))
    return tensor[start:stop].clone()


def has_rows(tensor: torch.Tensor, pieces: list[torch.Tensor], sizes: tuple[int, ...]) -> bool:
    """Whether a tensor and its pieces have one row for each sample of the whole and of the parts."""
    rows = [piece.shape[0] if piece.ndim else -1 for piece in pieces]
    return bool(tensor.ndim) and tensor.shape[0] == sum(sizes) and rows == list(sizes)


def are_its_rows(tensor: torch.Tensor, pieces: list[torch.Tensor], sizes: tuple[int, ...]) -> bool:
    """Whether pieces equal the rows of a tensor up to rounding; True if it has no row for each sample."""
    if not has_rows(tensor, pieces, sizes):
        return True
    with torch.no_grad():
        return all(piece.shape[1:] == tensor.shape[1:] for piece in pieces) and close(tensor, torch.cat(pieces))


def cut_in_double(cut: BatchCut) -> BatchCut:
    """Return a cut whose fractions are in double precision."""
    return replace(cut, whole=map_tensors(doubled, cut.whole), parts=[map_tensors(doubled, part) for part in cut.parts])


def in_double(example: Example) -> Example:
    """Return example batches whose fractions are in double precision."""
    parts = example.make_parts
    return replace(
        example,
        make=lambda size, which: map_tensors(doubled, example.make(size, which)),
        make_parts=None if parts is None else lambda sizes, which: map_tensors(doubled, parts(sizes, which)),
    )


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of fractions in double precision, and any other one unchanged."""
    return tensor.double() if tensor.is_floating_point() else tensor
