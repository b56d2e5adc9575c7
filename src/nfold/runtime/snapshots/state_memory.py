"""The states of one training that a process holds in memory, each of one step of one generation."""

import threading
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from nfold.errors import InternalError
from nfold.runtime.checkpoint.checkpoint_format import Offer, StatePart
from nfold.runtime.checkpoint.state_file import MODEL_PREFIX

Piece = tuple[int, int]
"""The member that had it when the state was taken, and its index among what that member had."""
Label = tuple[int, int]
"""Generation and number of steps done."""


@dataclass(slots=True)
class HeldState:
    """What one process holds of the state after some steps of a generation."""

    label: Label
    pieces: dict[Piece, StatePart] = field(default_factory=dict)
    told: dict[str, Any] | None = None
    """Rows and facts of what it had itself; None: it has only what others gave."""
    own: frozenset[Piece] = frozenset()
    """Pieces whose memory nobody else uses: they were copied."""
    is_live: bool = False
    """Whether the next step would change it: nothing was copied."""
    is_whole: bool = False
    """Whether it is the state of all ranks: each of the generation has everything."""

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


class StateMemory:
    """All states that a process holds. Threads of the transport add what others give."""

    def __init__(self) -> None:
        self._states: dict[Label, HeldState] = {}
        self._lock = threading.Lock()

    def put(self, state: HeldState) -> None:
        """Hold what this process had itself after some steps. A copy of that lasts longer than what is trained."""
        with self._lock:
            if (before := self._states.get(state.label)) is not None:
                _merge(state, before)
            self._states[state.label] = state

    def add(self, label: Label, pieces: Mapping[Piece, StatePart]) -> None:
        """Hold what another one has given."""
        with self._lock:
            self._states.setdefault(label, HeldState(label)).pieces.update(pieces)

    def get(self, label: Label) -> HeldState | None:
        """Return what is held of a state; None: nothing."""
        return self._states.get(label)

    def all(self) -> list[HeldState]:
        """Return all states."""
        with self._lock:
            return list(self._states.values())

    def drop_before(self, step: int) -> list[HeldState]:
        """Let go of the states of earlier steps, and return them."""
        with self._lock:
            gone = [state for label, state in self._states.items() if label[1] < step]
            self._states = {label: state for label, state in self._states.items() if label[1] >= step}
            return gone

    def drop_all_but(self, most: int) -> None:
        """Let go of all states but the last ones."""
        with self._lock:
            self._states = {label: self._states[label] for label in sorted(self._states)[-most:]}

    def drop_live(self) -> None:
        """Let go of what the next step would change."""
        with self._lock:
            self._states = {label: state for label, state in self._states.items() if not state.is_live}

    def let_live_last(self) -> None:
        """Take note that nobody trains any more what was trained when states were taken of it."""
        with self._lock:
            for state in self._states.values():
                state.is_live = False

    def copied_steps(self) -> list[int]:
        """Return the steps of the states that last, ascending, of which this process holds what it had itself."""
        with self._lock:
            lasting = (label for label, each in self._states.items() if each.told is not None and not each.is_live)
            return sorted({step for _, step in lasting})

    def clear(self) -> None:
        """Hold nothing."""
        with self._lock:
            self._states = {}


def live_state(label: Label, member: int, offer: Offer, *, is_whole: bool = False) -> HeldState:
    """Return a state of the tensors that are trained, which holds until the next step."""
    parts = (replace(part, values=part.values.detach()) for part in _all_of(offer))  # without gradients
    pieces = {(member, index): part for index, part in enumerate(parts)}
    return HeldState(label, pieces, _told(offer), is_live=True, is_whole=is_whole)


def copied_state(
    label: Label, member: int, offer: Offer, reused: Iterable[HeldState] = (), written: Collection[str] = ()
) -> HeldState:
    """Return a state that lasts, in memory apart from what is trained. Weights that never change are not copied.

    Args:
        label: of the state.
        member: this process.
        offer: what it has now.
        reused: states that are no longer needed, and whose memory is taken for this one.
        written: weights that no rank trains, and that the program itself changes.
    """
    room = {piece: state.pieces[piece].values for state in reused for piece in state.own}
    pieces, own = {}, set()
    for index, part in enumerate(_all_of(offer)):
        piece = (member, index)
        if index >= len(offer.parts) and is_fixed(part, written):
            pieces[piece] = part
            continue
        own.add(piece)
        pieces[piece] = StatePart(part.name, part.shape, part.start, _copy(part.values, room.get(piece)))
    return HeldState(label, pieces, _told(offer), frozenset(own))


def adopted_state(label: Label, member: int, offer: Offer, held: HeldState) -> HeldState:
    """Return the state that a generation begins with: what is held already is held on, and only the rest is copied."""
    here = {(part.name, part.start, part.values.numel()): part for part in held.pieces.values()}
    pieces = {}
    for index, part in enumerate(_all_of(offer)):
        found = here.get((part.name, part.start, part.values.numel()))
        copied = found or StatePart(part.name, part.shape, part.start, _copy(part.values, None))
        pieces[member, index] = copied
    return HeldState(label, pieces, _told(offer))


def is_fixed(part: StatePart, written: Collection[str]) -> bool:
    """Return whether it is a weight that nobody changes. Buffers may change at any time."""
    is_weight = part.name.startswith(MODEL_PREFIX) and isinstance(part.values, nn.Parameter)
    return is_weight and part.name.removeprefix(MODEL_PREFIX) not in written


def _merge(state: HeldState, before: HeldState) -> None:
    """Add to a state what was held of it before: what others gave, and copies of the very same pieces."""
    is_same = before.told is not None and state.told is not None and before.told["rows"] == state.told["rows"]
    lasts = is_same and not before.is_live
    members = {member for member, _ in state.pieces}
    kept = {piece: part for piece, part in before.pieces.items() if lasts or piece[0] not in members}
    state.pieces = state.pieces | kept
    state.own = (state.own - kept.keys()) | (before.own & kept.keys())
    state.is_live &= not lasts
    state.is_whole |= is_same and before.is_whole


def _copy(values: torch.Tensor, room: torch.Tensor | None) -> torch.Tensor:
    values = values.detach()
    if room is None or room.shape != values.shape or room.dtype != values.dtype:
        room = torch.empty(values.shape, dtype=values.dtype)
    return room.copy_(values)


def _told(offer: Offer) -> dict[str, Any]:
    """Return what a rank tells of its pieces: of each what `StatePart.described` says, and whether it counts only where
    nobody gives its elements."""
    num_given = len(offer.parts)
    rows = [[*part.described, index >= num_given] for index, part in enumerate(_all_of(offer))]
    return {"rows": rows, "facts": deepcopy(offer.facts)}  # a module may go on changing what it gave


def _all_of(offer: Offer) -> Iterable[StatePart]:
    return (*offer.parts, *offer.rest)
