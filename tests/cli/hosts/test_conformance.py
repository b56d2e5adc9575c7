"""What holds on hosts however one comes to them: the same result, output, orderly ends, and nothing that is left."""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent))
from safetensors.torch import load_file

from rigs import RIGS

MODEL = "model.safetensors"


EVERY = pytest.mark.parametrize("hosts", RIGS, indirect=True)
OFTEN_ONE = pytest.mark.parametrize(
    "hosts",
    ["local", *(pytest.param(rig, marks=pytest.mark.exhaustive) for rig in RIGS if rig != "local")],
    indirect=True,
)


@pytest.fixture
def hosts(request, tmp_path_factory, shell):
    """Two hosts, and a shell that runs on them; the programs that were sent there are in its folder."""
    with RIGS[request.param](tmp_path_factory.mktemp("rig")) as rig:
        shell.environment |= {**rig.environment, "XDG_CACHE_HOME": str(shell.folder / "cache")}
        shell.hosts = ("--on", rig.on, "--nodes", "2")
        yield shell


def agents_of(shell):
    """Processes of the shell that are agents."""
    return [pid for pid in shell.processes() if b"\0agent\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def train(hosts, *arguments):
    """Begin a long run on the hosts, and wait until it trains."""
    hosts.environment["EPOCHS"] = "4000"
    job = hosts.start("train", "steady.py", *hosts.hosts, "--strategy", "ring", *arguments)
    assert any(line.startswith("epoch 2/") for line in job.stderr)
    return job


@pytest.mark.processes
@EVERY
def test_the_result_is_that_of_this_machine(hosts, nfold):
    here = nfold("train", "steady.py", "-n", "2", "--strategy", "ring", "--debug", "--out", "here")
    there = hosts.run("train", "steady.py", *hosts.hosts, "--strategy", "ring", "--out", "there", "--tls")

    assert (here.code, there.code) == (0, 0), there.err
    ours, theirs = load_file(hosts.folder / "here" / MODEL), load_file(hosts.folder / "there" / MODEL)
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6) for name in ours)
    log = (hosts.folder / "there" / "log.txt").read_text()
    assert log.count("] hello from the program") >= 2
    assert "2 hosts by " in there.out + there.err
    assert "traffic between processes is encrypted" in there.out + there.err


@pytest.mark.processes
@OFTEN_ONE
def test_ctrl_c_keeps_a_checkpoint(hosts):
    job = train(hosts)
    job.send_signal(signal.SIGINT)

    hosts.finish(job).check_explained("stopped", "nfold train --resume runs/steady-1", code=130)
    assert (hosts.folder / "runs" / "steady-1" / "checkpoint.safetensors").exists()


@pytest.mark.processes
@OFTEN_ONE
def test_a_rank_that_dies_is_named_with_its_host(hosts):
    hosts.environment["FAULT"] = "kill"

    result = hosts.run("train", "faulty.py", *hosts.hosts, "--strategy", "ring")

    result.check_explained("rank 1", "was killed by signal 9 (SIGKILL) on ", "-1")


@pytest.mark.processes
@OFTEN_ONE
@pytest.mark.parametrize("which", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)])
def test_a_host_that_goes_away_is_named(hosts, which):
    job = train(hosts)
    os.kill(agents_of(hosts)[-1], which)

    told = "closed the connection" if which == signal.SIGKILL else "was told to end"
    hosts.finish(job).check_explained("was lost with its host ", told, "nfold train --resume runs/steady-1")


@pytest.mark.processes
@OFTEN_ONE
def test_agents_end_with_a_command_that_was_killed(hosts, wait_for_end):
    job = train(hosts)
    job.kill()
    job.communicate()

    assert wait_for_end(hosts.processes(), 10.0) < 10.0
