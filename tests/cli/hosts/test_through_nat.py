"""A host behind an address translation joins by hand: nobody can dial it, so its rank dials all others."""

import re
import sys

import pytest

pytestmark = pytest.mark.processes


@pytest.fixture
def begin(shell, nat):
    """Start a command, and have two hosts join it; the first one, which others would dial, is hidden."""
    shell.environment["XDG_CACHE_HOME"] = str(shell.folder / "cache")

    def begin(*command):
        job = shell.start(*command, "--listen", f"{nat.address}:0", "--nodes", "2")
        told = next(line for line in iter(job.stderr.readline, "") if "nfold join" in line)
        address, token_file = re.search(r"nfold join (\S+) --token-file (\S+)", told).groups()
        join = (sys.executable, "-m", "nfold.cli.main", "agent", "--connect", address, "--token-file", token_file)
        hidden = shell.start_program(*nat.within(*join), "--name", "hidden", "--place", "0")
        return job, [hidden, shell.start_program(*join, "--name", "open", "--place", "1")]

    return begin


def test_doctor_finds_that_ranks_reach_each_other(shell, begin):
    job, guests = begin("doctor")

    out, err = job.communicate(timeout=60)

    assert "every host reaches every other one" in out, out + err
    assert "hidden" in out
    for guest in guests:
        guest.communicate(timeout=30)
        assert guest.returncode == 0


@pytest.mark.exhaustive
def test_a_hidden_host_trains(shell, begin):
    job, guests = begin("train", "steady.py", "--strategy", "ring", "-n", "2")

    out, err = job.communicate(timeout=90)

    assert job.returncode == 0, out + err
    for guest in guests:
        guest.communicate(timeout=30)
        assert guest.returncode == 0
    assert shell.processes() == []
