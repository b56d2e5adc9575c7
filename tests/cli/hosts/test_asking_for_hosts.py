"""Hosts that cannot be had."""

import os
import re
import sysconfig

import pytest
from local_wheels import make_wheel


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


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.processes
@AS_ROOT
def test_a_host_that_is_reached_and_reaches_nobody(hosts, far):
    far('exec unshare --net sh -c "$run"')

    result = hosts.run("train", "steady.py", "--on", "ssh:hosts.txt")

    result.check_explained(
        "the agent on pi-1 exited with code 2", "cannot reach the coordinator", "no firewall between?"
    )


@pytest.mark.processes
def test_a_host_with_another_version(hosts, far):
    far.begin_with("import nfold.version; nfold.version.__version__ = '0.0.9'")

    result = hosts.run("train", "steady.py", "--on", "ssh:hosts.txt")

    result.check_explained("pi-1 has nfold 0.0.9, Python ", "; this machine has nfold ", "Install the same versions")


@pytest.mark.processes
@AS_ROOT
def test_a_host_without_room(hosts, far):
    (hosts.folder / "photos.bin").write_bytes(os.urandom(200_000))
    disk = hosts.folder / "disk"
    disk.mkdir()
    (hosts.folder / ".nfoldignore").write_text("disk\n")

    far(f'exec unshare --mount sh -c "mount -t tmpfs -o size=64k none {disk} && XDG_CACHE_HOME={disk} $run"')

    result = hosts.run("train", "steady.py", "--on", "ssh:hosts.txt")

    result.check_explained(f"pi-1: cannot unpack the program into {disk}", "No space left", "XDG_CACHE_HOME moves it")


@pytest.mark.processes
def test_a_queue_that_does_not_start(hosts, slurm):
    hosts.environment |= slurm.environment
    try:
        slurm.ask("sbatch", "--nodes=3", "--exclusive", "--time=5", "--output=/dev/null", "--wrap=sleep 300")
        slurm.wait_until(lambda: "RUNNING" in slurm.ask("squeue", "--noheader", "--format=%T"))

        result = hosts.run("train", "steady.py", "--on", "slurm:short", "--nodes", "2", "--hosts-within", "3")

        result.check_explained("Slurm partition short: 0 of 2 hosts came within 3", "place 0 (", "--hosts-within")
        assert len(slurm.ask("squeue", "--noheader").splitlines()) == 1, "what waited is cancelled"
    finally:
        slurm.cancel_all()


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


@pytest.mark.processes
def test_an_environment_of_a_lock_file(hosts):
    """What is installed here is seen from the environment: nobody wants to install torch for this."""
    here = sysconfig.get_path("purelib")
    make_wheel(hosts.folder / "wheels", "seen", "1.0", {"seen.pth": f"{here}\n", "only_there.py": "WORD = 'found'\n"})
    lock, script = hosts.folder / "my.lock", hosts.folder / "locked.py"
    lock.write_text(f"--no-index\n--find-links {hosts.folder / 'wheels'}\nseen==1.0\n")
    script.write_text("import only_there\nfrom steady import program\nprint(only_there.WORD, flush=True)\n")
    (hosts.folder / ".nfoldignore").write_text("wheels\n")

    result = hosts.run("train", "locked.py", "--on", "local", "--nodes", "1", "--env", "my.lock", "--out", "there")

    assert result.code == 0, result
    assert "local-0 makes the environment of my.lock" in result.err + result.out
    assert "found" in (hosts.folder / "there" / "log.txt").read_text()


def test_a_lock_file_that_pins_nothing(hosts, nfold):
    (hosts.folder / "my.lock").write_text("torch\n")

    result = nfold("train", "steady.py", "--on", "local", "--nodes", "1", "--env", "my.lock", "--dry-run")

    result.check_explained("my.lock: 'torch' is not pinned")


def test_a_token_file_that_is_not_there(nfold):
    nfold("join", "127.0.0.1:1", "--token-file", "none.txt").check_explained("cannot read the token file none.txt")


def test_a_dry_run_shows_the_command_without_the_token(nfold, tmp_path):
    (tmp_path / "hosts.txt").write_text("pi-1\n")

    result = nfold("train", "steady.py", "--on", "ssh:hosts.txt", "--listen", "10.0.0.1:7000", "--dry-run")

    assert result.code == 0, result.err
    assert re.search(
        r"^ssh .* pi-1 'exec \S+ -P -m nfold agent --connect 10\.0\.0\.1:7000 --token-file - --place 0", result.out
    )
