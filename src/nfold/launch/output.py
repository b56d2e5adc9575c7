"""What ranks print: read from a pipe, its beginning and its end written to a log, its last lines kept for an error.

    ranks ──> pipe ──> the first MOST_BYTES ─────────────────────> log, at once
                       what comes then: counted, the last of it ──> log, at the end, behind a line that says how much
                                                                   was left out

A program that prints in every step must not fill a disk. What it said first (warnings, settings) and last (why it
ended) is what a log is read for.
"""

import contextlib
import itertools
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

from nfold.errors import RunError

MOST_BYTES = 10_000_000
"""Of the beginning: some hundred thousand lines. A run that goes on adds as many again."""
LAST_BYTES = 100_000
"""Of the end."""
MOST_LINES = 3
"""The last lines of a traceback say what it is about."""
MOST_CHARACTERS = 300
_BROKE_DOWN, _FRAME = "Fatal Python error: ", "  File "
"""As faulthandler writes; the innermost frame comes first."""
_TAIL_BYTES = 8192
_READ_BYTES = 65_536
_LEFTOVER_READS = 64
"""At the end: more than a pipe holds. Who still prints then has outlived its rank."""


class Output:
    """A pipe into which ranks print, and the thread that empties it."""

    def __init__(
        self,
        log: Path | None,
        *,
        relay: Callable[[bytes], None] | None = None,
        most_bytes: int = MOST_BYTES,
        last_bytes: int = LAST_BYTES,
    ) -> None:
        """Args:
        log: is appended to, and others may write to it as well; None: only the last lines are kept.
        relay: is given all that is printed, by a thread of its own, instead of a log.
        most_bytes: of the beginning that go to the log.
        last_bytes: of the end.

        Raises:
            RunError: the log cannot be written.
        """
        try:
            self._log = open(log, "ab", buffering=0) if log else None  # noqa: SIM115  # until `close`
        except OSError as error:
            raise RunError(f"cannot write the log {log}: {error.strerror}. Let this user write there.") from error
        self._relay = relay
        self._room_bytes = self._most_bytes = most_bytes
        self._last_bytes = last_bytes
        self._last, self._tail = b"", b""
        self._beyond_bytes = 0
        self._reads, self.file = os.pipe()
        """`file`: the descriptor that ranks print to."""
        os.set_blocking(self._reads, False)
        self._taking = threading.Lock()
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="nfold-output", daemon=True)
        self._thread.start()
        self._is_open = True

    def last_lines(self) -> list[str]:
        """Return the last lines with something in them that were printed, as plain text.

        Of a process that broke down: what happened, and where it was.
        """
        self._take()
        plain = [_plain(line) for line in self._tail.decode(errors="replace").splitlines()]
        lines = [line[:MOST_CHARACTERS] for line in plain if line.strip()]
        broke = [index for index, line in enumerate(lines) if line.startswith(_BROKE_DOWN)]
        if not broke:
            return lines[-MOST_LINES:]
        where = (line for line in lines[broke[-1] :] if line.startswith(_FRAME))
        return [lines[broke[-1]], *itertools.islice(where, MOST_LINES - 1)]

    def add(self, printed: bytes) -> None:
        """Take in what came another way than through the pipe; any thread may."""
        with self._taking:
            self._keep(printed)

    def close(self) -> None:
        """Take in what is still there, and let go of the log; safe to call again."""
        if not self._is_open:
            return
        self._is_open = False
        os.close(self._end)
        self._thread.join()
        self._take()
        for descriptor in (self.file, self._reads, self._ended):
            os.close(descriptor)
        if self._log is not None:
            self._write(self._rest())
            self._log.close()

    def _run(self) -> None:
        """Empty the pipe until `close`; a rank that finds it full stands still."""
        poll = select.poll()
        for descriptor in (self._reads, self._ended):
            poll.register(descriptor, select.POLLIN)
        while all(descriptor != self._ended for descriptor, _ in poll.poll()):
            self._take()

    def _take(self) -> None:
        """Take in what is in the pipe now; the writing end is ours too, so it never ends by itself."""
        with self._taking, contextlib.suppress(BlockingIOError):
            for _ in range(_LEFTOVER_READS):
                self._keep(os.read(self._reads, _READ_BYTES))

    def _keep(self, printed: bytes) -> None:
        self._tail = (self._tail + printed)[-_TAIL_BYTES:]
        if self._relay is not None:
            self._relay(printed)
            return
        first, beyond = printed[: self._room_bytes], printed[self._room_bytes :]
        self._room_bytes -= len(first)
        self._beyond_bytes += len(beyond)
        self._last = (self._last + beyond)[-self._last_bytes :]
        self._write(first)

    def _rest(self) -> bytes:
        """Return what belongs behind the beginning: the end, and how much is missing between them."""
        left_out = self._beyond_bytes - len(self._last)
        if not left_out:
            return self._last
        told = f"of what ranks printed after the first {self._most_bytes:,} bytes, {left_out:,} are left out here"
        return f"\n[nfold: {told}]\n".encode() + self._last

    def _write(self, text: bytes) -> None:
        """Write to the log, if there is room: a full disk must not end what trains."""
        if self._log is not None and text:
            with contextlib.suppress(OSError):
                self._log.write(text)


def _plain(line: str) -> str:
    return "".join(each if each.isprintable() else " " for each in line).rstrip()
