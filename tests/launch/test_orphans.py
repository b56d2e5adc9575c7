"""A process ends with the one that started it, even while nothing of its own runs."""

import contextlib
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(30)

CHILD = """
import ctypes, os, select, sys
from nfold.launch.orphans import end_with_parent, outlive_parent
end_with_parent(int(sys.argv[1]))
if sys.argv[2] == "let go":
    outlive_parent()
os.write(1, b"alive\\n")
if sys.argv[2] == "blocked":
    ctypes.PyDLL(None).pause()  # keeps the interpreter's lock: no thread of Python can do anything
poll = select.poll()
poll.register(os.pidfd_open(int(sys.argv[1])), select.POLLIN)
poll.poll()
os.write(1, b"still alive\\n")
"""
PARENT = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid()), sys.argv[1]])
os.read(0, 1)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def parent():
    """Start a parent with a child that writes to the same pipe; the end of its input kills the parent."""

    def start(how: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PARENT, how]
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert process.stdout.readline() == "alive\n"
        return process

    with contextlib.ExitStack() as stack:
        yield start


def test_it_is_killed_with_its_parent_while_it_can_notice_nothing(parent):
    process = parent("blocked")
    process.stdin.close()
    assert process.stdout.read() == "", "the end of the pipe: the child that held it is gone"


def test_once_it_notices_by_itself_it_is_left_alone(parent):
    process = parent("let go")
    process.stdin.close()
    assert process.stdout.read() == "still alive\n"


def test_it_ends_at_once_when_another_is_its_parent():
    child = subprocess.run([sys.executable, "-c", CHILD, str(os.getpid() + 1), "x"], capture_output=True, timeout=20)
    assert (child.returncode, child.stdout, child.stderr) == (1, b"", b"")
