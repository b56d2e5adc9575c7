"""Starts processes late from a copy of this one as it was early: before threads and devices, which no fork survives.

this process   ── fork ──>  server         holds what is imported by now, and waits
imports the user's script, starts threads ..
    start      ── socket ─> server         forks a process for each socket, which this one adopts (see `forking`)
    close      ── socket ─> server         ends
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterable
from functools import partial

from nfold.launch.child import Child
from nfold.launch.forking import MOST_BYTES, fork, let_go, name, serve
from nfold.launch.orphans import adopting, end_with_parent

Run = Callable[[socket.socket, str], object]
"""What a process does with its socket and an argument; it ends when this returns."""


class ForkServer:
    """A copy of this process as it is now, which forks as many processes as are wanted later, all at once."""

    def __init__(self, named: str, run: Run) -> None:
        """Fork the server, which ends with this thread. Others may run that hold no lock which `run` needs.

        Args:
            named: what the processes are called, as `ps` and `top` show it; at most 15 letters.
            run: what they do.
        """
        self._connection, other = socket.socketpair(type=socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._child: Child | None = None
        self._refused = ""
        with other:
            try:
                self._child = Child(fork(partial(_serve, named, run, other, parent)))
            except OSError as error:  # matters to those only who start something
                self._refused = f"this process ({parent}) cannot be forked: {error.strerror}"

    def start(self, argument: str, sockets: Iterable[socket.socket]) -> list[Child]:
        """Start a process for each socket; the server is gone afterwards.

        Args:
            argument: for all of them, some letters.
            sockets: are passed on, and stay open here.

        Raises:
            OSError: not all could be started. Those that were find the other end of their socket closed.
        """
        if self._refused:
            raise ChildProcessError(self._refused)
        with adopting():
            try:
                return [self._start(argument, each) for each in sockets]
            finally:
                self.close()

    def _start(self, argument: str, passed: socket.socket) -> Child:
        assert self._child is not None, "who cannot be forked is refused"
        answer = b""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._connection, [argument.encode()], [passed.fileno()])
            answer = self._connection.recv(MOST_BYTES)
        if not answer:
            how = self._child.ended(None)
            raise ChildProcessError(f"the process that starts them ({self._child.pid}) {how}")
        return adopted(answer)

    def close(self) -> None:
        """End the server, if it is still there."""
        with contextlib.suppress(OSError):  # it is gone already
            self._connection.shutdown(socket.SHUT_RDWR)  # who else was forked holds this end, too
        self._connection.close()
        if self._child is not None:
            self._child.end(None)


def adopted(answer: bytes) -> Child:
    """Return the process that a server's answer tells of.

    Raises:
        ChildProcessError: it tells why there is none.
    """
    if not answer.isdigit():
        raise ChildProcessError(answer.decode())
    return Child(int(answer))


def _serve(named: str, run: Run, connection: socket.socket, parent: int) -> None:
    _begin(named, parent, connection.fileno())
    serve(connection, partial(_run, named, run, parent), parent)


def _run(named: str, run: Run, parent: int, argument: str, descriptor: int) -> None:
    _begin(named, parent, descriptor)
    with socket.socket(fileno=descriptor) as passed:
        run(passed, argument)


def _begin(named: str, parent: int, kept: int) -> None:
    """Become a process of its own, which ends with its parent."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # job managers send it to all processes of a job, see rank.py
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    name(named)
    let_go(kept)
