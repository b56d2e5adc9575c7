"""Gives other ranks what they ask for of a state that this process holds, while all of them build.

    asks  piece, elements  -->
                           <--  their bytes
    asks  nothing more     -->

Both sides count the questions of a pair. The transport's thread answers: nobody here waits.
"""

import struct
from collections.abc import Iterable
from functools import partial

from nfold.runtime.snapshots.state_memory import HeldState
from nfold.transport.protocol import Transport
from nfold.transport.tags import Use, tag_of

REQUEST = struct.Struct("<qqqq")
"""Member and index of a piece, first element and end, counted from its begin."""


NO_MORE = REQUEST.pack(-1, 0, 0, 0)


def question_tag(count: int) -> int:
    """Return the tag of a pair's question, the first is 0; the answer has the next one."""
    return tag_of(Use.STATE, 2 * count)


class StateGiver:
    """Answers those who read from this rank, until they have all that they need."""

    def __init__(self, transport: Transport, state: HeldState, readers: Iterable[int]) -> None:
        self._transport = transport
        self._state: HeldState | None = state
        for peer in readers:
            self._listen(peer, 0)

    def end(self) -> None:
        """Answer nobody any more, and let go of the state: questions that are waited for keep this."""
        self._state = None

    def _listen(self, peer: int, count: int) -> None:
        asked = bytearray(REQUEST.size)
        answer = partial(self._answer, peer, count, asked)
        self._transport.receive(peer, question_tag(count), memoryview(asked), answer)

    def _answer(self, peer: int, count: int, asked: bytearray) -> None:
        state = self._state
        if asked == NO_MORE or state is None:
            return
        member, index, start, stop = REQUEST.unpack(asked)
        data = state.read((member, index), start, stop)
        self._listen(peer, count + 1)
        self._transport.send(peer, question_tag(count) + 1, data, _nothing)


def _nothing() -> None:
    """What is sent is not written to before all have built."""
