"""Plain data parallelism under torchrun, whose agents come and go as a benchmark likes, and what that costs."""

import contextlib
import heapq
import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from elastic_run import TICK, lines_of
from hosts_at import Hosts

DDP = Path(__file__).parent / "against_torchrun" / "ddp.py"
WAIT_S = 180.0
EVERY = 10
"""Steps between two checkpoints, where they are files."""
PORT = 29577
_BEFORE_S = 5.0
"""Of the steps before something happens: as long are those looked at that tell what a step takes."""


class Cost(NamedTuple):
    """What something cost one who stayed."""

    step_s: float
    pause_s: float
    steps_again: int


class TorchrunAgents:
    """Agents that train together, with what keeps them from hanging and from waiting needlessly.

    The host of the first one holds the rendezvous: it stays.
    """

    def __init__(
        self, hosts: Hosts, folder: Path, nodes: str, environment: Mapping[str, str], *, in_memory: bool = False
    ) -> None:
        """Start none yet.

        Args:
            hosts: that they are on.
            folder: for all that they write.
            nodes: how many train: a number, or the fewest and the most as 2:3.
            environment: more variables of their processes.
            in_memory: each keeps the state after each step in memory, instead of a file every few steps.
        """
        self._hosts, self._folder, self._nodes = hosts, folder, nodes
        self._memory = Path(tempfile.mkdtemp(dir="/dev/shm")) if in_memory else None
        work_around = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        card = {} if hosts.networks is None else {"GLOO_SOCKET_IFNAME": "eth0"}
        self._environment = {**os.environ, **environment, **work_around, **card}
        self._logs: dict[int, Path] = {}
        self._agents: dict[int, subprocess.Popen[bytes]] = {}

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
        if self._memory is not None:
            shutil.rmtree(self._memory)

    def join(self, number: int) -> float:
        """Start the agent of a host; return when, in seconds since 1970."""
        self._logs[number] = self._folder / f"steps-{time.monotonic_ns()}-{number}.jsonl"
        command = [
            *self._hosts.inside(number), sys.executable, "-m", "torch.distributed.run", f"--nnodes={self._nodes}",
            "--nproc-per-node=1", "--max-restarts=100", "--rdzv-backend=c10d",
            f"--rdzv-endpoint={self._hosts.address_of(0)}:{PORT}", "--rdzv-id=elastic",
            f"--rdzv-conf=last_call_timeout=1,is_host={int(number == 0)}",
            f"--local-addr={self._hosts.address_of(number)}",
            str(DDP), "--told", str(self._logs[number]), *self._kept(number),
        ]  # fmt: skip
        with (self._folder / f"torchrun-{number}.said").open("ab") as said:
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

        As many gaps between two steps as hosts, the largest, are pauses: those who come at once may be let in one after
        the other. Steps that came twice were trained again.
        """
        near = [line for line in self.steps() if line["at"] > since - _BEFORE_S]
        gaps = [later["at"] - earlier["at"] for earlier, later in itertools.pairwise(near)]
        step_s, numbers = statistics.median(gaps), [line["step"] for line in near]
        pause_s = sum(gap - step_s for gap in heapq.nlargest(hosts, gaps))
        return Cost(step_s, pause_s, len(numbers) - len(set(numbers)))

    def _kept(self, number: int) -> list[str]:
        if self._memory is not None:
            return ["--kept", str(self._memory / f"{number}.pt"), "--each-keeps", "--every", "1"]
        return ["--kept", str(self._folder / "kept.pt"), "--every", str(EVERY)]


def _wait(what: str, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {WAIT_S:.0f} s")
        TICK.wait(0.1)
