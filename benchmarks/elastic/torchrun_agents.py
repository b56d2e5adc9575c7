"""Plain data parallelism under torchrun, whose agents come and go as a benchmark likes."""

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from host_agents import HostAgents
from hosts_at import Hosts

DDP = Path(__file__).parent / "against_torchrun" / "ddp.py"
EVERY = 10
"""Steps between two checkpoints, where they are files."""
PORT = 29577


class TorchrunAgents(HostAgents):
    """Agents with what keeps them from hanging and from waiting needlessly.

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
        super().__init__(hosts, folder, {**environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        self._nodes = nodes
        self._memory = Path(tempfile.mkdtemp(dir="/dev/shm")) if in_memory else None

    def __exit__(self, *_: object) -> None:
        """End them all."""
        super().__exit__()
        if self._memory is not None:
            shutil.rmtree(self._memory)

    def command(self, number: int, told: Path) -> list[str]:
        """Return that of an agent."""
        return [
            sys.executable, "-m", "torch.distributed.run", f"--nnodes={self._nodes}",
            "--nproc-per-node=1", "--max-restarts=100", "--rdzv-backend=c10d",
            f"--rdzv-endpoint={self._hosts.address_of(0)}:{PORT}", "--rdzv-id=elastic",
            f"--rdzv-conf=last_call_timeout=1,is_host={int(number == 0)}",
            f"--local-addr={self._hosts.address_of(number)}",
            str(DDP), "--told", str(told), *self._kept(number),
        ]  # fmt: skip

    def _kept(self, number: int) -> list[str]:
        if self._memory is not None:
            return ["--kept", str(self._memory / f"{number}.pt"), "--each-keeps", "--every", "1"]
        return ["--kept", str(self._folder / "kept.pt"), "--every", str(EVERY)]
