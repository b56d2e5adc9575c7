"""One job's whole life on a real YARN: agents come, one more comes, one is given back, one fails, nothing is left."""

import json
import stat
import threading
import urllib.request
from pathlib import Path

import pytest

from nfold.errors import ClusterError
from nfold.hosts.manager import Call
from nfold.hosts.managers.yarn.yarn_agents import YarnAgents
from nfold.hosts.managers.yarn.yarn_wishes import YarnWishes

pytestmark = [pytest.mark.processes, pytest.mark.exhaustive, pytest.mark.timeout(300)]

AGENT = """#!/bin/sh
# Notes how it was started, and lives until a file tells it to fail.
while [ "$1" != --place ]; do shift; done
echo "$2 $$ $(stat -Lc %a token) $(cat token) $HOME $PATH" >NOTES/$2.new
mv NOTES/$2.new NOTES/$2
while [ ! -e NOTES/$2.fail ]; do sleep 0.1; done
echo first >&2
echo "it cannot go on" >&2
exit 3
"""


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def call(tmp_path, notes):
    agent = tmp_path / "python"
    agent.write_text(AGENT.replace("NOTES", str(notes)))
    agent.chmod(0o755)
    return Call(addresses=(("127.0.0.1", 7000),), token="sesame", interpreter=str(agent))


def wait(condition, seconds=90.0):
    """Ask again and again: YARN tells nobody when something happens."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.2)):
        if found := condition():
            return found
        pause.wait(0.2)
    raise AssertionError(f"not within {seconds:g} s")


def stages(manager):
    return [state.stage for state in manager.states()]


def test_the_life_of_a_job(yarn_nodes, call, notes):
    def manager(**wishes):
        asked = YarnWishes(base=yarn_nodes.base, memory_mb=256, cpus=1, **wishes)
        return YarnAgents(asked, name="job", user="root", say=pytest.fail)

    with pytest.raises(ClusterError, match=r"no queue 'nosuch' that takes applications\. It has: default, small\."):
        manager(queue="nosuch").start(call, 1)
    with pytest.raises(ClusterError, match=r"3 agents need 3 nodes, and YARN has 2"):
        manager().start(call, 3)
    job = manager(time_s=600)
    try:
        job.start(call, 1)
        job.start(call, 1)  # its master does not run yet
        wait(lambda: stages(job) == ["running", "running"])
        wait(lambda: (notes / "0").exists() and (notes / "1").exists())
        assert len({state.name for state in job.states()}) == 2
        text = (notes / "1").read_text().split()
        assert text[2:4] == ["500", "sesame"]
        assert Path(text[4]).is_relative_to(yarn_nodes.folder), "its home is the container's folder"
        url = f"{yarn_nodes.base}/app/v1/services/job?user.name=root"
        with urllib.request.urlopen(url) as answer:
            assert "sesame" not in answer.read().decode()
        assert stat.S_IMODE((yarn_nodes.services / "job.token").stat().st_mode) == 0o600

        job.release(0)
        pid = int((notes / "0").read_text().split()[1])
        wait(lambda: not Path(f"/proc/{pid}").exists())
        job.start(call, 1)
        wait(lambda: stages(job) == ["ended", "running", "running"])
        wait(lambda: (notes / "2").exists())

        (notes / "1.fail").touch()
        wait(lambda: stages(job) == ["ended", "ended", "running"])
        assert job.states()[1].reason == "ended (YARN says FAILED)"
        assert job.last_lines(1) == ["first", "it cannot go on"]
    finally:
        job.close()
    job.close()
    wait(lambda: not yarn_nodes.containers())
    assert [each.name for each in yarn_nodes.services.rglob("*") if "job" in each.name] == []
    with urllib.request.urlopen(f"{yarn_nodes.base}/ws/v1/cluster/apps?states=RUNNING,ACCEPTED") as answer:
        assert not json.load(answer)["apps"]
