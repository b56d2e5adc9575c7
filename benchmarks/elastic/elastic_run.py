"""A run whose hosts are agents on this machine that come and go as a benchmark likes."""

import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TICK = threading.Event()
"""Never set: to look again after a while."""
INVITATION = re.compile(r"nfold join (\S+) --token-file (\S+)")
COMING_AND_GOING = re.compile(r"(\S+) \([\d.]+ cores|^(\S+) (has joined|is lost|has left):", re.MULTILINE)
"""What a run says of hosts that it begins with, and of those that come, are given up or go."""


class Pace(NamedTuple):
    """Seconds of a step: half of the steps take less than the one, and all of them the other on average."""

    median_s: float
    mean_s: float


class NfoldRun:
    """`nfold train`, and what its folder says of it."""

    def __init__(
        self,
        script: Path,
        folder: Path,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        goes_on: bool = False,
    ) -> None:
        """Start it.

        Args:
            script: trains.
            folder: of the run; what it says is kept beside it.
            flags: of `nfold train`.
            environment: more variables of its process.
            goes_on: from the checkpoint in the folder.
        """
        self.folder, self.said = folder, folder.with_suffix(".said")
        cache = str(folder.with_name("cache"))  # agents keep the program there
        given = {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": cache, **(environment or {})}
        self._environment = {**os.environ, **given}
        folder.parent.mkdir(parents=True, exist_ok=True)
        with self.said.open("wb") as said:
            which = ["--resume", str(folder)] if goes_on else [str(script), "--out", str(folder)]
            self.process = self._start(["train", *which, *flags], said)

    def steps(self) -> list[dict[str, Any]]:
        """Return the steps of the run's history so far: step, loss, seconds of training."""
        return [line for line in lines_of(self.folder / "history.jsonl") if not line["metrics"]]

    def evaluations(self) -> list[dict[str, Any]]:
        """Return the evaluations of the run's history so far."""
        return [line for line in lines_of(self.folder / "history.jsonl") if line["metrics"]]

    def events(self) -> list[dict[str, Any]]:
        """Return what changed who trains or how, as far as its rows are complete."""
        return lines_of(self.folder / "events.jsonl")

    def members(self) -> list[dict[str, Any]]:
        """Return those of them that are about a host that joined, left or was lost."""
        return [event for event in self.events() if event["kind"] in ("join", "leave", "loss")]

    @property
    def last_step(self) -> int:
        """The last step that was reported."""
        steps = self.steps()
        return steps[-1]["step"] if steps else 0

    def until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Wait until something holds; return whether it did in time, and before the run ended."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s and self.process.poll() is None:
            if holds():
                return True
            TICK.wait(0.1)
        return holds()

    def expect(self, what: str, holds: Callable[[], bool], within_s: float) -> None:
        """Wait until something holds, and give up where it does not in time."""
        if not self.until(holds, within_s):
            sys.exit(f"{what}: not within {within_s:.0f} s: {self.said.read_text()[-3000:]}")

    def expect_step(self, step: int, within_s: float) -> None:
        """Wait until a step was reported, and give up where it is not in time."""
        self.expect(f"step {step}", lambda: self.last_step >= step, within_s)

    def close(self) -> None:
        """End the run."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _start(self, arguments: list[str], said: Any, inside: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        command = [*inside, sys.executable, "-m", "nfold.cli.main", *arguments]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL, stderr=said)


class ElasticRun(NfoldRun):
    """One that waits for hosts to join by hand, and those hosts."""

    def __init__(
        self,
        script: Path,
        folder: Path,
        *flags: str,
        at: str = "127.0.0.1:0",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; nobody has joined yet. It listens at an address of this machine."""
        super().__init__(script, folder, "--listen", at, *flags, environment=environment)
        self.hosts: dict[str, subprocess.Popen[bytes]] = {}
        self._address, self._token_file = self._invitation()

    def join(self, name: str, inside: Sequence[str] = ()) -> None:
        """Let a host join; it may take part a second later. `inside`: what brings its command into a network."""
        command = ["join", self._address, "--token-file", self._token_file, "--name", name]
        with self.said.open("ab") as said:
            self.hosts[name] = self._start(command, said, inside)

    def leave(self, name: str) -> None:
        """Tell a host to end, in order."""
        self.hosts.pop(name).send_signal(signal.SIGTERM)

    def kill(self, name: str) -> None:
        """Let a host be lost: its agent is killed, and the kernel kills its rank."""
        self.hosts.pop(name).kill()

    def kill_rank(self, name: str) -> None:
        """Kill the rank of a host, if it has one; its agent joins anew, unless that was the fourth time."""
        for pid in self.ranks(name):
            os.kill(pid, signal.SIGKILL)

    def stall(self, name: str, stalled_s: float) -> None:
        """Let the rank of a host do nothing for a while."""
        for pid in self.ranks(name):
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(stalled_s, _go_on, [pid]).start()

    def ranks(self, name: str) -> list[int]:
        """Return the processes of a host's ranks."""
        return [pid for pid in children(self.hosts[name].pid) if what_runs(pid) == "nfold-rank"]

    def training(self) -> list[str]:
        """Return the hosts that take part in training and were not told to end."""
        there: set[str] = set()
        for first, name, what in COMING_AND_GOING.findall(self.said.read_text()):
            there = (there | {first}) if first else (there | {name}) if what == "has joined" else (there - {name})
        return [name for name, host in self.hosts.items() if name in there and host.poll() is None]

    def close(self) -> None:
        """End the run and all its hosts."""
        super().close()
        for host in self.hosts.values():
            if host.poll() is None:
                host.kill()
            host.wait()

    def _invitation(self) -> tuple[str, str]:
        while self.process.poll() is None:
            if found := INVITATION.search(self.said.read_text()):
                return found[1], found[2]
            TICK.wait(0.05)
        sys.exit(f"the run did not begin: {self.said.read_text()}")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file that may still grow, of which the last line may not be whole; none: no file yet."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def pace(times_s: Sequence[float]) -> Pace:
    """Return what a step takes, given when steps were done."""
    steps_s = [later - earlier for earlier, later in itertools.pairwise(times_s)]
    return Pace(statistics.median(steps_s), statistics.mean(steps_s))


def children(pid: int) -> list[int]:
    """Return the processes that descend from one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended just now
            for child in task.read_text().split():
                found += [int(child), *children(int(child))]
    return found


def what_runs(pid: int) -> str:
    """Return the name that a process has in `ps`; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
