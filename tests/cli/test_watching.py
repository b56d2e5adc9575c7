"""A run is looked after from another terminal."""

import io
import itertools
import json
import os
import pty
import re
import socket
import sys
import termios
import threading
import urllib.request
from dataclasses import replace

import pytest

from nfold.cli.main import main
from nfold.core import codec
from nfold.core.run_state import ListedRun, RunState
from nfold.machine.processes import started_here
from nfold.verbs.jobs.database import user_database

PAUSE = threading.Event()
ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
"""What begins and ends a screen beside the one of before."""


@pytest.fixture(autouse=True)
def _own_list(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def ask(capsys):
    """Return what a command prints while files of a run may be half there."""

    def run(*arguments):
        assert main([*arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.processes
def test_a_run_is_watched_stopped_and_gone_on_with_by_its_number(shell, nfold, ask):
    shell.environment["EPOCHS"] = "2000"
    job = shell.start("train", "steady.py", "-n", "2", "--strategy", "ring", "--dashboard", "--prometheus", "0")
    told = list(itertools.takewhile(lambda line: not line.startswith("epoch 2/"), job.stderr))
    figures, page = (next(line for line in told if line.startswith(what)).split()[-1] for what in ("figures", "dash"))
    while not (state := json.loads(ask("top", "--json")))["step"]:
        PAUSE.wait(0.05)
    assert (state["phase"], state["total_steps"], len(state["ranks"])) == ("training", 10_000, 2)
    assert "run 1: " in ask("top", "1")
    (run,) = json.loads(ask("ps", "--json"))["runs"]
    folder = str(shell.folder / "runs" / "steady-1")
    assert (run["ending"], run["pid"], run["folder"], run["strategy"]) == ("running", job.pid, folder, "ring")
    assert ask("logs", "--rank", "1") == "hello from the program\n"
    assert re.search("^nfold_steps_total [1-9]", fetched(figures), re.MULTILINE)
    assert "ring with 2 workers" in fetched(f"{page}parts.json")
    port = int(page.split(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as silent:
        stopped = ask("stop", "1")
        assert silent.recv(1) == b"", "who looks holds up no end"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    told = r"run 1 is stopped: (\d+) of 10000 steps are done\. The checkpoint of step \1 is kept; go on with: "
    found = re.fullmatch(rf"{told}nfold train --resume {folder}\n", stopped)
    assert found, stopped
    assert shell.finish(job).code == 130
    assert nfold("why", "1").code == 0
    assert re.search(r"\| 1 +\| stopped \| ", nfold("ps").out)

    more = nfold("train", "--resume", "1", "--steps", int(found[1]) + 3, "--debug", "--json")
    assert more.code == 0, more.err
    (run,) = nfold("ps", "--json").document()["runs"]
    assert (run["number"], run["ending"], run["step"]) == (1, "done", int(found[1]) + 3)


def fetched(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def goes_on(tmp_path):
    """A run of this process."""
    run = ListedRun(
        folder=str(tmp_path), script="", host=socket.gethostname(), pid=os.getpid(), started=started_here(),
        begun=1.0, heard=1.0,
    )  # fmt: skip
    codec.save(RunState(at=1.0, phase="training", strategy="ring", step=3, total_steps=9), tmp_path / "state.json")
    return user_database().begin(run, goes_on=False)


@pytest.fixture
def terminal():
    """Two ends of a terminal: that of a person, and that of a program."""
    person, program = pty.openpty()
    yield person, program
    for end in (person, program):
        os.close(end)


def test_a_run_is_drawn_until_q_is_pressed(goes_on, terminal, monkeypatch):
    person, program = terminal
    seen, before = b"", termios.tcgetattr(program)

    def look_and_press():
        nonlocal seen
        while b"step 3 of 9" not in seen:
            seen += os.read(person, 4096)
        os.write(person, b"q")
        while not seen.partition(LEFT)[2].rstrip().endswith(b"epoch 0 of 0"):
            seen += os.read(person, 4096)

    looking = threading.Thread(target=look_and_press, daemon=True)
    looking.start()
    with open(os.dup(program), "w") as screen, open(os.dup(program)) as keyboard, monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stdin", keyboard)
        assert main(["top", str(goes_on.number)]) == 0
    looking.join(10)
    assert not looking.is_alive(), seen
    assert ENTERED in seen
    assert termios.tcgetattr(program) == before, "keys come by line again"


@pytest.mark.parametrize("command", ["top", "logs", "why", "report"])
def test_a_number_that_is_nobodys_says_what_there_is(nfold, command):
    nfold(command, "7").check_explained("there is no run 7. No run is listed.")
    nfold(command).check_explained("no run is listed yet: begin one with nfold train")


def test_a_wrong_wait_is_told(nfold):
    nfold("stop", "--wait", "long").check_explained("--wait long: it must be a time of more than 0")
    nfold("stop").check_explained("no run goes on.")


def test_a_run_that_fails_before_it_trains_is_not_listed(nfold, tmp_path):
    assert nfold("train", "steady.py:nothing", "--debug").code == 2
    assert nfold("ps", "--json").document() == {"runs": []}


class Printed(io.StringIO):
    """Is watched by another thread."""

    def __init__(self):
        super().__init__()
        self.has_lines = threading.Event()

    def write(self, text):
        super().write(text)
        if self.getvalue().count("\n") >= 2:
            self.has_lines.set()


def test_a_run_is_shown_in_a_browser_until_it_ends(goes_on, monkeypatch):
    printed, pages = Printed(), []

    def look_and_end():
        assert printed.has_lines.wait(10)
        pages.append(fetched(printed.getvalue().split()[1] + "parts.json"))
        user_database().update(replace(goes_on, ending="done", ended=2.0))

    looking = threading.Thread(target=look_and_end, daemon=True)
    looking.start()
    monkeypatch.setattr(sys, "stdout", printed)
    assert main(["top", str(goes_on.number), "--dashboard"]) == 0
    looking.join(10)
    assert 'id=\\"step\\">3<' in pages[0]
    assert "step 3 of 9" in printed.getvalue(), "and then once more in the terminal"


def test_a_page_that_makes_no_sense_is_refused(nfold, goes_on):
    nfold("top", "--dashboard", "65536").check_explained("--dashboard 65536: the last port is 65535")
    nfold("top", "--dashboard", "--json").check_explained("--dashboard shows a run until it ends, and --json once")
    user_database().update(replace(goes_on, ending="done", ended=2.0))
    nfold("top", "--dashboard").check_explained("--dashboard shows a run while it goes on, and that in", "nfold report")
