"""Slurm itself: what its programs answer, what its jobs hear, and that nothing is left in its queue."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stub_agents import TOKEN, StubAgents

from nfold.errors import ClusterError
from nfold.hosts.manager import Call
from nfold.hosts.managers.slurm.slurm import Slurm, slurm_manager

pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]

NODES = 3
"""Of the cluster."""


@pytest.fixture
def cluster(slurm, monkeypatch):
    """Slurm, as programs that this process runs find it."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    return slurm


@pytest.fixture
def stubs(cluster, tmp_path):
    with StubAgents(tmp_path, cluster.address) as stubs:
        yield stubs
    cluster.cancel_all()


@pytest.fixture
def logs(tmp_path):
    return tmp_path / "logs"


def jobs_of(cluster):
    """Whatever waits or runs."""
    return cluster.ask("squeue", "--noheader", "--format=%j %T").splitlines()


def stages(manager):
    return [state.stage for state in manager.states()]


def test_a_pool_comes_one_by_one_and_goes_one_by_one(cluster, stubs, logs):
    pool = Slurm("", logs=logs, clock=iter(range(0, 10**6, 10)).__next__)
    assert pool.most_time_s == 300.0
    pool.start(stubs.call, NODES)
    stubs.hear(NODES)

    places = range(NODES)
    names = [stubs.hellos[place]["name"] for place in places]
    assert sorted(names) == cluster.nodes, "no two places on one node"
    assert [state.name for state in pool.states()] == names
    assert stages(pool) == ["running"] * NODES
    pool.release(1)
    assert stubs.next_word(1) == "TERM", "an agent under srun hears of an end at once"
    cluster.wait_until(lambda: stages(pool) == ["running", "ended", "running"])

    pool.start(stubs.call, 1)
    stubs.hear(1)
    assert stubs.hellos[NODES]["name"] == names[1], "in its place comes another"
    stubs.tell(0)
    cluster.wait_until(lambda: stages(pool)[0] == "ended")
    assert pool.states()[0].reason == "ended as COMPLETED"

    pool.close()
    assert [stubs.next_word(place) for place in (2, 3)] == ["TERM", "TERM"]
    cluster.wait_until(lambda: jobs_of(cluster) == [])
    assert list(logs.iterdir()) == []


def test_nobody_can_read_the_token(cluster, stubs, logs):
    pool = Slurm("", logs=logs)
    pool.start(stubs.call, 1)
    stubs.hear(1)

    assert stubs.hellos[0]["token"] == TOKEN
    number = cluster.ask("squeue", "--noheader", "--format=%A").strip()
    shown = cluster.ask("scontrol", "show", "job", "--details", number)
    shown += cluster.ask("scontrol", "write", "batch_script", number, "-")
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert "nfold agent" in shown
    assert any(b"stub-agent" in line for line in command_lines)
    assert TOKEN not in shown
    assert not any(TOKEN.encode() in line for line in command_lines)
    pool.close()


def test_what_waits_says_why_and_is_given_back(cluster, stubs, logs):
    gang = Slurm("prod", logs=logs, gang=True, cpus=1)
    gang.start(stubs.call, NODES)
    stubs.hear(NODES)
    hellos = [stubs.hellos[place] for place in range(NODES)]
    assert [hello["environment"]["SLURM_CPUS_ON_NODE"] for hello in hellos] == ["1"] * NODES
    assert sorted(hello["name"] for hello in hellos) == cluster.nodes
    assert [state.name for state in gang.states()] == [hello["name"] for hello in hellos]
    pool = Slurm("short", logs=logs, clock=iter(range(0, 10**6, 10)).__next__)
    pool.start(stubs.call, 2)
    cluster.wait_until(lambda: all(state.reason for state in pool.states()))

    assert stages(pool) == ["waiting"] * 2
    assert all(state.reason.split(",")[0] in ("Resources", "Priority") for state in pool.states())
    pool.close()
    assert stages(pool) == ["ended"] * 2
    assert jobs_of(cluster) == [f"{gang._wish.name} RUNNING"]
    stubs.tell(1, 1)  # one agent fails, and the others do not mind
    stubs.tell(2)
    assert stubs.next_word(1) == ""
    gang.close()
    assert stubs.next_word(0) == "TERM"


def test_a_job_that_goes_before_takes_one_place_and_not_the_others(cluster, stubs, logs):
    pool = Slurm("scavenge", logs=logs, clock=iter(range(0, 10**6, 10)).__next__)
    pool.start(stubs.call, NODES)
    stubs.hear(NODES)
    taken = stubs.hellos[1]["name"]
    cluster.ask("sbatch", "--partition=prod", f"--nodelist={taken}", "--output=/dev/null", "--wrap=sleep 60")

    assert stubs.next_word(1) == "TERM"
    cluster.wait_until(lambda: stages(pool)[1] == "ended")
    assert pool.states()[1].reason == "ended as PREEMPTED: a job that goes before it took its node"
    assert stages(pool) == ["running", "ended", "running"]
    pool.close()


def test_an_interpreter_that_is_not_there(cluster, stubs, logs):
    pool = Slurm("", logs=logs, clock=iter(range(0, 10**6, 10)).__next__)
    pool.start(Call(addresses=stubs.call.addresses, token=TOKEN, interpreter="/opt/nowhere/python"), 1)
    cluster.wait_until(lambda: stages(pool) == ["ended"])

    assert pool.states()[0].reason.startswith("ended as FAILED: exit code 127 (a program is not there")
    assert any("/opt/nowhere/python: not found" in line for line in pool.last_lines(0))
    pool.close()


def test_what_slurm_does_not_have(cluster, logs):
    with pytest.raises(ClusterError, match=rf"no partition 'gpu'. There is: short \({NODES} nodes\), scavenge"):
        Slurm("gpu", logs=logs)
    with pytest.raises(ClusterError, match="10 minutes at most, and 20 are asked for"):
        Slurm("short", logs=logs, limit_s=1200.0)
    with pytest.raises(ClusterError, match=f"has {NODES} nodes, and {NODES + 1} are asked for"):
        Slurm("short", logs=logs).start(Call(addresses=(("::1", 1),), token="", interpreter="python"), NODES + 1)


def test_the_nodes_of_an_allocation_are_taken_as_they_are(cluster, stubs, logs):
    nodes = ",".join(cluster.nodes[:2])
    cluster.ask("salloc", "--no-shell", "--partition=prod", f"--nodelist={nodes}", "--exclusive", "--time=3")
    number = cluster.ask("squeue", "--noheader", "--format=%A").strip()
    allocation = slurm_manager(
        "", logs=logs, environment=os.environ | {"SLURM_JOB_ID": number, "SLURM_JOB_NODELIST": nodes}
    )
    assert 120.0 < allocation.most_time_s <= 180.0
    allocation.start(stubs.call, 2)
    stubs.hear(2)
    assert [stubs.hellos[place]["name"] for place in range(2)] == cluster.nodes[:2]
    assert [stubs.hellos[place]["environment"]["SLURMD_NODENAME"] for place in range(2)] == cluster.nodes[:2]

    allocation.release(0)
    assert stubs.next_word(0) == "TERM"
    assert stages(allocation) == ["ended", "starting"]
    allocation.start(stubs.call, 1)
    stubs.hear(1)
    assert stubs.hellos[2]["name"] == cluster.nodes[0]
    allocation.close()
    assert [stubs.next_word(place) for place in (1, 2)] == ["TERM", "TERM"]
    assert len(jobs_of(cluster)) == 1, "the allocation is not ours to end"
    assert allocation.states()[1].reason.startswith("exited with code ")
    cluster.ask("scancel", number)
    told = f"was lost with job {number}, which ended as CANCELLED: somebody cancelled it"
    cluster.wait_until(lambda: allocation.states()[1].reason == told)


def test_a_command_that_srun_starts_many_times_is_noticed(cluster):
    code = "import os; from nfold.hosts.managers.mpi.mpi_start import check_started_alone as c; c(os.environ)"
    done = subprocess.run(
        ["srun", "--nodes=2", "--ntasks=2", "--mpi=none", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "srun has started this command 2 times" in done.stderr
    script = f"#!/bin/sh\n{sys.executable} -c '{code}'\n"
    subprocess.run(
        ["sbatch", "--wait", "--nodes=2", "--ntasks=2", "--output=/dev/null"], input=script, text=True, check=True
    )
