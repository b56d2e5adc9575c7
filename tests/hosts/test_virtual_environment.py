"""Environments of lock files, with small wheels in place of torch: what pip does with large ones is its own affair."""

import fcntl
import os
import subprocess
import threading

import pytest
from local_wheels import make_wheel

from nfold.errors import ClusterError
from nfold.hosts.program_files.lock_file import LockFile
from nfold.hosts.program_files.virtual_environment import EnvironmentMaker, drop_old

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]
NEEDED = ("torch", "numpy", "safetensors")
PRINT = "import nfold.version, torch; print(torch.VERSION, nfold.version.__file__)"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for name in NEEDED:
        make_wheel(folder, name, "1.0", {f"{name}.py": "VERSION = 'of the wheel'\n"})
    make_wheel(folder, "alone", "1.0", {"alone.py": ""}, requires="company")
    return folder


@pytest.fixture
def locked(wheels):
    def locked(*lines):
        return LockFile(name="my.lock", text="\n".join(["--no-index", f"--find-links {wheels}", *lines, ""]))

    return locked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache") / "environments"


@pytest.fixture
def maker(folder):
    """Return makers for a folder, and close them at the end."""
    made = []

    def make(where=folder):
        made.append(EnvironmentMaker(where))
        return made[-1]

    yield make
    for each in made:
        each.close()


def whole(locked):
    return locked(*(f"{name}==1.0" for name in NEEDED))


def never():
    pytest.fail("it is there already")


def test_an_environment_is_made_once_however_many_ask(folder, locked, maker):
    made, pythons = [], []

    def make(own):
        pythons.append(own.python_of(whole(locked), lambda: made.append(own)))

    threads = [threading.Thread(target=make, args=(maker(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pythons.append(maker().python_of(whole(locked), never))

    assert len(set(pythons)) == 1
    assert made, "the first to come says so"
    (key,) = [each for each in folder.iterdir() if each.is_dir()]
    assert len(list(key.glob("made-*"))) == 1
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    printed = subprocess.run([pythons[0], "-c", PRINT], env=alone, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("of the wheel ")
    assert "nfold-of-the-agent" in printed, "nfold, and no other torch beside it"


def test_who_comes_second_does_not_wait_until_the_first_one_lets_go(tmp_path, maker, monkeypatch):
    for quick in ("_install", "_check"):
        monkeypatch.setattr(EnvironmentMaker, quick, lambda *_: None)
    lock, first, second = LockFile(name="my.lock", text="nfold==1.0"), maker(tmp_path), maker(tmp_path)
    pythons = []

    pythons.append(second.python_of(lock, lambda: pythons.append(first.python_of(lock, lambda: None))))

    assert pythons[0] == pythons[1]


def test_what_was_begun_and_not_ended_is_left_out(folder, locked, maker):
    lock, first = whole(locked), maker()
    python = first.python_of(lock, lambda: None)
    first.close()
    (current,) = folder.glob("*/current")
    current.unlink()
    made = []

    assert maker().python_of(lock, lambda: made.append(1)) != python
    assert made == [1]
    assert not os.path.exists(python)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("safetensors==9.9",), r"the environment of my.lock cannot be made: .*safetensors==9.9"),
        pytest.param(("alone==1.0",), "alone.*requires company", marks=pytest.mark.exhaustive),
        (("numpy==1.0",), "my.lock lacks safetensors, torch, which nfold needs. .*pip freeze --all"),
    ],
)
def test_an_environment_that_cannot_be_made(tmp_path, locked, maker, lines, said):
    with pytest.raises(ClusterError, match=said):
        maker(tmp_path).python_of(locked(*lines), lambda: None)

    assert not list(tmp_path.glob("*/made-*"))


def test_a_job_that_is_over_makes_none(tmp_path, locked, maker, monkeypatch):
    own = maker(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: own.close())

    with pytest.raises(ClusterError, match="the job is over"):
        own.python_of(whole(locked), lambda: None)


def test_who_installs_holds_the_lock_as_long_as_it_lives(tmp_path, monkeypatch):
    lists = tmp_path / "lists"
    lists.write_text("#!/bin/sh\necho error: $(readlink /proc/$$/fd/*)\nexit 1\n")
    lists.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: None)

    with pytest.raises(ClusterError, match=r"/made/\w+\.making"):
        EnvironmentMaker(tmp_path / "made", str(lists)).python_of(LockFile(name="my.lock", text=""), lambda: None)


def test_of_many_the_oldest_go_but_for_those_in_use(tmp_path):
    for number in range(7):
        (tmp_path / str(number)).mkdir()
        os.utime(tmp_path / str(number), (number, number))
    with open(tmp_path / "0.lock", "wb") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        drop_old(tmp_path)

    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["0", "2", "3", "4", "5", "6"]
