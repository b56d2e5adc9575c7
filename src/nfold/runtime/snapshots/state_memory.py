"""The states of one training that a process holds in memory, each of one step of one generation."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from nfold.errors import InternalError
from nfold.runtime.checkpoint.checkpoint_format import Offer, StatePart

Piece = tuple[int, int]
"""The member that had it when the state was taken, and its index among what that member had."""
Label = tuple[int, int]
"""Generation and number of steps done."""


@dataclass(slots=True)
class HeldState:
    """What one process holds of the state after some steps of a generation."""

    label: Label
    pieces: dict[Piece, StatePart]

    def read(self, piece: Piece, start: int, stop: int) -> memoryview:
        """Return the bytes of elements [start, stop) of a piece, counted from its begin.

        Raises:
            InternalError: it is not held here.
        """
        if piece not in self.pieces:
            raise InternalError(f"piece {piece} of state {self.label} is not here, where others look for it")
        flat = self.pieces[piece].values.detach().reshape(-1)
        found: memoryview = flat[start:stop].cpu().contiguous().view(torch.uint8).numpy().data
        return found


@dataclass(slots=True)
class StateMemory:
    """All states that a process holds."""

    states: dict[Label, HeldState] = field(default_factory=dict)

    def put(self, state: HeldState) -> None:
        """Hold one more."""
        self.states[state.label] = state

    def get(self, label: Label) -> HeldState | None:
        """Return what is held of a state; None: nothing."""
        return self.states.get(label)

    def clear(self) -> None:
        """Hold nothing."""
        self.states = {}


def live_state(label: Label, member: int, offer: Offer) -> HeldState:
    """Return a state of the tensors that are trained, which holds until the next step."""
    return HeldState(label, {(member, index): part for index, part in enumerate(_all_of(offer))})


def rows_of(offer: Offer) -> list[list[Any]]:
    """Return what a rank tells of each piece: what `StatePart.described` says, and whether it counts where nobody gives
    it alone."""
    num_given = len(offer.parts)
    return [[*part.described, index >= num_given] for index, part in enumerate(_all_of(offer))]


def _all_of(offer: Offer) -> Iterable[StatePart]:
    return (*offer.parts, *offer.rest)
