"""MPI itself: who becomes what, which codes come out, and that mpirun never hangs."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stub_agents import TOKEN

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(60),
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun (Debian: openmpi-bin)"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="there is no mpi4py (pip: nfold[mpi])"),
]

COMMAND = """
import os, sys
sys.path.insert(0, {rigs!r})
from pathlib import Path
from nfold.errors import ClusterError
from nfold.hosts.managers.mpi import Mpi, with_others
from stub_agents import StubAgents

folder, nodes, code = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rank = os.environ["OMPI_COMM_WORLD_RANK"]
(folder / rank).mkdir()
with StubAgents(folder / rank) as stubs, with_others(interpreter=stubs.call.interpreter):
    if nodes == 0:
        raise SystemExit(code)
    mpi = Mpi()
    try:
        mpi.start(stubs.call, nodes)
        stubs.hear(nodes)
        for place, hello in sorted(stubs.hellos.items()):
            left = [name for name in hello["environment"] if name.startswith(("OMPI_COMM", "PMIX"))]
            print("place", place, hello["token"], left, flush=True)
            stubs.tell(place)
    except ClusterError as error:
        print("refused:", error, flush=True)
    finally:
        mpi.close()
sys.exit(code)
"""


def mpirun(folder, nodes, code, size=3):
    """Run the command above by MPI; return what came of it."""
    rigs = str(Path(__file__).parents[1] / "rigs")
    words = ["mpirun", "--oversubscribe", "-np", str(size), sys.executable, "-c", COMMAND.format(rigs=rigs)]
    return subprocess.run(
        [*words, str(folder), str(nodes), str(code)],
        env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_all_processes_become_agents_and_end_well(tmp_path):
    done = mpirun(tmp_path, 3, 0)

    told = [line for line in done.stdout.splitlines() if line.startswith("place")]
    assert told == [f"place {place} {TOKEN} []" for place in range(3)], done.stderr
    assert done.returncode == 0


def test_the_code_of_the_first_process_comes_out(tmp_path):
    assert mpirun(tmp_path, 3, 75).returncode == 75


def test_other_nodes_than_processes_end_all_of_them(tmp_path):
    done = mpirun(tmp_path, 2, 2)

    assert done.stdout.startswith("refused: --nodes 2, but Open MPI has started 3 processes")
    assert done.returncode == 2


@pytest.mark.parametrize("code", [0, 2])
def test_a_first_process_that_needs_no_agents_ends_all_of_them(tmp_path, code):
    assert mpirun(tmp_path, 0, code).returncode == code
