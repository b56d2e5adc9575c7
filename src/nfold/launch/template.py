"""A process that has imported what every rank needs, from which ranks are forked: it is imported once for all of them.

    this process          template
    started at once -->   imports, while it is its only thread
                   <--    ready
    start          -->    forks the process of a member, which this one adopts (see `forking`)
                   <--    number

A thread of its own asks, so that nobody waits for the import. The kernel ends the template with that thread, which
lives until `close`. One that nobody asks any more ends, since it keeps memory of its own; for the next member another
one is started, as where it has died.
"""

import contextlib
import json
import os
import queue
import select
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from nfold.launch.asked import Asked
from nfold.launch.child import Child, OwnChild
from nfold.launch.command_line import ROOM
from nfold.launch.fork_server import adopted
from nfold.launch.forking import MOST_BYTES
from nfold.launch.local_launcher import TOKEN_VARIABLE
from nfold.launch.orphans import adopting

READY = b"ready"
IDLE_S = 60.0
"""After which a template ends that nobody asks."""
_END_S = 2.0
"""Within which a template ends that was told to."""


_shared: ContextVar["Template | None"] = ContextVar("nfold_template", default=None)
"""Of the jobs that are played now."""


class Template:
    """Starts members from a process that is kept for them."""

    def __init__(self, command: Sequence[str], idle_s: float = IDLE_S) -> None:
        """Begin to start it.

        Args:
            command: what it runs; `--launcher PID --connection DESCRIPTOR --room ..` is added.
            idle_s: after which it ends where nobody asks for a member.
        """
        self._command, self._idle_s = list(command), idle_s
        self._asked: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._closing, self._close = os.pipe()
        self.printed, self._prints = os.pipe()
        """Of both ends, the one to read: what the template itself prints."""
        self._child: Child | None = None
        self._connection: socket.socket | None = None
        self._is_ready = False
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="nfold-template", daemon=True)
        self._thread.start()

    def begin(self, command: list[str], environment: Mapping[str, str], folder: Path | None, output: int) -> Asked:
        """Ask for a member, as a `Begin` of a launcher; return at once.

        Args:
            command: of the member, as if it was started by itself.
            environment: of the member. Only the token is passed on: the rest is that of the template.
            folder: in which it works; None: in that of this process.
            output: descriptor that it prints into; the caller may close it.
        """
        order = {"command": command, "token": environment[TOKEN_VARIABLE], "folder": str(folder or "")}
        asked = Asked(order=order, output=os.dup(output))
        self._asked.put(asked)
        return asked

    def close(self) -> None:
        """End the template; whom it has not yet started is not started. Safe to call again."""
        if self._thread is None:
            return
        self._asked.put(None)
        os.close(self._close)
        self._thread.join()
        self._thread = None
        for descriptor in (self._closing, self.printed, self._prints):
            os.close(descriptor)

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):  # told to who asks for a member
                self._begin()
            for asked in iter(self._next, None):
                self._answer(asked)
        finally:
            self._end(_END_S if self._is_ready else 0.0)

    def _next(self) -> Asked | None:
        """Wait for what is asked next; None: nothing will be."""
        try:
            return self._asked.get(timeout=self._idle_s)
        except queue.Empty:
            self._end(_END_S)
            return self._asked.get()

    def _answer(self, asked: Asked) -> None:
        """Have a member started, unless it was let go meanwhile."""
        child, why_not = None, ""
        try:
            child = None if asked.is_settled else self._fork(asked)
        except OSError as error:
            why_not = f"could not be started: {error}"
        finally:
            os.close(asked.output)
        if (child or why_not) and not asked.settle(child, why_not) and child is not None:
            child.end(0.0)

    def _fork(self, asked: Asked) -> Child | None:
        """Let the template fork a member; None: it shall start no more.

        Raises:
            OSError: the template cannot be started, has died, or cannot be forked.
        """
        if self._is_ready and self._child is not None and self._child.ended(0.0) is not None:
            self._end(0.0)
        if self._child is None:
            self._begin()
        if not self._is_ready and self._is_closed_first():
            return None
        if not (answer := self._told(asked)):
            raise ChildProcessError(f"the process that ranks are forked from {self._end(_END_S)}")
        return adopted(answer)

    def _begin(self) -> None:
        """Start the template.

        Raises:
            OSError: it cannot be started.
        """
        own, other = socket.socketpair(type=socket.SOCK_SEQPACKET)
        ours = ["--launcher", str(os.getpid()), "--connection", str(other.fileno()), "--room", ROOM]
        with contextlib.ExitStack() as failing, other:
            failing.enter_context(own)
            process = subprocess.Popen(
                [*self._command, *ours],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=self._prints,
                stderr=self._prints,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
            self._child, self._connection = OwnChild(process), own
            failing.pop_all()

    def _is_closed_first(self) -> bool:
        """Wait until the template says something, or has died; True: until it was closed."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._closing, 0)  # its other end is closed
        return all(number == self._closing for number, _ in poll.poll())

    def _told(self, asked: Asked) -> bytes:
        """Tell the template to fork; return its answer, empty where it has died, or was closed."""
        with adopting(), contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._is_ready = self._is_ready or self._socket.recv(MOST_BYTES) == READY
            if self._is_ready:
                socket.send_fds(self._socket, [json.dumps(asked.order).encode()], [asked.output])
                return self._socket.recv(MOST_BYTES) if self._answers() else b""
        return b""

    def _answers(self) -> bool:
        """Wait until the template answers, or has died; once it was closed, no longer than it has to end."""
        if not self._is_closed_first():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(_END_S * 1000))

    def _end(self, grace_s: float) -> str:
        """End the template, if it is there; return how it ended."""
        if self._connection is not None:
            self._connection.close()
        self._is_ready, child, self._child = False, self._child, None
        if child is None:
            return "was not started"
        child.end(grace_s)
        return child.reap()

    @property
    def _socket(self) -> socket.socket:
        assert self._connection is not None, "it has begun"
        return self._connection


@contextlib.contextmanager
def shared_template(command: Sequence[str]) -> Iterator[None]:
    """Let all jobs within have their members forked from one template, which begins to import now.

    Args:
        command: as for Template.
    """
    if _shared.get() is not None:
        yield
        return
    with contextlib.closing(Template(command)) as template:
        token = _shared.set(template)
        try:
            yield
        finally:
            _shared.reset(token)


@contextlib.contextmanager
def template_of_job(command: Sequence[str]) -> Iterator[Template]:
    """Yield the template that is shared, or one for this job alone.

    Args:
        command: as for Template.
    """
    if (shared := _shared.get()) is not None:
        yield shared
        return
    with contextlib.closing(Template(command)) as template:
        yield template
