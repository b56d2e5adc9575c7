"""Reads a rank's orders as they come, so that it notices the end of its coordinator whatever it is doing."""

import queue
import threading
from collections.abc import Callable

from nfold.runtime.channel import Channel, ChannelClosed, Message
from nfold.runtime.halting import Allowance


class Orders:
    """A queue of orders that a thread fills. Needs no torch: it reads while that is still loading.

    Attributes:
        allowance: how far the rank may train, by all orders that have come.
    """

    def __init__(self, channel: Channel, abandon: Callable[[], None]) -> None:
        """Begin to read.

        Args:
            channel: where orders come from.
            abandon: called when the coordinator is gone without having said goodbye.
        """
        self._channel, self._abandon = channel, abandon
        self._queue: queue.SimpleQueue[tuple[Message, bytes] | BaseException | None] = queue.SimpleQueue()
        self._is_leaving = False
        self.allowance = Allowance()
        threading.Thread(target=self._read, name="nfold-orders", daemon=True).start()

    def get(self) -> tuple[Message, bytes]:
        """Wait for the next order.

        Raises:
            ChannelClosed: there will be none.
            BaseException: what `fail` was called with.
        """
        order = self._queue.get()
        if order is None:
            raise ChannelClosed("the coordinator is gone")
        if isinstance(order, BaseException):
            raise order
        return order

    def fail(self, error: BaseException) -> None:
        """Let whoever takes orders raise: another thread of this rank has failed."""
        self._queue.put(error)

    def empty(self) -> bool:
        """Whether no order waits."""
        return self._queue.empty()

    def leave(self) -> None:
        """From now on the end of the channel is nothing to worry about."""
        self._is_leaving = True

    def _read(self) -> None:
        try:
            while True:
                message, blob = self._channel.receive()
                if message.get("do") == "hold":
                    self._channel.send({"is": "holding", "step": self.allowance.hold()})
                    continue
                if message.get("do") == "until":
                    self.allowance.grant(message["step"])
                self._queue.put((message, blob))
        except (ChannelClosed, ValueError):  # ValueError: what came is no JSON
            if not self._is_leaving:
                self._abandon()
            self._queue.put(None)
