"""A way between two processes that somebody listens in on, and that cuts what goes over it in any places."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from typing import Self

READ_BYTES = 1 << 16
Cut = Callable[[], int]


def any_segments(seed: int) -> Cut:
    """Return what cuts a stream as networks do, or worse."""
    drawn = random.Random(seed)
    return lambda: drawn.choice((1, 5, 100, 1448, 2896, 9000, READ_BYTES))


class HeardWire:
    """Takes connections in the place of whoever listens at an address, and carries them there."""

    def __init__(self, target: tuple[str, int], cut: Cut = lambda: READ_BYTES) -> None:
        self._target, self._cut = target, cut
        self._heard: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def heard(self) -> bytes:
        """All that went over it, one direction of one connection after the other."""
        return b"\n".join(bytes(stream) for stream in self._heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._carry, args=(source, sink), name="wire", daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        stream = bytearray()
        self._heard.append(stream)
        with contextlib.suppress(OSError):
            while data := source.recv(self._cut()):
                stream += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
