"""What a fork server starts: children of its creator, that know what was known when it was forked, and end with it."""

import os
import select
import signal
import socket
import subprocess
import sys

import pytest

from nfold.launch.fork_server import ForkServer

pytestmark = pytest.mark.timeout(30)

known = ["when it was forked"]
RANK = """
import os, signal, socket, sys
from nfold.launch.fork_server import ForkServer
server = ForkServer("busy", lambda *_: signal.pause())  # hears nothing of its socket
print(server._child.pid, flush=True)
if sys.argv[1] == "started":
    ends = [socket.socketpair() for _ in range(2)]
    print(*[each.pid for each in server.start("x", [other for _, other in ends])], flush=True)
sys.stdin.read()
"""
FAILING = """
import socket
from nfold.launch.fork_server import ForkServer
server = ForkServer("fails", lambda *_: {}["nothing"])
print(server.start("x", [socket.socketpair()[1]])[0].ended(None))
"""


def tell(passed: socket.socket, argument: str) -> None:
    """Say what this process is, then wait for the other end."""
    passed.send(f"{argument}, {os.getppid()}, {'; '.join(known)}".encode())
    passed.recv(1)


def gone(pid: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    ended = bool(poll.poll(20_000))
    os.close(handle)
    return ended


def test_its_processes_are_children_of_its_creator_and_know_what_was_known_when_it_was_forked():
    read, write = os.pipe()
    server = ForkServer("tells", tell)
    its_number = server._child.pid
    known.append("later")
    pairs = [socket.socketpair() for _ in range(3)]
    processes = server.start("a word", [other for _, other in pairs])
    for _, other in pairs:
        other.close()
    os.close(write)
    assert os.read(read, 1) == b"", "nobody else holds what this process has open"
    os.close(read)
    for own, _ in pairs:
        assert own.recv(100).decode() == f"a word, {os.getpid()}, when it was forked"
    assert not os.path.exists(f"/proc/{its_number}")
    os.kill(processes[0].pid, signal.SIGTERM)  # of a job manager
    pairs[0][0].shutdown(socket.SHUT_RDWR)
    assert processes[0].ended(None) == "exited with code 0"
    processes[1].end(0.0)
    assert processes[1].ended(None) == "was killed by signal 9 (SIGKILL)"
    for process, (own, _) in zip(processes, pairs, strict=True):
        own.close()
        process.end(20.0)
        assert not os.path.exists(f"/proc/{process.pid}")


@pytest.mark.parametrize("how", ["idle", "started"])
def test_all_end_with_the_creator(how):
    rank = subprocess.Popen([sys.executable, "-c", RANK, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    numbers = [int(word) for _ in range(1 if how == "idle" else 2) for word in rank.stdout.readline().split()]
    assert len(numbers) == (1 if how == "idle" else 3)
    rank.kill()
    rank.communicate()
    assert all(map(gone, numbers))


def test_a_server_that_was_killed_is_told():
    server = ForkServer("tells", tell)
    os.kill(server._child.pid, signal.SIGKILL)
    own, other = socket.socketpair()
    with own, other, pytest.raises(OSError, match=r"starts them \(\d+\) was killed by signal 9"):
        server.start("a word", [other])
    server.close()


def test_a_system_that_forks_nothing_is_told_to_those_who_start_something(monkeypatch):
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    server = ForkServer("tells", tell)
    with pytest.raises(OSError, match="cannot be forked: Resource temporarily unavailable"):
        server.start("a word", [])
    server.close()


def test_what_goes_wrong_in_a_process_is_printed_and_its_exit_code():
    found = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, timeout=20)
    assert found.stdout == "exited with code 1\n"
    assert "KeyError: 'nothing'" in found.stderr
