"""Where output goes may be full, closed, or gone."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

FULL = "/dev/full"


def ended(arguments: Sequence[str], redirect: str) -> "subprocess.CompletedProcess[str]":
    command = f'"$0" -m nfold.cli.main {" ".join(arguments)} {redirect}'
    return subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("arguments", [("--version",), ("why", "nowhere")], ids=["to stdout", "to stderr"])
def test_a_command_without_streams_does_what_it_would_do_with_them(arguments):
    assert ended(arguments, "<&- >&- 2>&-").returncode == ended(arguments, "").returncode


def test_a_stream_that_is_closed_is_no_error():
    done = ended(("why", "nowhere"), "<&- >&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nfold: there is no run folder nowhere")


def test_a_full_disk_behind_stdout_is_said():
    print_much = "from nfold.cli import main, why\nwhy.run = lambda parsed: print('much ' * 10_000)\n"
    code = f"import sys\n{print_much}sys.exit(main.main(['why', 'RUN']))"
    with open(FULL, "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "nfold: cannot write its output: No space left on device. Free some, or send it elsewhere.\n"
