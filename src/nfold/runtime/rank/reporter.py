"""Tells the coordinator what a rank measured: steps, several at a time, and samples of the system along with them."""

import threading
from collections.abc import Callable, Mapping

from nfold.core import codec
from nfold.machine.system_sampler import SystemSampler
from nfold.runtime.control.channel import ControlChannel, Message
from nfold.runtime.step.replica import StepResult

FLUSH_S = 0.05
"""Step reports are sent together, at most this long after the first of them."""


class Reporter:
    """Sends the reports of one rank."""

    def __init__(self, channel: ControlChannel, clock: Callable[[], float]) -> None:
        self._channel, self._clock = channel, clock
        self._steps: list[Message] = []
        self._flushed_s = 0.0
        """When steps were sent; 0: none of this generation, whose first one is told at once."""
        self._sampler: SystemSampler | None = None
        self._lock = threading.RLock()
        """Under an asynchronous plan other threads report than the one that obeys orders."""

    @property
    def is_sampling(self) -> bool:
        """Whether samples of the system are sent with the steps."""
        return self._sampler is not None

    def begin(self, sampler: SystemSampler) -> None:
        """Send samples of the system with the steps, from now on to the end."""
        self._sampler = sampler
        sampler.start()

    def step(self, result: StepResult) -> None:
        """Report a step, with the next message."""
        message = {
            "step": result.parts.step,
            "parts": result.parts.to_row(),
            "reductions": [part.to_row() for part in result.reductions],
            "losses": list(result.losses.items()),
            "spans": [codec.encode(span) for span in result.spans],
            "begin_s": result.begin_s,
            "notes": list(result.notes),
        }
        with self._lock:
            self._steps.append(message)
        if self._clock() - self._flushed_s >= FLUSH_S:
            self.flush()

    def flush(self, under_way: Message | None = None) -> None:
        """Send all that waits to be sent.

        Args:
            under_way: the losses of the step that this rank is in; None: it is in none.

        Raises:
            ChannelClosed: the coordinator is gone.
        """
        with self._lock:
            samples = [sample.to_row() for sample in self._sampler.take()] if self._sampler is not None else []
            if self._steps or samples or under_way:
                told = {"steps": self._steps, "samples": samples, "under_way": under_way}
                self._channel.send({"is": "steps", **told})
            if self._steps:  # losses alone say of no step what it took, and keep none from being told
                self._steps, self._flushed_s = [], self._clock()

    def losses(self, step: int, losses: Mapping[int, float], samples: int) -> None:
        """Report the steps before, and at once the losses of the one under way: others may end it without this rank.

        Raises:
            ChannelClosed: the coordinator is gone.
        """
        self.flush({"step": step, "losses": list(losses.items()), "samples": samples})

    def end(self) -> None:
        """Take the last sample and send all that is left.

        Raises:
            ChannelClosed: the coordinator is gone.
        """
        self.stop()
        self.flush()
        self._sampler = None

    def stop(self) -> None:
        """End the sampling."""
        if self._sampler is not None:
            self._sampler.stop()

    def forget(self) -> None:
        """End the sampling and drop what was not sent: the next generation counts its own steps, and samples anew."""
        self.stop()
        with self._lock:
            self._steps, self._sampler, self._flushed_s = [], None, 0.0
