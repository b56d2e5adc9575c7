"""Hosts that are this machine, as ssh comes to them, with something wrong there."""

from pathlib import Path

import pytest


@pytest.fixture
def hosts(shell):
    """A shell that keeps programs in a cache of its own."""
    shell.environment["XDG_CACHE_HOME"] = str(shell.folder / "cache")
    return shell


class Far:
    """The host pi-1 of hosts.txt."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        environment["NFOLD_SSH"] = str(folder / "ssh")
        (folder / "hosts.txt").write_text("pi-1\n")

    def __call__(self, line: str) -> None:
        """Have `ssh` do what a line of the shell says; $run is the command for the host."""
        program = self._folder / "ssh"
        program.write_text(f"#!/bin/sh\nfor run; do :; done\n{line}\n")
        program.chmod(0o755)

    def begin_with(self, code: str) -> None:
        """Have Python there begin with some code."""
        (self._folder / "there").mkdir()
        (self._folder / "there" / "sitecustomize.py").write_text(f"{code}\n")
        self(f'PYTHONPATH="{self._folder / "there"}:$PYTHONPATH" exec sh -c "$run"')


@pytest.fixture
def far(hosts):
    """One host."""
    return Far(hosts.folder, hosts.environment)
