"""Reads a rank's orders as they come, so that it notices the end of its coordinator whatever it is doing."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from nfold.runtime.control.channel import ChannelClosed, ControlChannel, Message
from nfold.runtime.control.halting import Allowance
from nfold.runtime.control.order_log import OrderLog
from nfold.runtime.control.returning_channel import Describe, ReturningChannel


@dataclass(frozen=True, slots=True)
class _Failure:
    """What another thread of this rank has failed with."""

    generation: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Returned:
    """Behind what a coordinator has ordered that is gone."""

    num_losses: int


class Orders:
    """A queue of orders that a thread fills. Needs no torch: it reads while that is still loading.

    Attributes:
        allowance: how far the rank may train, by all orders that have come.
        log: the last orders of this generation.
    """

    def __init__(
        self, channel: ControlChannel, abandon: Callable[[], None], returns: ReturningChannel | None = None
    ) -> None:
        """Begin to read.

        Args:
            channel: where orders come from.
            abandon: called when the coordinator is gone for good without having said goodbye.
            returns: the same channel, where it may come back; None: it does not.
        """
        self._channel, self._abandon, self._returns = channel, abandon, returns
        self._queue: queue.SimpleQueue[tuple[Message, bytes] | _Failure | _Returned | None] = queue.SimpleQueue()
        self.log = OrderLog()
        self._given_back: tuple[Message, bytes] | None = None
        self._generation = 0
        self._is_leaving = False
        self._abandon_generation: Callable[[], None] = _nothing
        self._beside: dict[str, Callable[[Message, bytes], None]] = {}
        self.allowance = Allowance()
        threading.Thread(target=self._read, name="nfold-orders", daemon=True).start()

    def on_abandon(self, callback: Callable[[], None]) -> None:
        """Set the function that the reading thread calls when the coordinator ends the generation under way."""
        self._abandon_generation = callback

    def on_loss(self, describe: Describe) -> None:
        """Set the function that says what this rank holds for another coordinator when this one is gone."""
        if self._returns is not None:
            self._returns.hold(describe)

    def on_beside(self, do: str, callback: Callable[[Message, bytes], None]) -> None:
        """Set the function that the reading thread calls with an order of this kind that waits for no step."""
        self._beside[do] = callback

    def get(self) -> tuple[Message, bytes]:
        """Wait for the next order.

        Raises:
            ChannelClosed: there will be none.
            BaseException: what `fail` was called with.
        """
        if self._given_back is not None:
            again, self._given_back = self._given_back, None
            return again
        while (order := self._queue.get()) is not None:
            if isinstance(order, _Returned):
                assert self._returns is not None, "it has come back"
                self._returns.forget(order.num_losses)
            elif not isinstance(order, _Failure):
                return order
            elif order.generation == self._generation:
                raise order.error
        raise ChannelClosed("the coordinator is gone")

    def give_back(self, message: Message, blob: bytes) -> None:
        """Let `get` return an order again, as the next one: who took it waits for another."""
        self._given_back = message, blob

    def fail(self, error: BaseException) -> None:
        """Let `get` raise this error: another thread of this rank has failed."""
        self._queue.put(_Failure(self._generation, error))

    def forget_generation(self) -> None:
        """Allow no step and drop the error of the last generation, whose threads have all ended."""
        self._generation += 1
        self.allowance.forget()

    def begin_generation(self, first_step: int) -> None:
        """Take note that what is told of steps from now on is of a generation that begins with this one."""
        if self._returns is not None:
            self._returns.begin_anew(first_step)

    def empty(self) -> bool:
        """Whether no order waits."""
        return self._queue.empty()

    def leave(self) -> None:
        """Take the end of the channel as expected from now on."""
        self._is_leaving = True

    def _read(self) -> None:
        while True:
            try:
                self._take_in(*self._channel.receive())
            except (ChannelClosed, ValueError):  # ValueError: what came is no JSON
                if not self._comes_back():
                    break
        if not self._is_leaving:
            self._abandon()
        self._queue.put(None)

    def _take_in(self, message: Message, blob: bytes) -> None:
        self.log.take(message)
        if message.get("beside"):
            self._beside.get(message["do"], _nothing_beside)(message, blob)
            return
        match message.get("do"):
            case "hold":
                self._channel.send({"is": "holding", "step": self.allowance.hold()})
                return
            case "abandon":
                self._abandon_generation()
            case "until":
                self.allowance.grant(message["step"])
        self._queue.put((message, blob))

    def _comes_back(self) -> bool:
        if self._is_leaving or self._returns is None or not self._returns.come_back():
            return False
        self._queue.put(_Returned(self._returns.num_losses))
        return True


def _nothing_beside(_: Message, __: bytes) -> None:
    """Nobody listens yet."""


def _nothing() -> None:
    """No generation is under way."""
