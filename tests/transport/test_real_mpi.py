"""What every transport promises, through MPI itself; and between processes, messages in pieces."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun (Debian: openmpi-bin)"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="there is no mpi4py (pip: nfold[mpi])"),
]

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
HERE = Path(__file__).parent
SIZES = (0, 1, 3999, 4000, 4001, 65_536, 300_000, 5 << 20)
ALL_TO_ALL = f"""
import queue
from nfold.transport.implementations.mpi_transport import MpiConnections
from nfold.transport.links.mpi_loop import MpiLoop, Peer, load_mpi

loop, sizes = MpiLoop("nfold-mpi", load_mpi()), {SIZES}
others = [rank for rank in range(loop.size) if rank != loop.rank]
connections = MpiConnections(loop.rank, loop, piece_bytes=100_000)
connections.meet({{rank: Peer(rank) for rank in others}})
transport = connections.begin(0, range(loop.size))
done, lost = queue.SimpleQueue(), []
transport.on_failure(lost.append)
into = {{(peer, tag): bytearray(size) for peer in others for tag, size in enumerate(sizes)}}
for peer in others:
    for tag, size in enumerate(sizes):
        transport.send(peer, tag, memoryview(bytes([loop.rank + 1]) * size), lambda: done.put(None))
for (peer, tag), buffer in into.items():
    transport.receive(peer, tag, memoryview(buffer), lambda: done.put(None))
for _ in range(2 * len(into)):
    done.get(timeout=30)
assert all(buffer == bytes([peer + 1]) * sizes[tag] for (peer, tag), buffer in into.items())
assert transport.sent_bytes == transport.received_bytes == len(others) * sum(sizes)
connections.close()
loop.leave()
assert not lost
print("well")
"""


def mpirun(count: int, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(count), sys.executable, *words]
    environment = os.environ | ROOT | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def test_what_every_transport_promises() -> None:
    own = [name for name in os.environ if name.startswith("PYTEST_")]
    with pytest.MonkeyPatch.context() as patch:
        for name in own:
            patch.delenv(name)
        done = mpirun(1, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "test_conformance.py"))

    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("way", ["vader,self", "tcp,self"])
def test_processes_send_all_to_all(way: str) -> None:
    done = mpirun(3, "-c", ALL_TO_ALL, OMPI_MCA_btl=way)

    # Lines of processes that print at once may come out joined.
    assert (done.returncode, "".join(done.stdout.split())) == (0, "well" * 3), done.stderr[-3000:]
