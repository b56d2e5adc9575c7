"""Makes a newcomer a shadow: it reads the state beside the steps of others, and plays these after them from their sums.

    built, without a state ──> reads that of step k ──> plays k, k + 1, .. from what has come meanwhile ──> is as far as
                               sums of k, k + 1, .. wait                                                    the others

It says so each time that nothing is left to play. Once all have stopped it plays what is left, and has their state.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from nfold.core.tasks import Elements
from nfold.core.text.units import size
from nfold.errors import RunError, TransportError
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint
from nfold.runtime.checkpoint.exchange import Exchange
from nfold.runtime.parameters.buffers import as_bytes
from nfold.runtime.samples.pacing import Pacer
from nfold.runtime.snapshots.lending import NO_MORE, STEP, sums_tag
from nfold.runtime.snapshots.state_memory import Label
from nfold.runtime.snapshots.state_reading import StateReading
from nfold.runtime.step.replica import Replica
from nfold.transport.generations.generation_transport import GenerationTransport

READ_BYTES = 256 << 10
"""Of the state that are asked for at once: sums go between two of these."""

Sums = list[tuple[Elements, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class ToFollow:
    """What a shadow begins with."""

    label: Label
    """Generation of the others, and the first step that it plays after them."""
    header: bytes
    """Of the state's file."""
    lent: tuple[tuple[Elements, ...], ...]
    """Which sums of each step come from each of them, in the order of their ranks in the transport."""
    bytes_per_s: float | None
    """At which it reads the state; None: as fast as it goes."""
    most_bytes: int
    """Of sums that may wait until the state is there."""


class Shadow:
    """A newcomer's state, from what it has built to where it takes part. Threads: one listens, another one plays.

    Attributes:
        label: generation of the others and steps done, once it has their state; None: it has not, or has failed.
    """

    def __init__(
        self,
        transport: GenerationTransport,
        replica: Replica,
        reading: StateReading,
        to_follow: ToFollow,
        tell: Callable[[int | None, str], None],
    ) -> None:
        """Args:
        transport: between this process and those whose steps it plays.
        replica: just built, which no transport joins to others.
        reading: of their state.
        to_follow: what to begin with.
        tell: called with the steps done each time that nothing is left to play; None, why it has failed.
        """
        self.label: Label | None = None
        self._exchange = Exchange(transport, transport.on_failure_too)
        self._replica, self._reading, self._to_follow, self._tell = replica, reading, to_follow, tell
        self._pacer, self._num_threads = Pacer(to_follow.bytes_per_s), torch.get_num_threads()
        self._changed = threading.Condition()
        self._waiting: deque[Sums] = deque()
        self._waiting_bytes = 0
        self._are_all_here = False
        self._failure: Exception | None = None
        transport.on_failure_too(self._fail)
        self._threads = [
            threading.Thread(target=self._guarded, args=(act,), name="nfold-shadow", daemon=True)
            for act in (self._listen, self._follow)
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> Label | None:
        """Wait until all steps of the others are played; return whose state is here then, None: nobody's."""
        for thread in self._threads:
            thread.join()
        return self.label

    @property
    def received_bytes(self) -> int:
        """Of the state that it was given."""
        return self._reading.received_bytes

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # the newcomer reads the state when all have stopped, as if it had not followed
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._pacer.close()
        with self._changed:
            is_first = self._failure is None and self.label is None
            self._failure = self._failure or error
            self._changed.notify_all()
        self._exchange.fail(TransportError(str(error)))
        if is_first:
            self._tell(None, str(error) or type(error).__name__)

    # Listening

    def _listen(self) -> None:
        """Take in the sums of one step after the other."""
        count, lent = 0, self._to_follow.lent
        while True:
            sums = [self._room(pieces) for pieces in lent]
            pieces = [self._ask(peer, count, each) for peer, each in enumerate(sums, start=1)]
            if not self._is_step(count, sums):
                break
            self._exchange.wait([number for each in pieces for number in each], for_ever=True)
            self._put([each for own in sums for each in own])
            count += 1
        with self._changed:
            self._are_all_here = True
            self._changed.notify_all()

    def _room(self, pieces: Sequence[Elements]) -> Sums:
        values = (self._replica.values(each) for each in pieces)
        return [(each, torch.empty(flat.shape, dtype=flat.dtype)) for each, flat in zip(pieces, values, strict=True)]

    def _ask(self, peer: int, count: int, sums: Sums) -> list[int]:
        tags = (sums_tag(count, len(sums), index) for index in range(len(sums)))
        return [
            self._exchange.receive(peer, tag, as_bytes(values)) for tag, (_, values) in zip(tags, sums, strict=True)
        ]

    def _is_step(self, count: int, sums: Sequence[Sums]) -> bool:
        """Wait for the number of the next step; return whether there is one.

        Raises:
            RunError: others have not played the same steps, or have given this process up.
        """
        told = [bytearray(STEP.size) for _ in sums]
        self._exchange.wait(
            [
                self._exchange.receive(peer, sums_tag(count, len(own), len(own)), into)
                for peer, (own, into) in enumerate(zip(sums, told, strict=True), start=1)
            ],
            for_ever=True,
        )
        steps = {STEP.unpack(each)[0] for each in told}
        if steps == {NO_MORE}:
            return False
        if steps != {self._to_follow.label[1] + count}:
            raise RunError(f"others give it the steps {sorted(steps)}, and {self._to_follow.label[1] + count} is next")
        return True

    def _put(self, sums: Sums) -> None:
        with self._changed:
            self._waiting.append(sums)
            self._waiting_bytes += _size(sums)
            self._changed.notify_all()
        if self._waiting_bytes > self._to_follow.most_bytes:
            raise RunError(f"it is too slow: sums of {size(self._waiting_bytes)} wait to be played")

    # Playing

    def _follow(self) -> None:
        torch.set_num_threads(self._num_threads)  # it is counted by thread, and some kernels round by it
        generation, step = self._to_follow.label
        self._replica.built.take(Checkpoint(self._to_follow.header, self._read))
        self._reading.end()
        self._tell_if_ahead(step)
        while (sums := self._next()) is not None:
            self._replica.replay(step, sums)
            step += 1
            self._tell_if_ahead(step)
        self.label = (generation, step)

    def _read(self, start: int, stop: int) -> bytearray:
        found = bytearray(stop - start)
        for begin in range(start, stop, READ_BYTES):
            end = min(stop, begin + READ_BYTES)
            self._pacer.take(end - begin)
            found[begin - start : end - start] = self._reading.read(begin, end)
        return found

    def _tell_if_ahead(self, step: int) -> None:
        if not self._waiting:
            self._tell(step, "")

    def _next(self) -> Sums | None:
        """Return the sums of the next step; None: there is none.

        Raises:
            TransportError: somebody is lost who has them.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._waiting or self._are_all_here)
            if self._failure is not None and not self._are_all_here:
                raise TransportError(str(self._failure))
            if not self._waiting:
                return None
            sums = self._waiting.popleft()
            self._waiting_bytes -= _size(sums)
            return sums


def _size(sums: Sums) -> int:
    return sum(values.numel() * values.element_size() for _, values in sums)
