"""Answers GET requests from threads of its own, which end with it: for whoever looks at a run while it goes on."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from nfold.errors import PlanError

MOST_AT_ONCE = 16
"""Connections. Where one more comes, the oldest makes room."""
PATIENCE_S = 10.0
"""With who asks nothing, and with who does not read the answer."""
END_S = 5.0
"""How long an end waits for answers under way, which may read from a slow disk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """To a request."""

    status: int = 200
    kind: str = "text/plain; charset=utf-8"
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)


AnswerPath = Callable[[str], Answer]
"""Takes what a request asks for, from the first / on."""


@contextlib.contextmanager
def answering(host: str, port: int, flag: str, answer: AnswerPath) -> Iterator[int]:
    """Answer requests until the end of a block; yield the port.

    Args:
        host: address of this machine, or its name.
        port: 0: any free one.
        flag: that asks for it, as it was typed.
        answer: is called by several threads at once.

    Raises:
        PlanError: nothing can listen there.
    """
    try:
        server = _Server(host, port, answer)
    except OSError as error:
        raise PlanError(
            f"{flag}: cannot listen on {host}, port {port}: {error.strerror or error}. Use another one, or "
            "port 0 for any free one."
        ) from error
    try:
        server.start()
        yield server.server_address[1]
    finally:
        server.end()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = MOST_AT_ONCE

    def __init__(self, host: str, port: int, answer: AnswerPath) -> None:
        self.answer = answer
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: dict[socket.socket, None] = {}
        """Connections, the oldest first."""
        self._answering: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="nfold-web-server", daemon=True)
        super().__init__((host, port), _Handler)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def end(self) -> None:
        """Listen no more, and hang up on everybody."""
        self._is_over = True
        _hang_up(self.socket)
        self._thread.join(END_S)
        self.server_close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            _hang_up(connection)
        for thread in self._answering:
            thread.join(END_S)

    def _run(self) -> None:
        while not self._is_over:
            self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; in place of the oldest one where there are too many."""
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), name="nfold-web-answer", daemon=True
        )
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= MOST_AT_ONCE else None
            self._open[request] = None
        if oldest is not None:
            _hang_up(oldest)
        self._answering = [each for each in self._answering if each.is_alive()] + [thread]
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that has its answer."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of who hung up, or did not read."""


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server: _Server

    def do_GET(self) -> None:
        """Answer; who may be anybody learns of a failure that there was one."""
        try:
            answer = self.server.answer(self.path)
        except Exception:
            answer = Answer(status=500)
        self._send(answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request for something; who asks for nothing that there is learns nothing else."""
        del message, explain
        self._send(Answer(status=code))

    def version_string(self) -> str:
        """Name neither versions nor systems to strangers."""
        return "nfold"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal is the run's."""

    def _send(self, answer: Answer) -> None:
        body = answer.text.encode()
        self.send_response(answer.status)
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        for name, value in {**headers, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was quicker
        connection.shutdown(socket.SHUT_RDWR)
