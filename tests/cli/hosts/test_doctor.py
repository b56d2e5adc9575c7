"""nfold doctor, on agents of this machine."""

import pytest


@pytest.mark.processes
def test_hosts_that_are_well(shell):
    shell.environment["XDG_CACHE_HOME"] = str(shell.folder / "cache")

    result = shell.run("doctor", "--on", "local", "--nodes", "3", "--json")

    checks = {check["name"]: check for check in result.document()}
    assert list(checks) == ["hosts", "versions", "clocks", "disks", "ports", "links"]
    assert all(checks[name]["passed"] for name in ("hosts", "versions", "clocks", "ports")), checks
    assert checks["links"]["told"].count(" one way") == 3


@pytest.mark.processes
def test_a_host_that_is_not_there(shell):
    (shell.folder / "hosts.txt").write_text("nowhere\n")
    shell.environment["NFOLD_SSH"] = "sh -c 'echo no route to host; exit 255'"

    result = shell.run("doctor", "--on", "ssh:hosts.txt")

    assert result.code == 2
    assert result.out.startswith("FAIL  hosts and versions: ssh to the hosts of hosts.txt: the agent on nowhere exited")
    assert "no route to host" in result.out
    assert "what to do" not in result.out, "the message says it"


def test_no_hosts_to_look_at(nfold):
    nfold("doctor").check_explained("none are asked for. Add --on or --listen.")


@pytest.mark.processes
def test_a_clock_that_is_an_hour_off(hosts, far):
    far.begin_with("import time; now = time.time; time.time = lambda: now() + 3600")

    result = hosts.run("doctor", "--on", "ssh:hosts.txt")

    assert result.code == 2
    (told,) = [line for line in result.out.splitlines() if line.startswith("FAIL")]
    assert told.startswith("FAIL  clocks: wrong by more than 60.0 s: pi-1 (3600")
