"""The process of a run that another command began: whether it still runs, and a request to end."""

import contextlib
import os
import select
import signal
import socket
from types import TracebackType
from typing import Self

from nfold.core.run_state import ListedRun
from nfold.errors import RunError
from nfold.machine.processes import started
from nfold.verbs.jobs.run_list import is_running, listed_run

LOOK_S = 0.5
"""Between two looks at the list, where a run may end and its process go on, or lives on another host."""


class RunProcess:
    """A handle of a run's process, so that its number cannot come to mean another process meanwhile."""

    def __init__(self, run: ListedRun) -> None:
        self._run = run
        self._descriptor: int | None = None
        if is_running(run) and run.host == socket.gethostname():
            with contextlib.suppress(ProcessLookupError):  # it has ended
                self._descriptor = os.pidfd_open(run.pid)
        if self._descriptor is not None and started(run.pid) != run.started:
            self._close()  # the number is another process's now

    def __enter__(self) -> Self:
        """Hold it until the end of a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let go of it."""
        self._close()

    def interrupt(self) -> bool:
        """Send the process what Ctrl-C sends; return False if it has ended.

        Raises:
            RunError: it belongs to another user.
        """
        if self._descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(self._descriptor, signal.SIGINT)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            raise RunError(f"process {self._run.pid} is another user's: only that user can stop it") from error
        return True

    def has_ended(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds for the run to end; return whether its process has, or its command says so."""
        poll = select.poll()
        if self._descriptor is not None:
            poll.register(self._descriptor, select.POLLIN)
        left_s = within_s
        while True:
            wait_s = min(LOOK_S, left_s)
            if not self._is_listed() or poll.poll(1000 * wait_s):
                return True
            left_s -= wait_s
            if left_s <= 0:
                return False

    def _is_listed(self) -> bool:
        """Whether the list has it as a run that goes on, in this process and in no later one."""
        now = listed_run(self._run.number)
        return now is not None and is_running(now) and (now.pid, now.started) == (self._run.pid, self._run.started)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
