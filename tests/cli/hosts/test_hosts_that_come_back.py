"""Hosts of each manager that leave, are lost and come back while a run trains."""

import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.append(str(Path(__file__).parent))
from hosts_of_a_way import Hosts
from ways import WAYS

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400), pytest.mark.exhaustive]


@pytest.fixture
def hosts(request, tmp_path_factory, shell):
    """Up to two hosts."""
    with WAYS[request.param](tmp_path_factory.mktemp("way"), request) as way:
        shell.environment |= {**way.environment, "XDG_CACHE_HOME": str(shell.folder / "cache"), "EPOCHS": "400000"}
        hosts = Hosts(request.param, way, shell)
        hosts.nodes = "1:2"
        yield hosts
        hosts.close()


def hear(job: "subprocess.Popen[str]", pattern: str) -> None:
    """Read what the command says until it says something."""
    assert job.stderr is not None
    said = []
    for line in iter(job.stderr.readline, ""):
        said.append(line)
        if re.search(pattern, line):
            return
    raise AssertionError(f"{pattern}: {''.join(said)}")


@pytest.mark.parametrize("hosts", ["slurm", "yarn", "ray"], indirect=True)
def test_hosts_that_were_taken_away_are_replaced(hosts):
    """By the same ones, once their manager has them again."""
    job = hosts.start("train", "steady.py", "--strategy", "ring", "--checkpoint-every", "50")
    hear(job, r"has joined: 2 ranks train")
    for how, told in ((signal.SIGTERM, "has left"), (signal.SIGKILL, "is lost")):
        os.kill(hosts.agents()[-1], how)
        hear(job, rf"{hosts.way.names}(-\d)? {told}: 1 rank trains from step \d+ on")
        hear(job, r"has joined: 2 ranks train")
    hosts.end(job)
    log = (hosts.folder / "runs" / "steady-1" / "log.txt").read_text()
    assert log.count(f"another host of {hosts.way.title} is asked for in place of ") == 2


def scaled(hosts: Hosts, asked: str) -> Any:
    """What `nfold scale` says, while the run goes on."""
    return hosts.shell.ended(hosts.shell.start("scale", "runs/steady-1", asked), 60.0)


@pytest.mark.parametrize("hosts", ["local", "ssh", "slurm", "yarn", "ray"], indirect=True)
def test_a_host_is_given_back_and_asked_for_again(hosts):
    job = hosts.start("train", "steady.py", "--strategy", "ring", "--checkpoint-every", "50")
    hear(job, r"has joined: 2 ranks train")
    assert scaled(hosts, "1").out.endswith("to leave after the step under way.\n")
    hear(job, r"has left: 1 rank trains")
    again = scaled(hosts, "2")
    if hosts.name == "ssh":
        assert "lists 2 hosts, and 3 are asked for" in again.out + again.err
    else:
        assert again.out.endswith(": 1 more host asked for; each takes part when it is there.\n")
        hear(job, r"has joined: 2 ranks train")
    hosts.end(job)
