"""Starts members of a job as processes of this machine and never leaves one behind."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nfold.launch.output import Output

TOKEN_VARIABLE = "NFOLD_TOKEN"
"""The token goes through the environment: command lines are for everybody to read."""

Place = Callable[[int, list[str]], list[str]]
"""Of a member and its command: the command that runs it where it belongs. It must end as the same process."""


Begin = Callable[[list[str], Mapping[str, str], Path | None, int], "subprocess.Popen[bytes]"]
"""Of a command, its environment, its folder and a descriptor for all that it prints: the process, leader of a group."""


def spawn(
    command: list[str], environment: Mapping[str, str], folder: Path | None, output: int
) -> "subprocess.Popen[bytes]":
    """Start a process as a `Begin` does."""
    return subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


class LocalLauncher:
    """One process per member, each the leader of its own group, so that what it started ends with it."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path | None,
        *,
        place: Place = lambda member, command: command,
        relay: Callable[[int, bytes], None] | None = None,
        folder: Path | None = None,
        begin: Begin = spawn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        command: what starts a member; `--launcher PID --member M --connect HOST:PORT` is added.
        log: where the members' own output goes, appended, but for the middle of very much; None: only to `last_lines`.
        place: turns what starts a member into what starts it at its place.
        relay: is given what members print instead of a log, by a thread of its own.
        folder: in which members work; None: in that of this process.
        begin: starts a process.
        clock: for the grace period.
        """
        self._command, self._log, self._place, self._clock = list(command), log, place, clock
        self._relay, self._folder, self._begin = relay, folder, begin
        self._output: Output | None = None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, member: int, host: str, port: int, token: str) -> None:
        """Start a member, which dials host:port. The token travels in its environment, not in its command.

        Raises:
            OSError: there is no such command, or no process can be started.
            RunError: the log cannot be written.
            ClusterError: it has no place.
        """
        ours = ["--launcher", str(os.getpid()), "--member", str(member), "--connect", f"{host}:{port}"]
        environment = {**os.environ, TOKEN_VARIABLE: token, "PYTHONUNBUFFERED": "1"}
        self._output = self._output or Output(self._log, relay=self._relay)
        with self._output.file_of(member) as file:
            command = self._place(member, [*self._command, *ours])
            self._processes[member] = self._begin(command, environment, self._folder, file)

    def ended(self, member: int, timeout_s: float) -> str | None:
        """Return how a member ended, or None while it runs; waits up to `timeout_s` for it."""
        process = self._processes.get(member)
        if process is None:
            return "was let go"
        try:
            code = process.returncode if process.returncode is not None else exit_code(process.pid, timeout_s)
        except (ProcessLookupError, ChildProcessError):
            code = process.wait()  # another thread is in `stop`, which reaps it
        return None if code is None else describe_exit(code)

    def release(self, member: int) -> None:
        """Let go of a member that has left the job, and kill what is left of its process group."""
        process = self._processes.pop(member, None)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # nothing of it is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def last_lines(self) -> list[str]:
        """Return the last lines that members have printed, whichever it was; none after `stop`."""
        return self._output.last_lines() if self._output is not None else []

    def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` for all members together, which are leaving, then kill their process groups."""
        deadline_s = self._clock() + grace_s
        left = [process for process in self._processes.values() if process.returncode is None]
        for process in left:
            exit_code(process.pid, max(0.0, deadline_s - self._clock()))
        for process in left:
            with contextlib.suppress(ProcessLookupError):  # nothing of it is left
                os.killpg(process.pid, signal.SIGKILL)
        for process in left:
            process.wait()
        if self._output is not None:
            self._output.close()
            self._output = None


def describe_exit(code: int) -> str:
    """Return an exit code of subprocess in words: `exited with code 1`, `was killed by signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"


def exit_code(pid: int, timeout_s: float | None) -> int | None:
    """Return how a child ended, as subprocess counts, or None while it runs; None as timeout: wait for its end.

    The child is not reaped: as long as it is a zombie, no other process can have its number, so its group, which may
    outlive it, can be killed without hitting a stranger.

    Raises:
        ProcessLookupError, ChildProcessError: somebody has reaped it.
    """
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(None if timeout_s is None else timeout_s * 1000)
    finally:
        os.close(descriptor)
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
