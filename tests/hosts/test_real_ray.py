"""One job's whole life on a real Ray of three nodes, where Ray is installed."""

import threading
from pathlib import Path

import pytest

from nfold.hosts.manager import Call
from nfold.hosts.managers.ray_agents import RayAgents

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore")]

AGENT = """#!/bin/sh
# Notes how it was started, and lives until its input ends or a file tells it to fail.
read token
while [ "$1" != --place ]; do shift; done
echo "$$ $token" >NOTES/$2.new
mv NOTES/$2.new NOTES/$2
if [ "$2" = 1 ]; then
  while [ ! -e NOTES/1.fail ]; do sleep 0.1; done
  echo "it cannot go on" >&2
  exit 3
fi
read end
"""


def wait(condition, seconds=30.0):
    pause = threading.Event()
    for _ in range(int(seconds / 0.2)):
        if found := condition():
            return found
        pause.wait(0.2)
    raise AssertionError(f"not within {seconds:g} s")


def test_the_life_of_a_job(ray_nodes, tmp_path):
    ray = ray_nodes.ray
    agent = tmp_path / "python"
    agent.write_text(AGENT.replace("NOTES", str(tmp_path)))
    agent.chmod(0o755)
    call = Call(addresses=(("127.0.0.1", 7000),), token="sesame", interpreter=str(agent))
    job = RayAgents(ray, ray_nodes.address, {"CPU": 1.0})

    def stages():
        return [state.stage for state in job.states()]

    def pid(place):
        return int((tmp_path / str(place)).read_text().split()[0])

    try:
        job.start(call, 3)
        wait(lambda: stages() == ["running"] * 3)
        wait(lambda: all((tmp_path / str(place)).exists() for place in range(3)))
        assert (tmp_path / "0").read_text().split()[1] == "sesame"
        assert "sesame" not in Path(f"/proc/{pid(0)}/cmdline").read_text()
        (tmp_path / "1.fail").touch()
        wait(lambda: stages() == ["running", "ended", "running"])
        assert job.states()[1].reason == "exited with code 3"
        assert job.last_lines(1) == ["it cannot go on"]
        job.release(0)
        wait(lambda: not Path(f"/proc/{pid(0)}").exists())
        assert stages() == ["ended", "ended", "running"]
        job.start(call, 4)
        wait(lambda: "it asks for 4 nodes with 1 CPU; there are 3" in job.states()[3].reason)
    finally:
        job.close()
    wait(lambda: not Path(f"/proc/{pid(2)}").exists())
    assert not ray.is_initialized()
