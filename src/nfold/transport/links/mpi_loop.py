"""The one thread of a process that speaks MPI, from entering it to leaving it.

    call    ──> done soon, in order
    send    ──> a request ─┐
    receive ──> a request ─┴─> tested again and again; what has ended is told

MPI moves on while it is called, and has no event to wait for. So the thread tests its requests, with pauses between
that grow with the time in which nothing came: no wait gets longer by more than an eighth, and who waits for long
computes little. While bytes are on their way the pauses stay short. One thread is all that the least MPI allows
(MPI_THREAD_FUNNELED), and its order is that of the messages.
"""

import contextlib
import importlib.util
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from nfold.errors import ClusterError

LEAST_PAUSE_S, MOST_PAUSE_S, MOVING_PAUSE_S = 2e-5, 5e-3, 1e-4
_NEEDS_MPI4PY = "--on mpi needs mpi4py on every host: pip install 'nfold[mpi]'."
_PAUSE_SHARE = 8
_LENGTH_BYTES = 8
Then = Callable[[int], None]
"""Is told that a message has gone or come, and how many bytes it had."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a way through MPI. What goes one way has one tag, so it arrives in order."""

    rank: int
    """In the world of MPI."""
    send_tag: int = 0
    receive_tag: int = 0


@dataclass(slots=True)
class _Watched:
    """A request under way."""

    then: Then
    failed: Callable[[Exception], None]
    moves: bool
    """Whether its bytes are on their way, as far as that is known."""


def check_mpi4py() -> None:
    """Refuse to go on where it is not installed; nothing is imported for it.

    Raises:
        ClusterError: it is not.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise ClusterError(f"{_NEEDS_MPI4PY} Here it is not installed.")


def load_mpi() -> Any:
    """Return mpi4py's module of MPI, not entered yet.

    Raises:
        ClusterError: there is none, or it finds no library of MPI.
    """
    try:
        import mpi4py

        mpi4py.rc(initialize=False, finalize=False)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ClusterError(f"{_NEEDS_MPI4PY} Here it says: {error}") from error
    return MPI


class MpiLoop:
    """The thread. All that it calls must not raise."""

    def __init__(self, name: str, mpi: Any) -> None:
        """Enter MPI; returns once all processes have.

        Args:
            name: of the thread.
            mpi: as `load_mpi` returns it.

        Raises:
            ClusterError: MPI says that it went wrong.
        """
        self._mpi = mpi
        self._calls: deque[Callable[[], None]] = deque()
        self._requests: list[Any] = []
        self._watched: list[_Watched] = []
        self._statuses: list[Any] = []
        self._woken, self._entered = threading.Event(), threading.Event()
        self._refused: Exception | None = None
        self._ending = False
        self._heard_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._entered.wait()
        if self._refused is not None:
            raise ClusterError(f"MPI cannot be entered: {self._refused}") from self._refused

    @property
    def is_current(self) -> bool:
        """Whether the caller is its thread."""
        return threading.current_thread() is self._thread

    @property
    def rank(self) -> int:
        """Return the number of this process in MPI."""
        return int(self._world.Get_rank())

    @property
    def size(self) -> int:
        """Return how many processes are in MPI."""
        return int(self._world.Get_size())

    def call(self, act: Callable[[], None]) -> None:
        """Let the thread do something soon, in the order of the calls. Any thread may ask."""
        self._calls.append(act)
        self._woken.set()

    def broadcast(self, payload: bytes) -> bytes:
        """Return what rank 0 gave; all processes have to call it, from any thread, and others give nothing.

        Raises:
            ClusterError: MPI says that it went wrong.
        """
        heard: Future[bytes] = Future()
        self.call(lambda: self._broadcast(payload, heard))
        return heard.result()

    def leave(self) -> None:
        """Leave MPI and end the thread; returns once all others leave too, however long they still have to do."""
        self._ending = True
        self._woken.set()
        self._thread.join()

    # In its own thread

    def send(self, peer: Peer, data: memoryview, then: Then, failed: Callable[[Exception], None]) -> None:
        """Send a message, at most 2 GiB."""
        request = self._world.Isend([data, len(data), self._mpi.BYTE], peer.rank, peer.send_tag)
        self._watch(request, _Watched(then, failed, moves=True))

    def receive(
        self, peer: Peer, into: memoryview, then: Then, failed: Callable[[Exception], None], *, moves: bool
    ) -> Any:
        """Receive a message of at most as many bytes; return the request, which may be cancelled.

        Args:
            peer: from whom.
            into: where the bytes go.
            then: is told how many came, or 0 after it was cancelled.
            failed: is told what MPI says.
            moves: whether it is known that the peer has begun to send.
        """
        request = self._world.Irecv([into, len(into), self._mpi.BYTE], peer.rank, peer.receive_tag)
        self._watch(request, _Watched(then, failed, moves))
        return request

    def cancel(self, request: Any) -> None:
        """Wait for a message no longer; one that MPI cannot cancel comes, or is lost with all others."""
        with contextlib.suppress(self._mpi.Exception):
            request.Cancel()

    def _watch(self, request: Any, watched: _Watched) -> None:
        self._requests.append(request)
        self._watched.append(watched)
        if len(self._statuses) < len(self._requests):
            self._statuses.append(self._mpi.Status())

    def _run(self) -> None:
        try:
            self._enter()
        except Exception as error:  # raised where it was asked for
            self._refused = error
            return
        finally:
            self._entered.set()
        while not (self._ending and not self._calls and not self._requests):
            self._woken.clear()
            if self._move():
                self._heard_s = time.monotonic()
            else:
                self._woken.wait(self._pause_s())
        self._mpi.Finalize()

    def _enter(self) -> None:
        if not self._mpi.Is_initialized():
            self._mpi.Init_thread(self._mpi.THREAD_FUNNELED)
        self._world = self._mpi.COMM_WORLD.Dup()  # what the user's program says in MPI is its own

    def _move(self) -> int:
        """Do what there is to do; return how much that was."""
        try:
            return self._do_calls() + self._test()
        except Exception as error:  # of MPI, or of who was told: never a silent end
            return self._fail_all(error)

    def _do_calls(self) -> int:
        for number in itertools.count():
            if not self._calls:
                return number
            self._calls.popleft()()
        raise AssertionError("it counts on")

    def _test(self) -> int:
        if not self._requests:
            return 0
        ended = self._mpi.Request.Testsome(self._requests, self._statuses) or []
        told = [
            (self._watched[index].then, self._statuses[number].Get_count(self._mpi.BYTE))
            for number, index in enumerate(ended)
        ]
        for index in sorted(ended, reverse=True):
            del self._requests[index], self._watched[index]
        for then, num_bytes in told:
            then(num_bytes)
        return len(told)

    def _fail_all(self, error: Exception) -> int:
        """After an error nobody knows what MPI still does."""
        watched, self._watched, self._requests = self._watched, [], []
        for each in watched:
            each.failed(error)
        return len(watched)

    def _pause_s(self) -> float:
        if any(each.moves for each in self._watched):
            return MOVING_PAUSE_S
        idle_s = time.monotonic() - self._heard_s
        return min(MOST_PAUSE_S, max(LEAST_PAUSE_S, idle_s / _PAUSE_SHARE))

    def _broadcast(self, payload: bytes, heard: "Future[bytes]") -> None:
        length = bytearray(len(payload).to_bytes(_LENGTH_BYTES, "big"))

        def tell_content(_: int) -> None:
            content = bytearray(payload or int.from_bytes(length, "big"))
            self._bcast(content, lambda _: heard.set_result(bytes(content)), heard)

        self._bcast(length, tell_content, heard)

    def _bcast(self, buffer: bytearray, then: Then, heard: "Future[bytes]") -> None:
        def fail(error: Exception) -> None:
            heard.set_exception(ClusterError(f"MPI cannot tell all processes how to reach the first one: {error}"))

        try:
            self._watch(self._world.Ibcast(buffer, root=0), _Watched(then, fail, moves=False))
        except self._mpi.Exception as error:
            fail(error)
