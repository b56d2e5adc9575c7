"""Commands that train on the hosts of one way, and what is to be seen of their agents."""

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ways import CANNOT, Way

if TYPE_CHECKING:
    import subprocess

LEFT_S = 30.0
"""How long a manager may take to give everything back."""
FINISH_S = 180.0


class Hosts:
    """Two hosts, and a shell whose commands run on them."""

    def __init__(self, name: str, way: Way, shell: Any) -> None:
        self.name, self.way, self.shell = name, way, shell
        self.folder, self.environment = shell.folder, shell.environment
        self.nodes = "2"
        """Of a command: how many, or MIN:MAX."""
        self._jobs: list[subprocess.Popen[str]] = []
        self._guests: list[subprocess.Popen[str]] = []

    def need(self, ability: str) -> None:
        """Skip a test of what this way cannot do."""
        if why := CANNOT.get((self.name, ability)):
            pytest.skip(f"{self.name}: {why}")

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start `nfold ARGUMENTS` on the hosts."""
        flags = [*self.way.flags, "--nodes", self.nodes] if self.name != "emulate" else [*self.way.flags, "-n", "2"]
        if self.way.is_wrapped:
            flags += ["--python", str(self._wrapper())]
        command = (*self.way.begun_by, sys.executable, "-m", "nfold.cli.main", *arguments, *flags)
        job = self.shell.start_program(*command)
        self._jobs.append(job)
        if self.name == "hand":
            self._join(job)
        return job

    def run(self, *arguments: str) -> Any:
        """Run `nfold ARGUMENTS` on the hosts to its end."""
        return self.finish(self.start(*arguments))

    def finish(self, job: "subprocess.Popen[str]", within_s: float = FINISH_S) -> Any:
        """Wait for a command, and for all that it has started to be gone."""
        result = self.shell.ended(job, within_s)
        self.check_nothing_left()
        self.shell.check_no_halves()
        return result

    def kill(self, job: "subprocess.Popen[str]") -> None:
        """Kill a command outright, with the program that began it, and wait for what it has started to be gone."""
        for pid in self._with_words(b"\0train\0"):
            os.kill(pid, signal.SIGKILL)
        job.communicate()
        self.check_nothing_left()

    def end(self, job: "subprocess.Popen[str]") -> None:
        """End a command as its way allows."""
        if (self.name, "ctrl-c") in CANNOT:
            self.kill(job)
        else:
            job.send_signal(signal.SIGINT)
            job.communicate(timeout=FINISH_S)

    def close(self) -> None:
        """End what a test that failed has left running, and assert that nothing is left."""
        for job in self._jobs:
            if job.poll() is None:
                self.end(job)
        self.check_nothing_left()

    def agents(self) -> list[int]:
        """Return the processes that are agents."""
        return self._with_words(b"\0agent\0", b"\0join\0")

    def address(self) -> str:
        """Return where an agent of this machine reaches the command."""
        words = Path(f"/proc/{self.agents()[0]}/cmdline").read_text().split("\0")
        told = words[words.index("--connect" if "--connect" in words else "join") + 1]
        return told.split(",")[0]

    def check_nothing_left(self) -> None:
        """Assert that no process, job, container, actor or namespace is left."""
        wait_until(lambda: not self.shell.processes(), LEFT_S, self.shell.processes)
        wait_until(lambda: not self.way.left(), LEFT_S, self.way.left)
        assert {guest.wait(LEFT_S) for guest in self._guests} <= {0, 1, -signal.SIGKILL, -signal.SIGTERM}
        for guest in self._guests:
            guest.communicate()

    def _with_words(self, *words: bytes) -> list[int]:
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.shell.processes()}
        return [pid for pid, line in lines.items() if any(word in line for word in words)]

    def _join(self, job: "subprocess.Popen[str]") -> None:
        assert job.stderr is not None
        told = next(line for line in iter(job.stderr.readline, "") if "nfold join" in line)
        address, token_file = re.search(r"nfold join (\S+) --token-file (\S+)", told).groups()
        self._guests = [self.shell.start("join", address, "--token-file", token_file) for _ in range(2)]

    def _wrapper(self) -> Path:
        """Write a Python that knows what the shell does."""
        program = self.folder / "python"
        known = {**self.shell.whole_environment, "PYTHONPATH": os.environ["PYTHONPATH"]}
        lines = [f"export {name}='{value}'" for name, value in known.items()]
        program.write_text("\n".join(("#!/bin/sh", *lines, f'exec {sys.executable} "$@"\n')))
        program.chmod(0o755)
        return program


def wait_until(holds: Any, within_s: float, seen: Any = str) -> None:
    """Ask again and again: managers tell nobody when something has come to pass."""
    deadline_s, pause = time.monotonic() + within_s, threading.Event()
    while not holds():
        assert time.monotonic() < deadline_s, seen()
        pause.wait(0.1)
