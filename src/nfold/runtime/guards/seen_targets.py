"""Remembers what targets were like, to tell which samples of a chunk hold what none before them did.

New is a whole number that never occurred. Where a sample has several targets, or fractions, their extremes count as
well: places to leave out are marked by the least value, the greatest or one that is no number, and a row with more or
fewer of these than any other is new.
"""

from collections.abc import Callable
from typing import Any

import torch

from nfold.capture.batches.tree import paths_of

_REMEMBERED = 1 << 20
"""Whole numbers told apart, which takes a byte each. Numbers that far from each other count as equal."""


class SeenTargets:
    """The targets that one rank has seen, by their place in the structure of targets."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[Any, ...], _SeenTensor] = {}

    def new_samples(self, targets: Any, size: int) -> list[int]:
        """Note the targets of some samples, and return which of these brought something new. A few passes over them."""
        is_new = torch.zeros(size, dtype=torch.bool)
        for path, tensor in paths_of(targets):
            if tensor.numel() and not tensor.is_complex():
                is_new |= self._tensors.setdefault(path, _SeenTensor()).note(tensor.reshape(size, -1)).cpu()
        found: list[int] = is_new.nonzero().flatten().tolist()
        return found


class _SeenTensor:
    def __init__(self) -> None:
        self._numbers: torch.Tensor | None = None
        self._least, self._greatest, self._missing = _Mark(min), _Mark(max), _Mark(max)

    def note(self, rows: torch.Tensor) -> torch.Tensor:
        """Tell for each row whether it is new."""
        if rows.is_floating_point():
            return self._note_fractions(rows)
        is_new = self._note_numbers(rows.long())
        return is_new if rows.shape[1] == 1 else is_new | self._note_extremes(rows.long(), rows.long())

    def _note_numbers(self, rows: torch.Tensor) -> torch.Tensor:
        if self._numbers is None:
            self._numbers = torch.zeros(_REMEMBERED, dtype=torch.bool, device=rows.device)
        places = rows & (_REMEMBERED - 1)
        is_new = ~self._numbers[places].all(1)
        if is_new.any():
            self._numbers[places.flatten()] = True
        return is_new

    def _note_fractions(self, rows: torch.Tensor) -> torch.Tensor:
        is_missing = rows.isnan()
        is_new = self._missing.note(True, is_missing.sum(1))
        return is_new | self._note_extremes(rows, rows[~is_missing] if is_missing.any() else rows)

    def _note_extremes(self, rows: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        is_new = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        if known.numel():
            for mark, value in zip((self._least, self._greatest), known.aminmax(), strict=True):
                extreme = mark.beyond(value.item())
                is_new |= mark.note(extreme, (rows == extreme).sum(1))
        return is_new


class _Mark:
    """A value, and how often it came in a row: at least and at most."""

    def __init__(self, outermost: Callable[[Any, Any], Any]) -> None:
        self._outermost = outermost
        self._value: Any = None
        self._fewest = self._most = 0

    def beyond(self, value: Any) -> Any:
        """Return the outermost of the values so far and another one."""
        return value if self._value is None else self._outermost(value, self._value)

    def note(self, value: Any, counts: torch.Tensor) -> torch.Tensor:
        """Tell for each row whether it has more or fewer of the value than any row had."""
        fewest, most = (int(each) for each in counts.aminmax())
        if self._value is None:
            self._fewest, self._most = most + 1, -1
        elif value != self._value:
            self._fewest = self._most = 0  # rows so far had none of it
        is_new = (counts < self._fewest) | (counts > self._most)
        self._value, self._fewest, self._most = value, min(fewest, self._fewest), max(most, self._most)
        return is_new
