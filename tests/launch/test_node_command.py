"""Commands are heard to their last line, and their ends are told though their children still write."""

import os
import queue
import signal

import pytest

from nfold.launch.emulation.node_command import Lines, NodeCommand

WAIT_S = 20.0


class Listener:
    """Keeps what it hears."""

    def __init__(self):
        self.heard = queue.SimpleQueue()

    def wrote(self, line, is_error):
        self.heard.put((line, is_error))

    def ended(self, code):
        self.heard.put(code)

    def next(self):
        return self.heard.get(timeout=WAIT_S)


@pytest.fixture
def start():
    groups = []

    def start(script):
        listener = Listener()
        program = NodeCommand("n", ["sh", "-c", f"echo $$; {script}"], dict(os.environ), listener)
        groups.append(int(listener.next()[0]))
        return program, listener, groups[-1]

    yield start
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_lines_are_whole_however_they_come():
    lines = Lines()
    assert lines.take(b"on") == []
    assert lines.take(b"e\ntwo\r\n\nthr") == ["one", "two", ""]
    assert lines.take(b"\xc3") == []
    assert lines.take(b"\xa9e\n\xff") == ["thr\u00e9e"]
    assert lines.rest() == ["\ufffd"]
    assert lines.rest() == []


def test_a_command_is_heard_to_its_last_line_and_then_its_end_is_told(start):
    program, listener, _ = start("echo out; echo err >&2; printf unfinished; exit 7")
    heard = [listener.next() for _ in range(4)]
    assert sorted(heard[:3]) == [("err", True), ("out", False), ("unfinished", False)]
    assert heard[3] == 7
    program.join()


def test_who_was_killed_has_a_negative_code(start):
    program, listener, _ = start("kill -9 $$")
    assert listener.next() == -signal.SIGKILL
    program.join()


def test_a_child_that_holds_the_pipe_is_not_waited_for_but_heard(start, tmp_path):
    os.mkfifo(tmp_path / "go")
    program, listener, group = start(f"(cat {tmp_path}/go; exec sleep 1000) & echo done")
    assert [listener.next(), listener.next()] == [("done", False), 0]
    (tmp_path / "go").write_text("from the background\n")
    assert listener.next() == ("from the background", False)
    os.killpg(group, signal.SIGKILL)
    program.join()


def test_a_child_that_never_stops_writing_does_not_hide_the_end(start):
    program, listener, group = start("yes & echo problem >&2; exit 3")
    heard = []
    while not heard or isinstance(heard[-1], tuple):
        heard.append(listener.next())
    assert heard[-1] == 3
    assert ("problem", True) in heard
    os.killpg(group, signal.SIGKILL)
    program.join()
