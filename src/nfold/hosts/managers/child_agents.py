"""Agents whose starting process is a child of this one: `ssh HOST ..`, or the agent itself on this machine."""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Collection

from nfold.hosts.manager import PlaceState
from nfold.launch.child import describe_exit

_MOST_LINES = 2
_END_S = 3.0
"""How long a child has to end once its agent was told to."""


class ChildAgent:
    """One child. The token goes to its standard input, which then stays open: its end is the child's sign to end."""

    def __init__(
        self,
        place: int,
        name: str,
        command: list[str],
        token: str,
        environment: dict[str, str],
        files: Collection[int] = (),
    ) -> None:
        """Start it.

        Args:
            place: that it fills.
            name: of the host.
            command: what it runs; in the end an agent, with WHILE_INPUT unless it hears of its end in another way.
            token: its first line of standard input.
            environment: of the child.
            files: descriptors that it inherits beside its standard ones.

        Raises:
            OSError: it cannot be started.
        """
        self.place, self.name = place, name
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(files),
            start_new_session=True,
        )
        assert self._process.stdin is not None, "it was asked for"
        with contextlib.suppress(OSError):  # it has ended already, which its state says
            self._process.stdin.write(f"{token}\n".encode())
            self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, name=f"nfold-agent-{place}", daemon=True)
        self._reader.start()

    @property
    def state(self) -> PlaceState:
        """What became of it."""
        code = self._process.poll()
        if code is None:
            return PlaceState(place=self.place, name=self.name, stage="starting")
        return PlaceState(place=self.place, name=self.name, stage="ended", reason=describe_exit(code))

    def last_lines(self) -> list[str]:
        """Return the last lines that it printed; of one that has ended, all of them have come."""
        if self._process.poll() is not None:
            self._reader.join(_END_S)
        return list(self._lines)

    def end(self, *, at_once: bool = False) -> None:
        """End it and what it has started. Safe to call again."""
        if self._process.poll() is None and not at_once:
            self._hang_up()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._hang_up()
        self._reader.join(_END_S)

    def _hang_up(self) -> None:
        stream, self._process.stdin = self._process.stdin, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

    def _read(self) -> None:
        """Hear it to its end, then let go of both pipes: a run may see many children."""
        assert self._process.stdout is not None, "it was asked for"
        with self._process.stdout as stream:
            for line in stream:
                if text := line.decode(errors="replace").strip():
                    self._lines.append(text)
        self._process.stdout = None
        self._hang_up()


class ChildAgents:
    """The children of one job: most of a manager whose places are children of this process."""

    def __init__(self) -> None:
        self._children: dict[int, ChildAgent] = {}

    def add(
        self,
        name: str,
        command: list[str],
        token: str,
        environment: dict[str, str] | None = None,
        files: Collection[int] = (),
    ) -> None:
        """Start one more; it inherits descriptors as `ChildAgent` says."""
        place = len(self._children)
        variables = dict(os.environ) if environment is None else environment
        self._children[place] = ChildAgent(place, name, command, token, variables, files)

    def __len__(self) -> int:
        return len(self._children)

    def states(self) -> list[PlaceState]:
        """Return what became of each."""
        return [child.state for child in self._children.values()]

    def release(self, place: int) -> None:
        """End one. Safe to call again."""
        self._children[place].end()

    def last_lines(self, place: int) -> list[str]:
        """Return the last lines that one printed."""
        return self._children[place].last_lines()

    def close(self) -> None:
        """End all. Safe to call again."""
        for child in self._children.values():
            child.end()
