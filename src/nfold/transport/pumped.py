"""Carries a link over a way that blocks: a thread reads, and another writes once something cannot go at once."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from nfold.transport.link import Link

LAST_WAIT_S = 0.5
"""How long a thread of a broken pipe may take to notice."""


class Pipe(Protocol):
    """Bytes to and from one peer, in order. One thread reads and one writes at a time; both raise when it breaks."""

    def read_into(self, target: memoryview) -> None:
        """Wait until the target is full."""
        ...

    def write(self, parts: Sequence[memoryview]) -> None:
        """Wait until all parts have gone, and may change again."""
        ...

    def shutdown(self) -> None:
        """Break the pipe and wake who waits in it, as far as that is possible."""
        ...

    def close(self) -> None:
        """Let go of it. No other thread uses it any more."""
        ...


class PumpedCarrier:
    """The threads of one link over a `Pipe`."""

    def __init__(self, pipe: Pipe, peer: int, link: Link) -> None:
        self._pipe, self._peer, self._link = pipe, peer, link
        self._woken = threading.Event()
        self._writer: threading.Thread | None = None
        self._reader = threading.Thread(target=self._read_all, name=f"nfold-read-{peer}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._reader.start()

    def try_write(self, parts: Sequence[memoryview]) -> int:
        """Write nothing: a pipe waits for its peer."""
        return 0

    def wake(self) -> None:
        """Wake the writer, or start it when there is something to write for the first time."""
        if self._writer is None and not self._link.is_ending:
            self._writer = threading.Thread(target=self._write_all, name=f"nfold-write-{self._peer}", daemon=True)
            self._writer.start()
        self._woken.set()

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Take no notice: a pipe takes one message at a time."""

    def silent_s(self) -> float:
        """Return 0: a pipe does not show its connection."""
        return 0.0

    def shutdown(self) -> None:
        """Break the pipe."""
        self._pipe.shutdown()

    def close(self, deadline_s: float) -> None:
        """Wait for both threads until the deadline, then end them and the pipe."""
        self._join(deadline_s)
        self._pipe.shutdown()
        self._join(time.monotonic() + LAST_WAIT_S)
        self._pipe.close()

    def _join(self, deadline_s: float) -> None:
        for thread in (self._writer, self._reader):
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))

    def _read_all(self) -> None:
        with self._failing():
            for target in self._link.incoming():
                self._pipe.read_into(target)

    def _write_all(self) -> None:
        is_last = False
        with self._failing():
            while not is_last:
                self._woken.wait()
                self._woken.clear()
                is_last = self._link.is_ending
                while (frame := self._link.take()) is not None:
                    self._pipe.write(frame.parts)
                    frame.done()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a broken pipe, or a callback that raised: never a silent end
            self._link.fail(error)
