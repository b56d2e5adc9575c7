"""Starts ranks as processes of this machine and never leaves one behind."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

TOKEN_VARIABLE = "NFOLD_TOKEN"
"""The token goes through the environment: command lines are for everybody to read."""


class LocalLauncher:
    """One process per rank, each the leader of its own group, so that what it started ends with it."""

    def __init__(
        self, command: Sequence[str], log: Path | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        command: what starts a rank; `--rank R --connect HOST:PORT` is added.
        log: where the ranks' own output goes, appended; None: nowhere.
        clock: for the grace period.
        """
        self._command, self._log, self._clock = list(command), log, clock
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, rank: int, host: str, port: int, token: str) -> None:
        """Start a rank."""
        arguments = [*self._command, "--rank", str(rank), "--connect", f"{host}:{port}"]
        environment = {**os.environ, TOKEN_VARIABLE: token, "PYTHONUNBUFFERED": "1"}
        with open(self._log or os.devnull, "ab") as output:
            self._processes[rank] = subprocess.Popen(
                arguments,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def ended(self, rank: int, timeout_s: float) -> str | None:
        """Return how a rank ended, or None while it runs."""
        try:
            code = self._processes[rank].wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return describe_exit(code)

    def stop(self, grace_s: float) -> None:
        """Wait for ranks that are leaving, then kill their process groups."""
        deadline_s = self._clock() + grace_s
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):  # its grace is over: killed below
                process.wait(max(0.0, deadline_s - self._clock()))
        for process in self._processes.values():
            _kill_group(process)
        for process in self._processes.values():
            process.wait()


def describe_exit(code: int) -> str:
    """Return an exit code of subprocess in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a rank and all that it started; its group may outlive it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing of it is left
    except PermissionError:
        process.kill()
