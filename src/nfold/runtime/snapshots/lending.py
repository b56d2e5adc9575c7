"""Gives a newcomer what makes it a shadow: a part of the state after one step, and of the sums of all that follow.

    rank                            shadow
    its sums of step k      -->             each piece as soon as it is summed
    k                       -->             all messages of the step are over: it is sure to count
    ..
    no more                 -->             all have stopped, and the next generation begins

Nobody waits for the shadow while steps are played: if it falls too far behind, it is told that it is given up.
"""

import contextlib
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nfold.core.placement import Reduction
from nfold.core.tasks import Elements, to_row
from nfold.core.text.units import size
from nfold.errors import PeerLost, RunError, TransportError
from nfold.runtime.checkpoint.checkpoint_format import StatePart
from nfold.runtime.checkpoint.state_file import AVERAGE_PREFIX, MODEL_PREFIX
from nfold.runtime.parameters.buffers import as_bytes
from nfold.runtime.snapshots.state_giving import StateGiver
from nfold.runtime.snapshots.state_memory import HeldState, Label, Piece
from nfold.runtime.step.replica import Replica
from nfold.transport.generations.generation_transport import GenerationTransport
from nfold.transport.tags import Use, tag_of

SHADOW = 0
"""Its rank among those who give and take; the others follow by their ranks."""
STEP = struct.Struct("<q")
NO_MORE, GIVEN_UP = -1, -2
_FIRST = 1 << 37
"""Of these messages, apart from questions for state."""
_TIMES_STATE = 2
"""How much of it may wait to go out, as a multiple of the state that this rank gives, beside one step's sums."""


def sums_tag(count: int, num_pieces: int, index: int) -> int:
    """Return the tag of a piece of sums; the last index is that of the step's number.

    Args:
        count: of steps before, since the shadow has begun.
        num_pieces: that the rank gives of each step.
        index: of the piece.
    """
    return tag_of(Use.STATE, _FIRST + count * (num_pieces + 1) + index)


class Lending:
    """What one rank gives to one shadow."""

    def __init__(
        self,
        transport: GenerationTransport,
        replica: Replica,
        reductions: Sequence[Reduction],
        label: Label,
        member: int,
        failed: Callable[[str], None],
    ) -> None:
        """Begin between two steps.

        Args:
            transport: between the shadow and all ranks that sum, beside the steps.
            replica: this rank's.
            reductions: into which gradients are summed for the shadow.
            label: generation, and steps done.
            member: this process.
            failed: called with why the shadow is given nothing more, once, from any thread.
        """
        self._transport, self._replica, self._tell_failure = transport, replica, failed
        held, self.told = _own_part(replica, label, member)
        state_bytes = sum(part.values.numel() * part.values.element_size() for part in held.pieces.values())
        self._sums = replica.sums_of(replica.rank, reductions)
        summed = ((index, each) for index, each in enumerate(self._sums) if each.kind == "gradient")
        self._indices = {(each.name, each.start): index for index, each in summed}
        self.told["sums"] = [to_row(each) for each in self._sums]
        item_bytes = {each.name: each.item_bytes for each in reductions}
        own = (each for each in self._sums if each.kind == "gradient")
        step_bytes = sum((each.stop - each.start) * item_bytes[each.name] for each in own)
        self._most_bytes = _TIMES_STATE * state_bytes + step_bytes
        self._count = self._unsent_bytes = self._num_unsent = 0
        self._changed = threading.Condition()
        self._is_over = self._is_lost = False
        self._giver = StateGiver(transport, held, (SHADOW,))
        transport.on_failure_too(self._lose)
        replica.tell_sums(reductions, self._summed, self._committed)

    def finish(self) -> None:
        """Say that no more steps follow, and wait until the shadow was sent everything, or there is none any more.

        It is sent that it is given up, too: else it would wait for more.
        """
        self._guarded(self._send_step, NO_MORE)
        with self._changed:
            self._changed.wait_for(lambda: self._is_lost or not self._num_unsent)
        self.end()

    def end(self) -> None:
        """Give nothing more."""
        self._replica.tell_no_sums()
        self._giver.end()
        with self._changed:
            self._is_over = True

    def _summed(self, elements: Elements) -> None:
        if (elements.name, elements.start) in self._indices:
            self._guarded(self._send, self._indices[elements.name, elements.start])

    def _committed(self, step: int) -> None:
        self._guarded(self._end_step, step)

    def _end_step(self, step: int) -> None:
        for index, elements in enumerate(self._sums):
            if elements.kind != "gradient":
                self._send(index)
        self._send_step(step)
        self._count += 1

    def _guarded(self, act: Callable[[int], None], value: int) -> None:
        """Let no error reach a step: it is the shadow's alone."""
        if self._is_over:
            return
        try:
            act(value)
        except Exception as error:
            if self._fail(error):
                with contextlib.suppress(Exception):  # this process leaves
                    self._send_step(GIVEN_UP)

    def _send(self, index: int) -> None:
        if self._unsent_bytes > self._most_bytes:
            raise RunError(f"it takes sums too slowly: {size(self._unsent_bytes)} wait for it")
        values = self._replica.values(self._sums[index]).detach().to("cpu", copy=True)  # the next step changes them
        self._pass_on(index, as_bytes(values))

    def _send_step(self, step: int) -> None:
        self._pass_on(len(self._sums), memoryview(STEP.pack(step)))

    def _pass_on(self, index: int, data: memoryview) -> None:
        with self._changed:
            self._num_unsent += 1
            self._unsent_bytes += len(data)
        tag = sums_tag(self._count, len(self._sums), index)
        try:
            self._transport.send(SHADOW, tag, data, partial(self._sent, len(data)))
        except Exception:
            self._sent(len(data))
            raise

    def _sent(self, num_bytes: int) -> None:
        with self._changed:
            self._num_unsent -= 1
            self._unsent_bytes -= num_bytes
            self._changed.notify_all()

    def _lose(self, error: TransportError) -> None:
        """Give up a shadow that is lost. Of others it hears itself: here nothing is said to them."""
        if isinstance(error, PeerLost) and error.peer != SHADOW:
            return
        with self._changed:
            self._is_lost = True
            self._changed.notify_all()
        self._fail(error)

    def _fail(self, error: Exception) -> bool:
        """Give nothing more, and tell it; return whether that is new: several threads may fail at once."""
        with self._changed:
            is_first, self._is_over = not self._is_over, True
        self._giver.end()
        if is_first:
            self._tell_failure(str(error) or type(error).__name__)
        return is_first


def _own_part(replica: Replica, label: Label, member: int) -> tuple[HeldState, dict[str, Any]]:
    """Copy what the rank has of the state, of what all who work have an equal part; return it, and what is told of it.

    Copies on some ranks alone are given by each of them.
    """
    working, is_whole, has_weights = replica.plan.placement.working, replica.plan.is_replicated, replica.is_complete
    own_place = (working.index(replica.rank), len(working)) if replica.rank in working else (0, 1)
    offer = replica.held(is_checked=False)
    pieces: dict[Piece, StatePart] = {}
    rows: list[Any] = []
    for number, part in enumerate((*offer.parts, *offer.rest)):
        is_of_all = is_whole or (has_weights and part.name.startswith((MODEL_PREFIX, AVERAGE_PREFIX)))
        place, num_places = own_place if is_of_all else (0, 1)
        flat = part.values.detach().reshape(-1)
        start, stop = (flat.numel() * edge // num_places for edge in (place, place + 1))
        if start < stop or (flat.numel() == 0 and place == 0):
            own = StatePart(part.name, part.shape, part.start + start, flat[start:stop].to("cpu", copy=True))
            pieces[member, len(rows)] = own
            rows.append([*own.described, number >= len(offer.parts)])
    return HeldState(label, pieces), {"rows": rows, "facts": offer.facts}
