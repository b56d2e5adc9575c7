"""Hands pieces of a state from ranks that leave to ranks that stay, over the transport that still connects them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nfold.errors import InternalError
from nfold.runtime.checkpoint.checkpoint_format import DTYPES, StatePart
from nfold.runtime.checkpoint.exchange import Exchange
from nfold.runtime.snapshots.state_memory import HeldState, Piece
from nfold.transport.protocol import Transport
from nfold.transport.tags import Use, tag_of

_FIRST = 1 << 39
"""Of these messages, apart from questions for state."""


@dataclass(frozen=True, slots=True)
class Handing:
    """One piece that goes from one rank to another."""

    number: int
    """Counts the pieces that are handed in a run."""
    source: int
    target: int
    piece: Piece
    dtype: str
    name: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "Handing":
        """Read what the coordinator wrote."""
        number, source, target, member, index, name, dtype, shape, start, stop = row
        return cls(number, source, target, (member, index), dtype, name, tuple(shape), start, stop)


def hand(transport: Transport, state: HeldState | None, handings: Sequence[Handing]) -> dict[Piece, StatePart]:
    """Send and receive this rank's part of some handings; return what has come.

    Raises:
        TransportError: a peer is lost.
        InternalError: this rank shall give what it does not hold.
    """
    exchange, arrived = Exchange(transport), []
    for each in handings:
        tag = tag_of(Use.STATE, _FIRST | each.number)
        if each.source == transport.rank:
            if state is None:
                raise InternalError(f"piece {each.piece} of {each.name} shall be handed on, and nothing is held here")
            exchange.send(each.target, tag, state.read(each.piece, 0, each.stop - each.start))
        if each.target == transport.rank:
            values = torch.empty(each.stop - each.start, dtype=DTYPES[each.dtype])
            exchange.receive(each.source, tag, values.view(torch.uint8).numpy().data)
            arrived.append((each, values))
    exchange.wait(for_ever=True)  # slow links are no reason to end; a lost peer is
    return {each.piece: StatePart(each.name, each.shape, each.start, values) for each, values in arrived}
