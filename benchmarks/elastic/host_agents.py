"""Agents of hosts that train together, which come and go as a benchmark likes, and what that costs."""

import contextlib
import heapq
import itertools
import os
import signal
import statistics
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from elastic_run import TICK, lines_of
from hosts_at import Hosts

WAIT_S = 180.0
_BEFORE_S = 5.0
"""Of the steps before something happens: as long are those looked at that tell what a step takes."""


class Cost(NamedTuple):
    """What something cost one who stayed."""

    step_s: float
    pause_s: float
    steps_again: int


class HostAgents(ABC):
    """Processes that train together, one a host; each writes a line for each step. The first host stays."""

    def __init__(self, hosts: Hosts, folder: Path, environment: Mapping[str, str]) -> None:
        """Start none yet.

        Args:
            hosts: that they are on.
            folder: for all that they write.
            environment: more variables of their processes.
        """
        self._hosts, self._folder = hosts, folder
        card = {} if hosts.networks is None else {"GLOO_SOCKET_IFNAME": "eth0"}
        self._environment = {**os.environ, **environment, **card}
        self._logs: dict[int, Path] = {}
        self._agents: dict[int, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def command(self, number: int, told: Path) -> list[str]:
        """Return what runs on a host, and writes its steps to a file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End them all."""
        for agent in self._agents.values():
            with contextlib.suppress(ProcessLookupError):
                agent.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(20)
            agent.kill()

    def join(self, number: int) -> float:
        """Start the agent of a host; return when, in seconds since 1970."""
        self._logs[number] = self._folder / f"steps-{time.monotonic_ns()}-{number}.jsonl"
        command = [*self._hosts.inside(number), *self.command(number, self._logs[number])]
        with (self._folder / f"agent-{number}.said").open("ab") as said:
            self._agents[number] = subprocess.Popen(command, env=self._environment, stdout=said, stderr=said)
        return time.time()

    def leave(self, number: int) -> None:
        """Tell an agent to end."""
        self._agents[number].send_signal(signal.SIGTERM)

    def kill(self, number: int) -> None:
        """Kill an agent and its ranks at once, as when a host dies."""
        pid = self._agents[number].pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)

    def until_gone(self, number: int) -> None:
        """Wait for the end of an agent."""
        self._agents.pop(number).wait()

    def steps(self, number: int = 0) -> list[dict[str, Any]]:
        """Return the steps that a host's rank has played since its agent began: step, ranks, when it was done."""
        return lines_of(self._logs[number])

    def until_calm(self, what: str, ranks: int, steps: int, since: float = 0.0) -> None:
        """Wait until the last steps after a moment were all played by so many ranks.

        Raises:
            TimeoutError: they were not in time; `what` was waited for.
        """

        def is_calm() -> bool:
            last = [line for line in self.steps() if line["at"] > since][-steps:]
            return len(last) == steps and all(line["ranks"] == ranks for line in last)

        _wait(what, is_calm)

    def cost(self, since: float, hosts: int = 1) -> Cost:
        """Return what it cost the first host that so many hosts came or went at a moment, and what a step takes.

        As many gaps between two steps as hosts, the largest that end after that moment, are pauses: those who come at
        once may be let in one after the other. Steps that came twice were trained again.
        """
        near = [line for line in self.steps() if line["at"] > since - _BEFORE_S]
        gaps = [later["at"] - earlier["at"] for earlier, later in itertools.pairwise(near)]
        step_s, numbers = statistics.median(gaps), [line["step"] for line in near]
        since_then = (gap for gap, line in zip(gaps, near[1:], strict=True) if line["at"] > since)
        pause_s = sum(gap - step_s for gap in heapq.nlargest(hosts, since_then))
        return Cost(step_s, pause_s, len(numbers) - len(set(numbers)))


def _wait(what: str, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {WAIT_S:.0f} s")
        TICK.wait(0.1)
