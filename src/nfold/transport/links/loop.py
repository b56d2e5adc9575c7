"""One thread that serves many sockets: it sleeps until one of them can be read or written, and says so to its owner.

A thread per socket and direction would do the same, but each wakes for itself and then waits for Python's lock: with
eight peers that took a third more processor time.
"""

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
Ready = Callable[[int], None]
_LOOK_S = 0.1
"""How often who waits for the thread sees whether it still runs."""


class Loop:
    """The thread. All that it calls must not raise, and holds up all its sockets as long as it takes."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, READ, self._hear_waker)
        self._is_woken = False
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is its thread."""
        return threading.current_thread() is self._thread

    def call(self, act: Callable[[], None]) -> None:
        """Let the thread do something soon, in the order of the calls. Any thread may ask."""
        self._calls.append(act)
        if not (self._is_woken or self.is_current):
            self._is_woken = True
            with contextlib.suppress(OSError):  # it has ended, or is woken already
                self._waker.send(b"\0")

    def do(self, act: Callable[[], None]) -> None:
        """Let the thread do something, behind all that it was asked to do before, and wait until it has."""
        if self.is_current:
            act()
            return
        done = threading.Event()
        self.call(act)
        self.call(done.set)
        while not done.wait(_LOOK_S) and self._thread.is_alive():  # one that has ended does nothing more
            pass

    def watch(self, connection: socket.socket, events: int, before: int, ready: Ready) -> None:
        """Change what is waited for on a socket. Only its own thread may.

        Args:
            connection: the socket, which does not block.
            events: READ, WRITE, or both added; 0: nothing.
            before: what was waited for until now.
            ready: is told which of them can be done.
        """
        if not before:
            self._selector.register(connection, events, ready)
        elif events:
            self._selector.modify(connection, events, ready)
        else:
            self._selector.unregister(connection)

    def close(self) -> None:
        """End the thread, after all that it was asked to do."""
        self._ending = True
        self.call(_nothing)
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        while not (self._ending and not self._calls):
            for key, events in self._selector.select():
                key.data(events)
            while self._calls:
                self._calls.popleft()()
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def _hear_waker(self, _: int) -> None:
        self._woken.recv(64)
        self._is_woken = False


def _nothing() -> None:
    pass
