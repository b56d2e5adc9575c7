"""Hosts that cannot be had."""

import re

import pytest


@pytest.fixture
def hosts(shell):
    shell.environment["XDG_CACHE_HOME"] = str(shell.folder / "cache")
    return shell


def test_a_hosts_file_with_a_bad_line(nfold, tmp_path):
    (tmp_path / "hosts.txt").write_text("pi-1\npi-2 cores=4\n")

    nfold("train", "steady.py", "--on", "ssh:hosts.txt").check_explained("hosts.txt, line 2: 'cores=4'")


@pytest.mark.processes
def test_a_host_that_cannot_be_reached(hosts):
    (hosts.folder / "hosts.txt").write_text("nowhere\n")
    hosts.environment["NFOLD_SSH"] = "sh -c 'echo no route to host; exit 255'"

    result = hosts.run("train", "steady.py", "--on", "ssh:hosts.txt")

    result.check_explained(
        "the agent on nowhere exited with code 255", "The last lines from there:\n  no route to host"
    )
    assert not list(hosts.folder.glob("runs/*"))


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (
            "yarn:http://127.0.0.1:1",
            "YARN's ResourceManager at http://127.0.0.1:1 cannot be reached: Connection refused.",
        ),
        ("yarn:rm", "it must be the ResourceManager's web address, as in yarn:http://RM:8088"),
        ("ray:?memory=1", "memory=1 is nothing to ask for"),
    ],
)
def test_a_manager_that_is_not_there(nfold, on, said):
    nfold("train", "steady.py", "--on", on, "--nodes", "2").check_explained(said)


@pytest.mark.processes
def test_hosts_that_do_not_come_in_time(hosts):
    result = hosts.run("train", "steady.py", "--listen", "127.0.0.1:0", "--nodes", "2", "--hosts-within", "1")

    result.check_explained("0 of 2 hosts came within 1", "--hosts-within")


@pytest.mark.processes
def test_a_folder_that_is_too_large_to_be_sent(hosts):
    with open(hosts.folder / "photos.bin", "wb") as file:
        file.truncate(3 << 30)

    result = hosts.run("train", "steady.py", "--on", "local", "--nodes", "2")

    result.check_explained("The largest: photos.bin (3", ".nfoldignore", "NFOLD_DATA")


def test_a_token_file_that_is_not_there(nfold):
    nfold("join", "127.0.0.1:1", "--token-file", "none.txt").check_explained("cannot read the token file none.txt")


def test_a_dry_run_shows_the_command_without_the_token(nfold, tmp_path):
    (tmp_path / "hosts.txt").write_text("pi-1\n")

    result = nfold("train", "steady.py", "--on", "ssh:hosts.txt", "--listen", "10.0.0.1:7000", "--dry-run")

    assert result.code == 0, result.err
    assert re.search(
        r"^ssh .* pi-1 'exec \S+ -P -m nfold agent --connect 10\.0\.0\.1:7000 --token-file - --place 0", result.out
    )
