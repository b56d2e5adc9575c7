"""Joins a batch and the same samples in parts, with what that draws held still, so that the two can be compared."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nfold.capture.batches.joining import Batch
from nfold.capture.batches.tree import paired, paths_of
from nfold.capture.computing.random import LOCK, RandomState
from nfold.capture.computing.steady_draws import SteadyDraws
from nfold.capture.computing.step_outcome import close

_DRAWN = (
    "Program(collate=...) makes other samples of a batch than of its parts, by what it draws from numpy's or Python's "
    "generator: nobody can tell whether samples see each other there. Draw once for each item, in their order, or from "
    "torch's generator (torch.rand), or where an item is read"
)
_MIXED = (
    "Program(collate=...) makes a sample from the others of its batch too, as mixup does, or puts samples into another "
    "order, and each chunk is joined by itself. Mix where an item is read: __getitem__ may take a second item. Leave "
    "samples in their order: what wants them sorted can sort them in the model"
)


class Apart:
    """How some samples are read and joined.

    Torch's draws are all one number. Those of numpy and Python come from one seed for the batch and for each part, or,
    if the samples are others then, go on from part to part, as where each item draws for itself.
    """

    def __init__(
        self,
        read: Callable[[int, int], list[Any]],
        join: Callable[[list[Any], int, int], Batch],
        seed: Callable[[], None],
    ) -> None:
        """Args:
        read: reads the samples from one place to another; again each time, since joining may change them.
        join: joins them.
        seed: seeds what joining draws.
        """
        self._read, self._join, self._seed = read, join, seed
        self.draws = False
        """Whether joining has drawn from numpy's or Python's generator."""

    def joined(self, sizes: Sequence[int]) -> tuple[Batch, list[Batch]]:
        """Return the batch, and its parts.

        Args:
            sizes: samples of each part.

        Raises:
            ProgramError: a sample cannot be read, or they do not fit together.
        """
        cuts = list(itertools.pairwise([0, *itertools.accumulate(sizes)]))
        with LOCK:
            before = RandomState()
            try:
                self._seed()
                first = RandomState()
                whole, _ = self._joined_from(first, 0, cuts[-1][1])
                parts = [self._joined_from(first, *cut)[0] for cut in cuts]
                if self.draws and _drew_otherwise(whole, parts, sizes):
                    parts, state = [], first
                    for cut in cuts:
                        part, state = self._joined_from(state, *cut)
                        parts.append(part)
                return whole, parts
            finally:
                before.restore()

    def _joined_from(self, state: RandomState, start: int, stop: int) -> tuple[Batch, RandomState]:
        items = self._read(start, stop)
        state.restore()
        with SteadyDraws():
            batch = self._join(items, start, stop)
        self.draws = self.draws or state.others_moved()
        return batch, RandomState()


def _drew_otherwise(whole: Batch, parts: Sequence[Batch], sizes: Sequence[int]) -> bool:
    """Tell whether rows of a batch are others than those of its parts, also where each is padded behind its samples."""
    stops = list(itertools.accumulate(sizes))
    found = [dict(paths_of(part)) for part in parts]
    for path, tensor in paths_of(whole):
        for stop, size, part in zip(stops, sizes, found, strict=True):
            rows = part.get(path)
            if rows is None or rows.ndim != tensor.ndim or not rows.ndim or len(rows) != size or len(tensor) < stop:
                continue
            its_own = tensor[stop - size : stop][(slice(None), *map(slice, rows.shape[1:]))]
            if its_own.shape == rows.shape and not close(its_own, rows):
                return True
    return False


def unlike_rows(whole: Any, parts: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Tell whether rows of a value are others than those of its parts, where all have the same shapes."""
    for tensor, rows in paired(whole, parts):
        is_by_row = tensor.ndim and [row.shape for row in rows] == [(size, *tensor.shape[1:]) for size in sizes]
        if is_by_row and not close(tensor, torch.cat(rows)):
            return True
    return False


def why_joined_unlike(whole: Batch, parts: Sequence[Batch], sizes: Sequence[int], *, draws: bool) -> str:
    """Say why a batch is not what its parts are, if the program's own collate makes it so; empty if it does not."""
    if not unlike_rows(whole, parts, sizes):
        return ""
    return _DRAWN if draws else _MIXED
