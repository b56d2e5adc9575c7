"""A command on one node of an emulated cluster: its process, and what it writes, line by line.

runs ──> ended ──> what it wrote was handed on ──> `ended` is called ─ ─> nobody holds its pipes: the thread ends
                   (its children may go on writing)
"""

import fcntl
import os
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

_READ_BYTES = 1 << 16


class Lines:
    """Cuts bytes into lines, however they come. Pure."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[str]:
        """Take in bytes and return the lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_text(line) for line in lines]

    def rest(self) -> list[str]:
        """Return what has come of a line that nobody has ended, if anything has."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


class OutputListener(Protocol):
    """Is told what a program does, from the program's thread."""

    def wrote(self, line: str, is_error: bool) -> None:
        """It wrote a line, to its error output or to the other."""
        ...

    def ended(self, code: int) -> None:
        """It has ended, and was heard to its last line; `code` is as subprocess counts: -9 after signal 9."""
        ...


class NodeCommand:
    """A process and the thread that hears it.

    What it started in the background goes on, and is heard, until its node is cleared; nobody waits for it.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], listener: OutputListener
    ) -> None:
        """Start it.

        Args:
            name: of the thread.
            command: with what makes it enter its node.
            environment: all of it.
            listener: is told what it writes and how it ends.

        Raises:
            OSError: it cannot be started.
        """
        self._listener = listener
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._lines: dict[int, Lines] = {}
        """By pipe, as long as somebody may write to it."""
        self._poll = select.poll()
        self._thread = threading.Thread(target=self._hear, name=f"nfold-{name}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until no process holds its pipes any more."""
        self._thread.join()

    def _hear(self) -> None:
        process = self._process
        assert process.stdout is not None, "it is a pipe"
        assert process.stderr is not None, "it is a pipe"
        with process.stdout as out, process.stderr as err:
            errors, end = err.fileno(), os.pidfd_open(process.pid)
            self._lines = {out.fileno(): Lines(), errors: Lines()}
            for descriptor in (*self._lines, end):
                self._poll.register(descriptor, select.POLLIN)
            runs = True
            while runs or self._lines:
                ready = [descriptor for descriptor, _ in self._poll.poll()]
                for pipe in [pipe for pipe in ready if pipe in self._lines]:
                    self._read(pipe, pipe == errors)
                if runs and end in ready:
                    runs = False
                    self._poll.unregister(end)
                    os.close(end)
                    self._close(errors)

    def _read(self, pipe: int, is_error: bool) -> None:
        data = os.read(pipe, _READ_BYTES)
        self._tell(self._lines[pipe].take(data) if data else self._lines[pipe].rest(), is_error)
        if not data:
            self._poll.unregister(pipe)
            del self._lines[pipe]

    def _close(self, errors: int) -> None:
        """Hand on what it had written when it ended, and no more: its children may write for ever."""
        code = self._process.wait()
        for pipe, lines in self._lines.items():
            waiting = _waiting_bytes(pipe)
            heard = lines.take(os.read(pipe, waiting)) if waiting else []
            self._tell([*heard, *lines.rest()], pipe == errors)
        self._listener.ended(code)

    def _tell(self, lines: Sequence[str], is_error: bool) -> None:
        for line in lines:
            self._listener.wrote(line, is_error)


def _waiting_bytes(pipe: int) -> int:
    """Return how much a pipe holds that nobody has read."""
    count: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0]
    return count


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
