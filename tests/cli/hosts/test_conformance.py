"""What holds on hosts however one comes to them: the same result, output, orderly ends, and nothing that is left."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
from stub_agents import StubAgents

sys.path.append(str(Path(__file__).parent))
from hosts_of_a_way import LEFT_S, Hosts, wait_until
from safetensors.torch import load_file
from ways import SECONDS, WAYS

MODEL = "model.safetensors"

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]


def on(*often):
    """All ways; with few exceptions, what one of them shows the next one does."""
    ways = [way if way in often else pytest.param(way, marks=pytest.mark.exhaustive) for way in WAYS]
    return pytest.mark.parametrize("hosts", ways, indirect=True)


@pytest.fixture
def hosts(request, tmp_path_factory, shell):
    """Two hosts; the programs that were sent there are in the folder of the shell."""
    with WAYS[request.param](tmp_path_factory.mktemp("way"), request) as way:
        shell.environment |= {**way.environment, "XDG_CACHE_HOME": str(shell.folder / "cache")}
        hosts = Hosts(request.param, way, shell)
        yield hosts
        hosts.close()


def train(hosts, *arguments):
    """Begin a long run on the hosts, and wait until it trains."""
    hosts.environment["EPOCHS"] = "400000"
    job = hosts.start("train", "steady.py", "--strategy", "ring", *arguments)
    assert any(line.startswith("epoch 2/") for line in job.stderr)
    return job


@on("local", "ssh", "slurm", "mpi", "yarn", "hand")
def test_the_result_is_that_of_this_machine(hosts, nfold):
    here = nfold("train", "steady.py", "-n", "2", "--strategy", "ring", "--debug", "--out", "here")
    there = hosts.run("train", "steady.py", "--strategy", "ring", "--out", "there", "--tls")

    assert (here.code, there.code) == (0, 0), there
    ours, theirs = load_file(hosts.folder / "here" / MODEL), load_file(hosts.folder / "there" / MODEL)
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6) for name in ours)
    log = (hosts.folder / "there" / "log.txt").read_text()
    assert len(re.findall(rf"\[\d{hosts.way.at}\] hello from the program", log)) >= 2
    assert not hosts.way.title or f"2 hosts by {hosts.way.title}: " in there.out + there.err
    assert "traffic between processes is encrypted" in there.out + there.err


@on("local")
def test_ctrl_c_keeps_a_checkpoint(hosts):
    hosts.need("ctrl-c")
    job = train(hosts)
    job.send_signal(signal.SIGINT)

    hosts.finish(job).check_explained("stopped", "nfold train --resume runs/steady-1", code=130)
    assert (hosts.folder / "runs" / "steady-1" / "checkpoint.safetensors").exists()


@on("local")
def test_a_rank_that_dies_is_named_with_its_host(hosts):
    hosts.environment["FAULT"] = "kill"

    result = hosts.run("train", "faulty.py", "--strategy", "ring")

    assert result.code == 2
    assert re.search(rf"nfold: rank 1 .*was killed by signal 9 \(SIGKILL\){hosts.way.at}", result.err), result


@on("local")
@pytest.mark.parametrize("which", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)])
def test_a_host_that_goes_away_is_named(hosts, which):
    hosts.need("host")
    job = train(hosts)
    os.kill(hosts.agents()[-1], which)

    told = "closed the connection" if which == signal.SIGKILL else "was told to end"
    result = hosts.finish(job)
    result.check_explained("was lost with its host ", told, "nfold train --resume runs/steady-1")
    if which == signal.SIGKILL and hosts.way.killed:
        line = result.message.splitlines()[0]
        assert re.search(rf"\. {re.escape(hosts.way.title)}: {hosts.way.names} {hosts.way.killed}", line)


@on("local")
def test_a_command_that_was_killed_leaves_nothing_and_goes_on_when_it_is_begun_again(hosts):
    hosts.need("killed")
    job = train(hosts, "--checkpoint-every", "5")
    hosts.kill(job)

    history = (hosts.folder / "runs" / "steady-1" / "history.jsonl").read_text().splitlines()
    more = max(json.loads(line)["step"] for line in history) + 5
    again = hosts.run("train", "--resume", "runs/steady-1", "--steps", f"{more}")

    assert again.code == 0, again
    assert (hosts.folder / "runs" / "steady-1" / MODEL).exists()


@on("hand")
def test_who_has_another_token_is_not_let_in(hosts):
    hosts.need("token")
    (hosts.folder / "wrong").write_text("0" * 32)
    (hosts.folder / "wrong").chmod(0o600)
    job = train(hosts)

    stranger = hosts.shell.start("join", hosts.address(), "--token-file", "wrong")

    assert "was not let in by the coordinator" in stranger.communicate(timeout=60)[1]
    assert stranger.returncode == 2
    assert any(line.startswith("epoch ") for line in job.stderr), "the others go on"
    hosts.end(job)


@on("local", "ssh", "slurm")
def test_one_place_is_given_back_and_the_other_stays(hosts, tmp_path_factory, monkeypatch):
    hosts.need("release")
    for name, value in hosts.way.environment.items():
        monkeypatch.setenv(name, value)
    manager = hosts.way.manager()
    with StubAgents(tmp_path_factory.mktemp("stubs"), hosts.way.address) as stubs:
        try:
            manager.start(stubs.call, 2)
            stubs.hear(2)
            wait_until(lambda: {each.stage for each in manager.states()} <= {"starting", "running"}, LEFT_S)
            manager.release(1)

            assert stubs.next_word(1) in ("TERM", "")
            wait_until(lambda: manager.states()[1].stage == "ended", LEFT_S, manager.states)
            assert manager.states()[0].stage != "ended"
        finally:
            manager.close()
        assert stubs.next_word(0) in ("TERM", "")


@on()
def test_the_limit_of_time_is_told(hosts):
    hosts.need("time limit")
    job = train(hosts, *hosts.way.limit)

    result = hosts.finish(job, SECONDS + 60.0)
    result.check_explained("was lost with its host ", hosts.way.limited, "nfold train --resume runs/")
