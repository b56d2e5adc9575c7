"""What members of a job print: line by line and marked to one log, its beginning and end kept; last lines for an error.

    member 0 ──> pipe ─┐   the first MOST_BYTES of marked lines ──> log, at once
    member 1 ──> pipe ─┴─> what comes then: counted, the last of it ──> log, at the end, behind a line that says how
                           much was left out

    [0] epoch 1
    [1 on pi-2] UserWarning: ..

A program that prints in every step must not fill a disk. What it said first (warnings, settings) and last (why it
ended) is what a log is read for. Each member has a pipe of its own: lines of several are never mixed, and each says who
printed it, and on which other host. An agent there relays what its members print, and the command adds it to its log.
"""

import contextlib
import itertools
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nfold.errors import RunError

MOST_BYTES = 10_000_000
"""Of the beginning: some hundred thousand lines. A run that goes on adds as many again."""
LAST_BYTES = 100_000
"""Of the end."""
MOST_LINES = 2
"""The last lines of a traceback say what it is about: with them, an error has six lines at most."""
MOST_CHARACTERS = 300
LINE_BYTES = 16_384
"""A longer line is cut: nobody waits for the end of one that may have none."""
_BROKE_DOWN, _FRAME = "Fatal Python error: ", "  File "
"""As faulthandler writes; the innermost frame comes first."""
_TAIL_BYTES = 8192
_READ_BYTES = 65_536
_LEFTOVER_READS = 64
"""At the end: more than a pipe holds. Who still prints then has outlived its member."""


def mark_of(member: int | None, host: str = "") -> bytes:
    """Return what a line begins with in the log.

    Args:
        member: whose line it is; None: of the process that members are forked from.
        host: if it is another one than that of the command.
    """
    who = "ranks" if member is None else member
    return f"[{who} on {host}] ".encode() if host else f"[{who}] ".encode()


class Output:
    """A pipe for each member to print into, and the thread that empties them."""

    def __init__(
        self,
        log: Path | None,
        *,
        relay: Callable[[int | None, bytes], None] | None = None,
        most_bytes: int = MOST_BYTES,
        last_bytes: int = LAST_BYTES,
    ) -> None:
        """Args:
        log: is appended to, and others may write to it as well; None: only the last lines are kept.
        relay: is given all that a member prints, by a thread of its own, instead of a log.
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
        self._begun: dict[bytes, bytes] = {}
        """By mark: the line that a member has begun to print."""
        self._members: dict[int, int | None] = {}
        """By the end of a pipe that is read here."""
        self._taking = threading.Lock()
        self._ended, self._end = os.pipe()
        self._poll = select.epoll()  # unlike poll, it may be told of another pipe while it waits
        self._poll.register(self._ended, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="nfold-output", daemon=True)
        self._thread.start()
        self._is_open = True

    @contextlib.contextmanager
    def file_of(self, member: int) -> Iterator[int]:
        """Yield a descriptor for a member to inherit; the copy of this process is closed at the end of the block."""
        reads, writes = os.pipe()
        self.read(reads, member)
        try:
            yield writes
        finally:
            os.close(writes)

    def read(self, pipe: int, member: int | None = None) -> None:
        """Take in what comes through a pipe, and close it in the end.

        Args:
            pipe: descriptor of the end that is read.
            member: who prints into it; None: the process that members are forked from.
        """
        os.set_blocking(pipe, False)
        with self._taking:
            self._members[pipe] = member
        self._poll.register(pipe, select.EPOLLIN)

    def add(self, member: int | None, printed: bytes, host: str) -> None:
        """Take in what a member on another host has printed; any thread may call this."""
        with self._taking:
            self._keep(member, printed, host)

    def last_lines(self) -> list[str]:
        """Return the last lines with something in them that were printed, as plain text.

        Of a process that broke down: what happened, and where it was.
        """
        self._take_all()
        with self._taking:
            tail = self._tail + _marked(b"", list(self._begun.values()))
        plain = [_plain(line) for line in tail.decode(errors="replace").splitlines()]
        lines = [line[:MOST_CHARACTERS] for line in plain if line.strip()]
        broke = [index for index, line in enumerate(lines) if line.startswith(_BROKE_DOWN)]
        if not broke:
            return lines[-MOST_LINES:]
        where = (line for line in lines[broke[-1] :] if line.startswith(_FRAME))
        return [lines[broke[-1]], *itertools.islice(where, MOST_LINES - 1)]

    def close(self) -> None:
        """Take in what is still there, and let go of the log; safe to call again."""
        if not self._is_open:
            return
        self._is_open = False
        os.close(self._end)
        self._thread.join()
        self._take_all()
        self._poll.close()
        for descriptor in (*self._members, self._ended):
            os.close(descriptor)
        for mark, begun in self._begun.items():
            self._put(_marked(mark, [begun] if begun else []))
        self._begun = {}
        if self._log is not None:
            self._write(self._rest())
            self._log.close()

    def _run(self) -> None:
        """Empty the pipes until `close`; a member that finds its own full stands still."""
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._ended in ready:
                return
            for descriptor in ready:
                self._take_from(descriptor)

    def _take_all(self) -> None:
        with self._taking:
            descriptors = list(self._members)
        for descriptor in descriptors:
            self._take_from(descriptor)

    def _take_from(self, descriptor: int) -> None:
        """Take in what is in a pipe now, and let go of one that nobody holds any more."""
        with self._taking, contextlib.suppress(BlockingIOError):
            if descriptor not in self._members:
                return  # another thread was faster
            for _ in range(_LEFTOVER_READS):
                printed = os.read(descriptor, _READ_BYTES)
                if not printed:
                    self._let_go(descriptor)
                    return
                self._keep(self._members[descriptor], printed)

    def _let_go(self, descriptor: int) -> None:
        member = self._members.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        if begun := self._begun.pop(mark_of(member), b""):
            self._tail = (self._tail + _marked(b"", [begun]))[-_TAIL_BYTES:]
            self._put(_marked(mark_of(member), [begun]))

    def _keep(self, member: int | None, printed: bytes, host: str = "") -> None:
        if self._relay is not None:
            self._relay(member, printed)
            return
        mark = mark_of(member, host)
        *lines, begun = (self._begun.pop(mark, b"") + printed).split(b"\n")
        pieces = [piece for line in lines for piece in _cut(line)]
        *more, self._begun[mark] = _cut(begun)
        self._tail = (self._tail + _marked(b"", [*pieces, *more]))[-_TAIL_BYTES:]
        self._put(_marked(mark, [*pieces, *more]))

    def _put(self, marked: bytes) -> None:
        """Write lines, or, once there is no more room, keep their end."""
        first, beyond = marked[: self._room_bytes], marked[self._room_bytes :]
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


def _cut(line: bytes) -> list[bytes]:
    return [line[start : start + LINE_BYTES] for start in range(0, len(line), LINE_BYTES)] or [b""]


def _marked(mark: bytes, lines: Sequence[bytes]) -> bytes:
    return b"".join(mark + line + b"\n" for line in lines)


def _plain(line: str) -> str:
    return "".join(each if each.isprintable() else " " for each in line).rstrip()
