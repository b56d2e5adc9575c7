"""Data parallelism by torchft, whose hosts come and go as a benchmark likes."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from host_agents import HostAgents
from hosts_at import Hosts

FT = Path(__file__).parent / "against_torchrun" / "ft.py"
PORT = 29578
SILENT_MS, STRAGGLERS_MS = 1000, 1000
"""After which the lighthouse takes a host for lost, and waits no longer for one that is alive and asks for no step:
5000 and 60000 unless given, which pauses would be as long as. A host is heard every 100 ms."""


class TorchftHosts(HostAgents):
    """One process a host, and a lighthouse on this machine, which says who takes part in a step."""

    def __init__(self, python: Path, hosts: Hosts, folder: Path, fewest: int, environment: Mapping[str, str]) -> None:
        """Start none yet.

        Args:
            python: of an environment that torchft is installed in.
            hosts: that they are on.
            folder: for all that they write.
            fewest: hosts that train.
            environment: more variables of their processes.
        """
        super().__init__(hosts, folder, environment)
        self._python, self._fewest = python, fewest
        self._at = f"{hosts.address}:{PORT}"
        self._lighthouse: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "TorchftHosts":
        command = [
            str(self._python.with_name("torchft_lighthouse")), "--bind", self._at, "--min_replicas", str(self._fewest),
            "--heartbeat_timeout_ms", str(SILENT_MS), "--join_timeout_ms", str(STRAGGLERS_MS),
            "--quorum_tick_ms", "10",
        ]  # fmt: skip
        with (self._folder / "lighthouse.said").open("ab") as said:
            self._lighthouse = subprocess.Popen(command, stdout=said, stderr=said)
        return self

    def __exit__(self, *_: object) -> None:
        """End them all, and the lighthouse."""
        super().__exit__()
        if self._lighthouse is not None:
            self._lighthouse.kill()
            self._lighthouse.wait()

    def command(self, number: int, told: Path) -> list[str]:
        """Return that of a host."""
        return [
            str(self._python), str(FT), "--told", str(told), "--lighthouse", f"http://{self._at}",
            "--at", self._hosts.address_of(number), "--name", f"host-{number}", "--fewest", str(self._fewest),
        ]  # fmt: skip


def has_torchft(python: Path) -> bool:
    """Return whether an environment has torchft."""
    if not os.access(python, os.X_OK):
        return False
    return subprocess.run([python, "-c", "import torchft"], capture_output=True, check=False).returncode == 0
