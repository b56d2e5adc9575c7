"""--debug on a terminal: the program prints where it always does, and a debugger can be talked to."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

CLEAR = "\r\x1b[K"


@pytest.fixture
def terminal(shell):
    """Run a command on a terminal; return what was seen on it. Words are typed when what they answer has come."""
    opened = []

    def run(*arguments, answers=()):
        ours, theirs = pty.openpty()
        opened.append(ours)
        process = subprocess.Popen(
            [sys.executable, "-m", "nfold.cli.main", *arguments],
            cwd=shell.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen, answers = "", list(answers)
        while piece := _read(ours):
            seen += piece
            if answers and answers[0][0] in seen:
                os.write(ours, answers.pop(0)[1].encode())
        assert process.wait(60) == 0, seen
        assert not answers
        return seen.replace("\r\n", "\n")

    yield run
    for descriptor in opened:
        os.close(descriptor)


def test_what_the_program_prints_does_not_garble_the_line(shell, terminal):
    script = shell.folder / "steady.py"
    script.write_text(
        script.read_text().replace("    hidden = ", '    print("inputs:", len(inputs))\n        hidden = ')
    )

    seen = terminal("train", "steady.py", "--debug", "-n", "2", "--strategy", "ring", "--out", "run")

    lines = re.split(rf"\n|{re.escape(CLEAR)}", seen)
    printed = [line for line in lines if "inputs:" in line]
    assert len(printed) > 40
    assert [line for line in printed if not re.fullmatch(r"inputs: \d+", line)] == []
    progress = [line for line in lines if " %  loss " in line]
    assert len(progress) >= 4, "one for each epoch at least"
    assert all(line.startswith("epoch ") for line in progress)
    assert (shell.folder / "run" / "log.txt").read_text() == "", "it is there, like every file of a run"


def test_a_debugger_can_be_talked_to(shell, terminal):
    script = shell.folder / "steady.py"
    script.write_text(
        script.read_text().replace(
            "    return (outputs.argmax(1)",
            "    if not stopped:\n        stopped.append(True)\n        breakpoint()\n    return (outputs.argmax(1)",
        )
        + "\nstopped = []\n"
    )

    seen = terminal(
        "train", "steady.py", "--debug", "--steps", "2", answers=[("(Pdb) ", "p 'outputs', len(outputs) > 0\nc\n")]
    )

    assert "('outputs', True)" in seen


def _read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 1 << 16).decode()
    except OSError:  # Linux says so when the other side is closed
        return ""


def test_one_rank_measures_what_tasks_cost_and_knows_what_messages_usually_do(nfold, tmp_path):
    assert nfold("train", "steady.py", "-n", "1", "--steps", "2", "--debug", "--out", "mine").code == 0
    (node,) = json.loads((tmp_path / "mine" / "cluster.json").read_text())["nodes"]
    assert 1e-6 < node["step_cpu_s"] < 1e-2
    assert node["local"]["cpu_s_per_message"] > 0
