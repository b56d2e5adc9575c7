"""Remembers what data were like, to tell which samples of a chunk are unlike all before.

Inputs are large, so of fractions only the extremes of a chunk are looked at, which is one pass over it; rows are
looked at where it goes beyond what was seen, or holds what is no number. Of whole numbers each that is new counts.
Where rows are no samples, as the words of documents that are joined one behind the other, a new one makes all new.
"""

from typing import Any

import torch

from nfold.capture.batches.tree import paths_of
from nfold.capture.independence.batch_cut import counts
from nfold.runtime.guards.seen_targets import SeenTargets


class SeenInputs:
    """The inputs that one rank has seen, by their place in the structure of a batch."""

    def __init__(self, margin: float = 0.0) -> None:
        """Args:
        margin: by which part of the range of all before fractions must go beyond it. What a model computes goes a
            little beyond it all the time, as its weights move; with 0.1 a tenfold range is new 25 times at most.
        """
        self._margin = margin
        self._whole = SeenTargets()
        self._fractions: dict[tuple[Any, ...], _Extremes] = {}
        self._shapes: set[tuple[Any, ...]] = set()
        self.has_rare_shape = False
        """Whether the samples of the last call were the 1st, 2nd, 4th, 8th .. of a new shape."""

    def new_samples(self, data: Any, size: int) -> list[int]:
        """Note some samples, and return which brought something new; all where their shape is new."""
        dense = {path: each for path, each in paths_of(data) if each.layout is torch.strided and each.numel()}
        shapes = tuple((path, _shape_of_one(each, size)) for path, each in dense.items())
        is_new = shapes not in self._shapes
        self._shapes.add(shapes)
        self.has_rare_shape = is_new and len(self._shapes) & (len(self._shapes) - 1) == 0
        found = set[int]().union(*(self._note(path, each, size) for path, each in dense.items()))
        return list(range(size)) if is_new else sorted(found)

    def _note(self, path: tuple[Any, ...], tensor: torch.Tensor, size: int) -> set[int]:
        count = size if counts(tensor, size) else 1
        if tensor.is_floating_point():
            found = self._fractions.setdefault(path, _Extremes(self._margin)).note(tensor.reshape(count, -1))
        else:
            found = set(self._whole.new_samples({path: tensor}, count))
        return found if count == size or not found else set(range(size))


def _shape_of_one(tensor: torch.Tensor, size: int) -> tuple[float, ...]:
    """Return the shape for one sample: as many rows as there are for each, if they count something else."""
    return (tensor.shape[0] / size, *tensor.shape[1:]) if tensor.ndim else ()


class _Extremes:
    def __init__(self, margin: float) -> None:
        self._margin = margin
        self._least, self._greatest, self._is_missing_known = float("inf"), float("-inf"), False

    def note(self, rows: torch.Tensor) -> set[int]:
        """Return the rows that go beyond all others, or hold the first that are no numbers."""
        least, greatest = (each.item() for each in rows.aminmax())
        if least != least:  # not a number
            missing = rows.isnan()
            is_new = set() if self._is_missing_known else _where(missing)
            self._is_missing_known = True
            return is_new | (set() if bool(missing.all()) else self.note(_filled(rows, missing)))
        lower, upper = self._limits()
        if lower <= least and greatest <= upper:
            return set()  # where it goes a little beyond, the range stays, or many little steps would never be new
        self._least, self._greatest = min(least, self._least), max(greatest, self._greatest)
        return _where((rows < lower) | (rows > upper))

    def _limits(self) -> tuple[float, float]:
        if self._least > self._greatest:  # nothing was seen yet
            return self._least, self._greatest
        room = self._margin * (self._greatest - self._least) if self._margin else 0.0
        return self._least - room, self._greatest + room


def _filled(rows: torch.Tensor, missing: torch.Tensor) -> torch.Tensor:
    """Put a number of the rows in the place of those that are none."""
    return rows.masked_fill(missing, rows[~missing][0].item())


def _where(places: torch.Tensor) -> set[int]:
    return set(places.any(1).nonzero().flatten().tolist())
