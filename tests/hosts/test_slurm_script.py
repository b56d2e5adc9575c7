"""The script of a job, run by a shell with a program in place of srun."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from stub_agents import TOKEN, StubAgents

from nfold.hosts.manager import Call
from nfold.hosts.managers.slurm.slurm_script import Wish, as_typed, sbatch_command, script

CALL = Call(addresses=(("10.0.0.1", 7000), ("10.1.0.1", 7000)), token=TOKEN, interpreter="/opt/my python/bin/python")
SRUN = """#!/bin/sh
echo "srun $@" >{folder}/srun-said
env >{folder}/srun-environment
while [ "${{1#--}}" != "$1" ]; do shift; done
SLURM_PROCID=1 SLURMD_NODENAME=n7 exec "$@"
"""


def wish(folder=Path("/home/me/.cache/nfold/slurm"), **fields):
    return Wish(**{"name": "nfold-1", "partition": "short", "limit_s": None, "cpus": None, "logs": folder} | fields)


def test_a_job_asks_for_whole_nodes_with_one_task_each():
    command = sbatch_command(wish(), 3)

    assert command[:2] == ["sbatch", "--parsable"]
    assert {"--partition=short", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1"} <= set(command)
    assert {"--exclusive", "--mem=0", "--no-requeue", "--export=ALL"} <= set(command)
    assert not any(word.startswith("--time") for word in command)


def test_a_share_of_a_node_and_a_limit():
    command = sbatch_command(wish(cpus=4, limit_s=3601.0), 1)

    assert "--cpus-per-task=4" in command
    assert "--exclusive" not in command
    assert "--time=61" in command
    assert "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=4" in script(wish(cpus=4), CALL, range(0, 1))


@pytest.fixture
def node(tmp_path):
    """A folder with a srun in it, and a stub to call."""
    srun = tmp_path / "srun"
    srun.write_text(SRUN.format(folder=tmp_path))
    srun.chmod(stat.S_IRWXU)
    with StubAgents(tmp_path) as stubs:
        yield tmp_path, stubs


def start(node, logs):
    folder, stubs = node
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "NFOLD_TOKEN": TOKEN, "SLURM_JOB_ID": "42"}
    text = script(wish(logs), stubs.call, range(4, 6))
    job = subprocess.Popen(["sh", "-c", text], env=environment, stdout=subprocess.PIPE, text=True)
    stubs.hear(1)
    stubs.tell(5, 3)
    return job.communicate()[0], job.returncode


def test_the_agent_gets_its_place_its_name_and_the_token_and_nobody_else_does(node):
    folder, stubs = node
    printed, code = start(node, folder)

    hello = stubs.hellos[5]
    assert (hello["name"], hello["token"]) == ("n7", TOKEN)
    assert TOKEN not in " ".join(hello["words"])
    assert "NFOLD_TOKEN" not in hello["environment"]
    assert TOKEN not in (folder / "srun-environment").read_text()
    assert TOKEN not in (folder / "srun-said").read_text()
    assert code == 3, "the job ends as its agents did"
    assert (printed, (folder / "slurm-42.out").read_text()) == ("", "stub agent ends: 3\n")


def test_a_node_that_does_not_see_the_folder_keeps_nothing(node):
    printed, code = start(node, node[0] / "elsewhere")

    assert (printed, code) == ("stub agent ends: 3\n", 3)


def test_what_is_shown_is_what_is_submitted_without_the_token():
    text = as_typed(wish(), CALL, [range(0, 1), range(1, 2), range(2, 3)])

    assert TOKEN not in text
    assert text.startswith("NFOLD_TOKEN=... sbatch --parsable --job-name=nfold-1 --partition=short --nodes=1 ")
    assert script(wish(), CALL, range(0, 1)) in text
    assert "--place 1, 2 in place of 0" in text
