"""MPI itself: who becomes what, which codes come out, and that mpirun never hangs."""

import importlib.util
import os
import shlex
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
from nfold.hosts.managers.mpi.mpi_agents import Mpi, with_others
from nfold.hosts.own_addresses import own_addresses
from stub_agents import StubAgents

folder, nodes, code = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rank = os.environ["OMPI_COMM_WORLD_RANK"]
(folder / rank).mkdir()
with StubAgents(folder / rank, own_addresses()[0]) as stubs, with_others(interpreter=stubs.call.interpreter):
    if nodes == 0:
        raise SystemExit(code)
    told = open(folder / "told", "w")  # mpirun may cut lines, and lose the last ones
    mpi = Mpi()
    try:
        mpi.start(stubs.call, nodes)
        stubs.hear(nodes)
        print(mpi.most_time_s, file=told)
        for place, hello in sorted(stubs.hellos.items()):
            left = [name for name in hello["environment"] if name.startswith(("OMPI_COMM", "PMIX"))]
            print("place", place, hello["token"], left, file=told, flush=True)
            stubs.tell(place)
    except ClusterError as error:
        print("refused:", error, file=told, flush=True)
    finally:
        mpi.close()
sys.exit(code)
"""


ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def command(folder, nodes, code, *options):
    """Return the command that runs the one above by MPI."""
    (folder / "command.py").write_text(COMMAND.format(rigs=str(Path(__file__).parents[1] / "rigs")))
    own = [sys.executable, str(folder / "command.py"), str(folder), str(nodes), str(code)]
    return ["mpirun", *options, *own]


def mpirun(folder, nodes, code):
    """Run the command above by MPI; return what came of it."""
    return subprocess.run(
        command(folder, nodes, code, "--oversubscribe", "-np", "3"),
        env=os.environ | ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_all_processes_become_agents_and_the_code_of_the_first_comes_out(tmp_path):
    done = mpirun(tmp_path, 3, 75)

    told = (tmp_path / "told").read_text().splitlines()
    assert told == ["None", *(f"place {place} {TOKEN} []" for place in range(3))], done.stderr
    assert done.returncode == 75


def test_other_nodes_than_processes_end_all_of_them(tmp_path):
    done = mpirun(tmp_path, 2, 2)

    assert (tmp_path / "told").read_text().startswith("refused: --nodes 2, but Open MPI has started 3 processes")
    assert done.returncode == 2


def test_a_first_process_that_needs_no_agents_lets_the_others_go(tmp_path):
    assert mpirun(tmp_path, 0, 0).returncode == 0


def test_mpi_inside_of_slurm(slurm, tmp_path):
    subprocess.run(
        ["sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", "--time=2", f"--output={tmp_path / 'out'}"],
        input=f"#!/bin/sh\n{shlex.join(command(tmp_path, 2, 0))}\n",
        env=os.environ | ROOT | slurm.environment,
        text=True,
        check=True,
        timeout=50,
    )
    left_s, *told = (tmp_path / "told").read_text().splitlines()
    assert told == [f"place {place} {TOKEN} []" for place in range(2)]
    assert 60.0 < float(left_s) <= 120.0
