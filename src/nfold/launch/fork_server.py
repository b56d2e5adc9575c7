"""Starts processes late from a copy of this one as it was early: before threads and devices, which no fork survives.

    this process   ── fork ──>  server         holds what is imported by now, and waits
    imports the user's script, starts threads ..
        start      ── socket ─> server         forks a process for each socket, then ends
        their parent from then on <── adopts

The kernel gives processes without a parent to their next ancestor that adopts. So this one can wait for them, they are
killed with it, and no server stays in between.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NoReturn

from nfold.launch.local_launcher import describe_exit, exit_code
from nfold.launch.orphans import adopting, end_with_parent

_MOST_BYTES = 4096
_STANDARD_ERROR = 2
Run = Callable[[socket.socket, str], object]
"""What a process does with its socket and an argument; it ends when this returns."""


class ForkServer:
    """A copy of this process as it is now. It forks once, as many processes as are wanted then."""

    def __init__(self, name: str, run: Run) -> None:
        """Fork the server, which ends with this thread. Others may run that hold no lock which `run` needs.

        Args:
            name: of the processes, as `ps` and `top` show it; at most 15 letters.
            run: what they do.
        """
        self._connection, other = socket.socketpair(type=socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._pid, self._refused = 0, ""
        with other:
            try:
                self._pid = _fork(partial(_serve, name, run, other, parent))
            except OSError as error:  # matters to those only who start something
                self._refused = f"this process ({parent}) cannot be forked: {error.strerror}"

    def start(self, argument: str, sockets: Iterable[socket.socket]) -> "list[Forked]":
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
                numbers = [self._start(argument, each) for each in sockets]
            finally:
                self.close()
        return [Forked(number) for number in numbers]

    def _start(self, argument: str, passed: socket.socket) -> int:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._connection, [argument.encode()], [passed.fileno()])
            if number := self._connection.recv(_MOST_BYTES):
                return int(number)
        raise ChildProcessError(f"the process that starts them ({self._pid}) {Forked(self._pid).ended()}")

    def close(self) -> None:
        """End the server, if it is still there."""
        with contextlib.suppress(OSError):  # it is gone already
            self._connection.shutdown(socket.SHUT_RDWR)  # who else was forked holds this end, too
        self._connection.close()
        if self._pid:
            Forked(self._pid).end(None)
            self._pid = 0


class Forked:
    """A process that a server has started. Threads may ask side by side how it ended."""

    def __init__(self, pid: int) -> None:
        """Args:
        pid: its number.
        """
        self.pid = pid
        self._code: int | None = None

    def ended(self) -> str:
        """Wait for its end, and say how it came: `exited with code 1`; `ended` where nobody can tell."""
        try:
            code = exit_code(self.pid, None)
        except (ProcessLookupError, ChildProcessError):
            code = self._code  # another thread was in `end`
        return "ended" if code is None else describe_exit(code)

    def end(self, grace_s: float | None) -> None:
        """Wait for its end, at most `grace_s`, then kill it; None: wait as long as it takes. It is gone afterwards."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # the user's program ignores SIGCHLD
            self._code = exit_code(self.pid, grace_s)
            if self._code is None:
                os.kill(self.pid, signal.SIGKILL)
                self._code = exit_code(self.pid, None)
            os.waitpid(self.pid, 0)


def _serve(name: str, run: Run, connection: socket.socket, parent: int) -> None:
    _begin(name, parent, connection)
    own = os.pidfd_open(os.getpid())
    while True:
        argument, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 1)
        if not argument:
            return
        with socket.socket(fileno=descriptors[0]) as passed:
            number = _fork(partial(_run, name, run, passed, argument.decode(), parent, own))
        connection.send(str(number).encode())


def _run(name: str, run: Run, passed: socket.socket, argument: str, parent: int, server: int) -> None:
    """Run, once the server is gone and this process is the parent's."""
    poll = select.poll()
    poll.register(server, select.POLLIN)
    poll.poll()
    _begin(name, parent, passed)
    run(passed, argument)


def _begin(name: str, parent: int, kept: socket.socket) -> None:
    """Become a process of its own, which ends with its parent."""
    end_with_parent(parent)
    Path("/proc/self/comm").write_text(name, encoding="utf-8")
    _let_go(kept.fileno())


def _let_go(kept: int) -> None:
    """Close what this process has open from others. Their numbers stay taken, since objects may yet close them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > _STANDARD_ERROR and number not in (kept, nothing):
            os.dup2(nothing, number, inheritable=False)


def _fork(do: Callable[[], object]) -> int:
    """Fork a process that does something and ends; return its number."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both would print what waits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: of threads, see ForkServer
        number = os.fork()
    return number or _do_and_end(do)


def _do_and_end(do: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, lambda *_: None)  # job managers send it to all processes of a job, see rank.py
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        do()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads of the user's libraries must not keep it alive
