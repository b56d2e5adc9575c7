"""Lets no process answer more than so many questions to Mt-KaHyPar, which keeps some of each until its process ends.

    the first questions    this process answers: a short run starts nothing for them
    further ones           a child does, and after as many the next child

For each call the package adds to a list of statistics that nothing clears (its class `Utilities`), whatever becomes of
the objects that it was called with. Equal questions have equal answers in all processes.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import weakref

from nfold.errors import InternalError
from nfold.planning.hypergraph import kahypar_answers
from nfold.planning.hypergraph.kahypar_answers import READY, Question, answer

MOST = 500
"""Questions to one process: those of about fifty plans, of which 3 to 6 MB stay."""
_TRIES = 2
"""Children that may die of one question: one that somebody killed says nothing of it."""
_PIECE_BYTES = 1 << 16
_START_S = 60.0
_END_S = 1.0


class Processes:
    """This process, then one child after another; for any thread."""

    def __init__(self, most: int = MOST, script: str = kahypar_answers.__file__) -> None:
        """Args:
        most: questions to each of them.
        script: that a child runs.
        """
        self._most = self._num_left = most
        self._script = script
        self._child: _Child | None = None
        self._asking = threading.Lock()

    def ask(self, question: Question) -> list[int]:
        """Return for each vertex its block.

        Raises:
            InternalError: children die of the question.
        """
        with self._asking:
            for _ in range(_TRIES):
                if self._num_left == 0 or (self._child is not None and self._child.owes_answer):
                    self._begin_next()
                self._num_left -= 1
                if self._child is None:
                    return answer(question)
                if (found := self._child.answer(question)) is not None:
                    return found
                code = self._child.end()
        raise InternalError(
            f"the process that asks Mt-KaHyPar to divide {len(question['weights'])} vertices into "
            f"{question['num_blocks']} blocks ended with code {code} instead, {_TRIES} times"
        )

    def _begin_next(self) -> None:
        """Let the next child answer, or this process where none can be started."""
        if self._child is not None:
            self._child.end()
        self._child, self._num_left = None, self._most
        with contextlib.suppress(OSError):
            self._child = _Child(self._script)


class _Child:
    """A process that answers until its connection is closed, so that it ends with this process however that ends.

    The kernel is not told to kill it with its parent: that would be with the thread that started it.

    Attributes:
        owes_answer: whether it was asked and has not answered, since it died or who asked was interrupted.
    """

    def __init__(self, script: str) -> None:
        """Args:
        script: that it runs.

        Raises:
            OSError: it cannot be started, or is not ready in time.
        """
        self._connection, other = socket.socketpair()
        with contextlib.ExitStack() as failing, other:
            failing.enter_context(self._connection)
            # A session of its own: a Ctrl-C in the terminal is for its parent.
            process = subprocess.Popen([sys.executable, "-P", script], stdin=other.fileno(), start_new_session=True)
            failing.pop_all()
        self._end = weakref.finalize(self, _end, self._connection, process)  # at the end of this process at the latest
        self.owes_answer = False
        self._connection.settimeout(_START_S)
        if self._line() != READY:
            raise ChildProcessError(f"{script} has ended")
        self._connection.settimeout(None)

    def answer(self, question: Question) -> list[int] | None:
        """Return for each vertex its block; None: it has died."""
        self.owes_answer = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(json.dumps(question).encode() + b"\n")
            if line := self._line():
                blocks: list[int] = json.loads(line)
                self.owes_answer = False
                return blocks
        return None

    def end(self) -> int | None:
        """Let it end; return its exit code."""
        return self._end()

    def _line(self) -> bytes:
        """Return what it says next; empty: it has ended."""
        said = b""
        while not said.endswith(b"\n"):
            if not (piece := self._connection.recv(_PIECE_BYTES)):
                return b""
            said += piece
        return said


def _end(connection: socket.socket, process: "subprocess.Popen[bytes]") -> int:
    with connection, contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    try:
        return process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
