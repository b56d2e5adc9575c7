"""Where output goes may be full, closed, or gone."""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

FULL = "/dev/full"
BUFFERED = {**os.environ, "PYTHONUNBUFFERED": ""}
"""Without buffers argparse itself says nothing of what it cannot print."""


def ended(arguments: Sequence[str], redirect: str) -> "subprocess.CompletedProcess[str]":
    command = f'"$0" -m nfold.cli.main {" ".join(arguments)} {redirect}'
    return subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, timeout=60)


def unread():
    """Return a stream whose reader has gone away."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def full():
    return open(FULL, "w")


@pytest.mark.parametrize("arguments", [("--version",), ("why", "nowhere")], ids=["to stdout", "to stderr"])
def test_a_command_without_streams_does_what_it_would_do_with_them(arguments):
    assert ended(arguments, "<&- >&- 2>&-").returncode == ended(arguments, "").returncode


def test_a_stream_that_is_closed_is_no_error():
    done = ended(("why", "nowhere"), "<&- >&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nfold: there is no run folder nowhere")


def test_a_full_disk_behind_stdout_is_said():
    print_much = "why_command.run = lambda parsed: print('much ' * 10_000)"
    imports = "import sys\nfrom nfold.cli import main\nfrom nfold.cli.watching import why_command\n"
    code = f"{imports}{print_much}\nsys.exit(main.main(['why', 'RUN']))"
    with open(FULL, "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "nfold: cannot write its output: No space left on device. Free some, or send it elsewhere.\n"


def test_a_full_disk_is_said_where_argparse_has_answered_too():
    command = [sys.executable, "-m", "nfold.cli.main", "--version"]
    with full() as stdout:
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, env=BUFFERED)
    assert done.returncode == 2
    assert done.stderr.startswith("nfold: cannot write its output: No space left on device.")


@pytest.mark.parametrize("stderr", [unread, full])
def test_progress_that_nobody_reads_ends_no_training(nfold, tmp_path, monkeypatch, stderr):
    monkeypatch.setattr(sys, "stderr", stderr())

    trained = nfold("train", "steady.py", "--debug", "--steps", "2", "--out", "mine")

    assert trained.code == 0
    assert "run: mine" in trained.out
    assert (tmp_path / "mine" / "report.json").exists()
    assert (tmp_path / "mine" / "model.safetensors").exists()


def test_a_table_that_nobody_reads_is_no_success():
    command = [sys.executable, "-m", "nfold.cli.main", "train", "--help"]
    with unread() as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, env=BUFFERED)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_error_that_nobody_reads_is_an_error():
    command = [sys.executable, "-m", "nfold.cli.main", "why", "nowhere"]
    with unread() as pipe:
        assert subprocess.run(command, stdout=pipe, stderr=pipe, timeout=60).returncode == 2


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_locale_without_utf_8_ends_nothing(shell):
    shell.environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    trained = shell.run("train", "steady.py", "--steps", "2", "--out", "mine")
    assert trained.code == 0, trained.err
    assert (shell.folder / "mine" / "report.html").exists()
    assert shell.run("why", "mine").code == 0
