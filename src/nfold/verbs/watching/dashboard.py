"""Shows a run on a page while it goes on: to who knows its address, which has a token in it, on this machine only.

It is made of what the run's folder holds, when a browser asks. While none does, one thread waits and nothing is done.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nfold.core.run_state import RunState
from nfold.verbs.options.addresses import LOOPBACK
from nfold.verbs.watching.folder_reading import LossReader, last_lines
from nfold.verbs.watching.web_server import Answer, answering
from nfold.view.html import LiveFacts, dashboard_page, dashboard_parts

PARTS = "parts.json"
_HEADERS = {"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


class DashboardServer:
    """Answers with a run's page, and with what is on it now."""

    def __init__(self, folder: Path, state: Callable[[], RunState], *, now: Callable[[], float] = time.time) -> None:
        """Args:
        folder: of the run.
        state: tells how far it is; any thread may call it.
        now: gives seconds since 1970.
        """
        self._folder, self._state, self._now = folder, state, now
        self._path, self._losses = os.path.realpath(folder), LossReader(folder)
        self._token = secrets.token_urlsafe(16)

    @contextlib.contextmanager
    def opened(self, port: int, note: Callable[[str], None]) -> Iterator[None]:
        """Answer until the end of a block.

        Args:
            port: 0: any free one.
            note: takes the address, and how it is reached from elsewhere.

        Raises:
            PlanError: nothing can listen there.
        """
        with answering(LOOPBACK, port, f"--dashboard {port}", self.answer) as port:
            note(f"dashboard: http://{LOOPBACK}:{port}/{self._token}/")
            there = f"{port}:{LOOPBACK}:{port} {socket.gethostname()}"
            note(f"from another machine: ssh -N -L {there}, and the same address there")
            yield

    def answer(self, path: str) -> Answer:
        """Answer who knows the token, with a failure, too; others learn nothing, not even what there is."""
        token, *names = path.partition("?")[0].removeprefix("/").split("/")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return Answer(status=403)
        if not names:  # the last / is missing, from which on the page asks for its parts
            return Answer(status=308, headers={"Location": f"/{token}/"})
        try:
            return self._found(names)
        except Exception as error:
            return Answer(status=500, text=f"{type(error).__name__}: {error}", headers=_HEADERS)

    def _found(self, names: list[str]) -> Answer:
        if names == [""]:
            page = dashboard_page(os.path.basename(self._path))
            return Answer(kind="text/html; charset=utf-8", text=page, headers=_HEADERS)
        if names == [PARTS]:
            return Answer(kind="application/json", text=self._parts(), headers=_HEADERS)
        return Answer(status=404)

    def _parts(self) -> str:
        trained, tested = self._losses.read()
        return dashboard_parts(
            LiveFacts(
                name=os.path.basename(self._path),
                folder=self._path,
                state=self._state(),
                now=self._now(),
                trained=trained,
                tested=tested,
                log=last_lines(self._folder),
            )
        )


class Dashboard:
    """The page of the run of this process."""

    def __init__(self, port: int, folder: Path) -> None:
        """Args:
        port: 0: any free one.
        folder: of the run.
        """
        self._port, self._shown = port, RunState(at=time.time(), phase="starting")
        self._server = DashboardServer(folder, lambda: self._shown)

    def opened(self, note: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Answer until the end of a block; `note` takes the address.

        Raises:
            PlanError: nothing can listen there.
        """
        return self._server.opened(self._port, note)

    def take(self, happening: object) -> None:
        """The state tells of it."""

    def noted(self, text: str) -> None:
        """The state tells of it."""

    def show(self, state: RunState) -> None:
        """Take what is said of the run from now on."""
        self._shown = state
