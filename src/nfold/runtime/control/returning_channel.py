"""A rank's channel that comes back: when its coordinator is gone, the rank holds what it has until another one calls.

    lost ──> dial, again and again ──> let in: `hello` says what is held ──> orders
               └─ the time is over, or nothing is held, or who started the rank is gone: closed for good

What was ordered before the loss is played out, and nobody is sent a reply to it. Steps are told again: of the last ones
the coordinator may have written down nothing.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from nfold.runtime.control.channel import ChannelClosed, ControlChannel, Message

RETRY_S = 0.2
DIAL_AGAIN_S = 3.0
"""How long another coordinator has for each answer. Nobody waits longer for a machine that is down: it may come up."""
TOLD_AGAIN_S, TOLD_AGAIN = 3.0, 32
"""Steps that were told so long before the loss, or less, are told again; and those in so many last messages of one
generation: an asynchronous rank tells of steps long before others do. Those are a window (`Progress.window`) at most:
`DRIFT` steps, each in a message of its own, or what it plays in a fraction of a second, in a few messages."""
_UNASKED = frozenset({"hello", "alive", "steps", "holding", "failed", "lacks"})
"""What a rank says without being ordered to, or in answer to the order that came last."""

Describe = Callable[[], Message | None]
"""Returns what a rank holds, as its `hello` says it; None: nothing."""


class ReturningChannel:
    """A channel over one connection after another."""

    def __init__(
        self,
        channel: ControlChannel,
        dial: Callable[[], ControlChannel],
        hold_s: float,
        is_wanted: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Args:
        channel: the first one.
        dial: returns another one, or raises ChannelClosed.
        hold_s: how long to dial after a loss, until an order comes.
        is_wanted: whether who started this process is still there.
        clock: gives seconds.
        wait: passes some seconds.
        """
        self._channel, self._dial, self._hold_s, self._is_wanted = channel, dial, hold_s, is_wanted
        self._clock, self._wait = clock, wait
        self._describe: Describe = _nothing
        self._lock = threading.Lock()
        self._told: deque[tuple[float, int, Message]] = deque()
        self._generation = 0
        self._deadline_s: float | None = None
        self.num_losses = 0
        self._num_forgotten = 0
        """Losses whose earlier orders are all played out."""

    def hold(self, describe: Describe) -> None:
        """Come back after a loss whenever there is something to hold."""
        self._describe = describe

    def send(self, message: Message, blob: bytes | memoryview = b"") -> None:
        """Send a message, unless it answers an order of a coordinator that is gone.

        Raises:
            ChannelClosed: the other side is gone, and nothing is held.
        """
        with self._lock:
            self._remember(message)
            channel, is_heard = self._channel, self.num_losses == self._num_forgotten
        if not (is_heard or message["is"] in _UNASKED):
            return
        try:
            channel.send(message, blob)
        except ChannelClosed:
            if self._describe() is None:
                raise

    def receive(self) -> tuple[Message, bytes]:
        """Wait for a message.

        Raises:
            ChannelClosed: there will be none, unless `come_back` finds somebody.
        """
        received = self._channel.receive()
        self._deadline_s = None
        return received

    def come_back(self) -> bool:
        """Dial until somebody lets this rank in; return whether there is another coordinator now."""
        with self._lock:
            self.num_losses += 1
        self._channel.close()
        if self._deadline_s is None:
            self._deadline_s = self._clock() + self._hold_s
        while self._clock() < self._deadline_s and self._is_wanted() and (held := self._describe()) is not None:
            self._wait(RETRY_S)
            with contextlib.suppress(ChannelClosed):
                self._begin(self._dial(), held)
                return True
        return False

    def forget(self, num_losses: int) -> None:
        """Take note that all is played out which was ordered before the loss of this number."""
        self._num_forgotten = num_losses

    def begin_anew(self, first_step: int) -> None:
        """Take note that steps which are told from now on are of another generation; forget what it plays again.

        Args:
            first_step: of it; what was told of the steps before it, by ranks that have ended in order, still counts.
        """
        with self._lock:
            self._generation += 1
            before = [(told_s, number, _until(message, first_step)) for told_s, number, message in self._told]
            self._told = deque(each for each in before if each[-1]["steps"])

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """As the connection that there is now."""
        return self._channel.busy()

    @property
    def far_host(self) -> str:
        """The address that the other side dials from."""
        return self._channel.far_host

    def close(self) -> None:
        """Close the connection that there is now."""
        self._channel.close()

    def _begin(self, channel: ControlChannel, held: Message) -> None:
        with self._lock:
            channel.send({"is": "hello", **held})
            for *_, steps in self._told:
                channel.send(steps)
            self._channel = channel

    def _remember(self, message: Message) -> None:
        """Keep what is told of steps; while nobody hears, all of it."""
        if message["is"] != "steps" or not message["steps"]:
            return
        now_s = self._clock()
        self._told.append((now_s, self._generation, message))
        if self._deadline_s is None:
            while self._is_forgotten(*self._told[0][:2], now_s):
                self._told.popleft()

    def _is_forgotten(self, told_s: float, generation: int, now_s: float) -> bool:
        is_late = generation == self._generation and len(self._told) <= TOLD_AGAIN
        return told_s < now_s - TOLD_AGAIN_S and not is_late


def _until(message: Message, first_step: int) -> Message:
    """Return what a message tells of the steps before one."""
    steps = [report for report in message["steps"] if report["step"] < first_step]
    return message if len(steps) == len(message["steps"]) else {**message, "steps": steps, "under_way": None}


def _nothing() -> None:
    return None
