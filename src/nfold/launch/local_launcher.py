"""Starts members of a job as processes of this machine and never leaves one behind."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from nfold.launch.child import OwnChild
from nfold.launch.output import Output

TOKEN_VARIABLE = "NFOLD_TOKEN"
"""The token goes through the environment: command lines are for everybody to read."""

Place = Callable[[int, list[str]], list[str]]
"""Of a member and its command: the command that runs it where it belongs. It must end as the same process."""


class Started(Protocol):
    """A member that was started, or is about to be."""

    def ended(self, timeout_s: float) -> str | None:
        """Return how it ended, or None while it runs; waits up to `timeout_s`."""
        ...

    def kill(self) -> None:
        """Kill it and what it has started."""
        ...

    def reap(self) -> str:
        """Wait for its end."""
        ...


Begin = Callable[[list[str], Mapping[str, str], Path | None, int], Started]
"""Of a command, its environment, its folder and a descriptor for all that it prints: starts the leader of a group."""


def spawn(command: list[str], environment: Mapping[str, str], folder: Path | None, output: int) -> Started:
    """Start a process as a `Begin` does."""
    return OwnChild(
        subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    )


class LocalLauncher:
    """One process per member, each the leader of its own group, so that what it started ends with it."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path | None,
        *,
        place: Place = lambda member, command: command,
        left: Callable[[int], None] = lambda member: None,
        relay: Callable[[int | None, bytes], None] | None = None,
        folder: Path | None = None,
        begin: Begin = spawn,
        printed_for_all: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        command: what starts a member; `--launcher PID --member M --connect HOST:PORT` is added.
        log: where the members' own output goes, appended, but for the middle of very much; None: only to `last_lines`.
        place: turns what starts a member into what starts it at its place.
        left: is told of each member that was let go of, once it has ended.
        relay: is given what members print instead of a log, by a thread of its own.
        folder: in which members work; None: in that of this process.
        begin: starts a process.
        printed_for_all: the end to read of a pipe for what no member has printed alone.
        clock: for the grace period.
        """
        self._command, self._log, self._place, self._left = list(command), log, place, left
        self._clock = clock
        self._relay, self._folder, self._begin, self._printed = relay, folder, begin, printed_for_all
        self._output: Output | None = None
        self._members: dict[int, Started] = {}

    def start(self, member: int, host: str, port: int, token: str) -> None:
        """Start a member, which dials host:port. The token travels in its environment, not in its command.

        Raises:
            OSError: there is no such command, or no process can be started.
            RunError: the log cannot be written.
            ClusterError: it has no place.
        """
        ours = ["--launcher", str(os.getpid()), "--member", str(member), "--connect", f"{host}:{port}"]
        environment = {**os.environ, TOKEN_VARIABLE: token, "PYTHONUNBUFFERED": "1"}
        self.release(member)
        with self._the_output().file_of(member) as file:
            command = self._place(member, [*self._command, *ours])
            self._members[member] = self._begin(command, environment, self._folder, file)

    def _the_output(self) -> Output:
        if self._output is None:
            self._output = Output(self._log, relay=self._relay)
            if self._printed is not None:
                self._output.read(os.dup(self._printed))
        return self._output

    def ended(self, member: int, timeout_s: float) -> str | None:
        """Return how a member ended, or None while it runs; waits up to `timeout_s` for it."""
        started = self._members.get(member)
        return "was let go" if started is None else started.ended(timeout_s)

    def comes_again(self, member: int) -> bool:
        """Return False: nobody here takes the place of a member that is lost."""
        del member
        return False

    def release(self, member: int, *, is_lost: bool = False, why: str = "") -> None:
        """Let go of a member that has left the job, and kill what is left of its process group."""
        del is_lost, why
        if (started := self._members.pop(member, None)) is not None:
            started.kill()
            started.reap()
            self._left(member)

    def last_lines(self) -> list[str]:
        """Return the last lines that members have printed, whichever it was; none after `stop`."""
        return self._output.last_lines() if self._output is not None else []

    def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` for all members together, which are leaving, then kill their process groups."""
        deadline_s = self._clock() + grace_s
        for each in self._members.values():
            each.ended(max(0.0, deadline_s - self._clock()))
        for each in self._members.values():
            each.kill()
        for each in self._members.values():
            each.reap()
        if self._output is not None:
            self._output.close()
            self._output = None
