"""Takes samples of a chunk together and apart: all of them, or as many as were compared before the first step."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nfold.capture.batches.joining import Batch, moved
from nfold.capture.batches.tree import map_tensors, tensors_of
from nfold.capture.independence.batch_cut import PARTS, BatchCut, counts, cut_rows

Read = Callable[[Sequence[int], Sequence[int]], tuple[Batch, list[Batch]]]
"""Reads some samples of a chunk, and joins them together and in parts of so many; places behind the chunk are samples
from elsewhere."""
_SIZE = sum(PARTS)


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of a chunk by their places, and the parts that they are compared in."""

    places: list[int]
    sizes: tuple[int, int, int]
    """Samples of each part."""

    @classmethod
    def of(cls, samples: list[int]) -> "Samples":
        """Return some samples; where there are few, each of them several times."""
        count = max(_SIZE, len(samples))
        first, second = (part * count // _SIZE for part in PARTS[:2])
        places = [samples[place * len(samples) // count] for place in range(count)]
        return cls(places, (first, second, count - first - second))

    @property
    def parts(self) -> list[list[int]]:
        """The samples in the parts that are computed apart."""
        stops = itertools.accumulate(self.sizes, initial=0)
        return [self.places[start:stop] for start, stop in itertools.pairwise(stops)]


def all_and_some(size: int, new: list[int], num_elsewhere: int = 0) -> tuple[Samples, Samples]:
    """Return all samples, and as many as were compared before the first step: new ones, and others.

    Args:
        size: of the chunk.
        new: samples of it.
        num_elsewhere: samples of other chunks, which are added to both: all of a chunk may be alike.
    """
    elsewhere = list(range(size, size + num_elsewhere))
    known = set(new[: _SIZE // 2])
    others = [sample for sample in range(size) if sample not in known]
    count = min(len(others), _SIZE - len(known))
    some = sorted({*known, *(others[place * len(others) // count] for place in range(count))})
    return Samples.of([*range(size), *elsewhere]), Samples.of([*some, *elsewhere])


def cut_batch(batch: Batch, size: int, samples: Samples, read: Read | None, device: torch.device) -> BatchCut:
    """Return samples of a batch together and apart.

    Args:
        batch: the chunk.
        size: its samples.
        samples: which to take.
        read: reads them for a program that joins them itself; a batch that is more than tensors is read as well.
        device: where to compute.
    """
    if read is None:
        index = torch.tensor(samples.places, device=device)
        taken = map_tensors(lambda each: each.index_select(0, index) if counts(each, size) else each, batch)
        return cut_rows(taken, samples.sizes)
    together, apart = read(_longest_first(samples.places, read), samples.sizes)
    whole, *joined = (moved(each, device) for each in (together, *apart))
    is_padded = any(_shapes(part) != _shapes(whole) for part in joined)
    return BatchCut(whole=whole, parts=joined, sizes=samples.sizes, is_padded=is_padded)


def _longest_first(places: list[int], read: Read) -> list[int]:
    """Return places by the elements of their samples: many programs sort a batch so, and rows have no other name."""
    elements = {place: sum(tensor.numel() for tensor in tensors_of(read([place], [1])[0])) for place in set(places)}
    return sorted(places, key=lambda place: -elements[place])


def is_rows(value: Any) -> bool:
    """Whether a structure holds tensors only; a list of texts has no rows to take."""
    if isinstance(value, (list, tuple, dict)):
        return all(map(is_rows, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor)


def _shapes(batch: Batch) -> list[torch.Size]:
    return [tensor.shape[1:] for tensor in tensors_of(batch)]
