"""Questions to Mt-KaHyPar in several processes: what they keep, how they answer, and how they end."""

import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from grids import chain
from test_cell_hypergraph import hypergraph

from nfold.errors import InternalError
from nfold.planning.hypergraph import kahypar, kahypar_processes
from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.kahypar_answers import Question, answer
from nfold.planning.hypergraph.kahypar_processes import Processes

pytestmark = pytest.mark.skipif(not kahypar.is_available(), reason="mtkahypar is not installed")

QUESTION = Question(
    preset="DETERMINISTIC",
    num_blocks=2,
    epsilon=0.1,
    most_weights=[3, 3],
    weights=[1] * 4,
    nets=[[0, 1], [1, 2], [2, 3]],
    costs=[5, 1, 5],
    fixed=[],
    blocks=[],
)
READY = "import socket; connection = socket.socket(fileno=0); connection.sendall(b'ready\\n'); connection.recv(1);"
OWNER = f"""
import sys
from nfold.planning.hypergraph.kahypar_processes import Processes
asked = Processes(most=1)
asked.ask({QUESTION})
asked.ask({QUESTION})
print(open("/proc/thread-self/children").read(), flush=True)
sys.stdin.read()
"""


class _InUse(ctypes.Structure):
    """What `mallinfo2` of malloc.h returns."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in ("arena", "a", "b", "c", "large", "d", "e", "small", "f", "g"))


def in_use_bytes() -> int:
    """What the allocator of this process has given out."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _InUse
    found = mallinfo()
    return found.small + found.large


def children() -> set[int]:
    """The processes that this thread has started."""
    return set(map(int, Path("/proc/thread-self/children").read_text().split()))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not tell what is in use")
def test_a_process_keeps_nothing_of_questions_beyond_the_first(monkeypatch):
    monkeypatch.setattr(kahypar, "_PROCESSES", Processes(most=20))
    cells = hypergraph(chain(10, 100_000), 16, 4, A=4.0, B=0.5, Loss=0.0)
    halves = Limits(shares=(0.5, 0.5), epsilon=0.05, memory_bytes=(1e18,) * 2)
    for _ in range(21):
        kahypar.partition(cells, halves, 0)
    before = in_use_bytes()
    for _ in range(60):
        kahypar.partition(cells, halves, 0)
    assert (in_use_bytes() - before) / 60 < 1024


def test_equal_questions_have_equal_answers_in_all_processes():
    asked, others, seen = Processes(most=1), children(), []
    improve = Question(**{**QUESTION, "preset": "DETERMINISTIC_QUALITY", "blocks": [0, 1, 0, 1]})
    fixed = Question(**{**QUESTION, "fixed": [1, -1, -1, 0]})
    for question in (QUESTION, improve, fixed):
        assert asked.ask(question) == answer(question)
        seen += children() - others
    assert len(seen) == len(set(seen)) == 2, "this process, then one child after another"


def test_a_child_that_was_killed_is_replaced():
    asked, others = Processes(most=10), children()
    for _ in range(11):
        asked.ask(QUESTION)
    (first,) = children() - others
    os.kill(first, signal.SIGKILL)
    assert asked.ask(QUESTION) == answer(QUESTION)
    (second,) = children() - others
    assert second != first


def test_an_answer_that_nobody_waited_for_is_not_given_to_the_next_question(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    asked = Processes(most=3)
    for _ in range(4):
        asked.ask(QUESTION)
    other = Question(**{**QUESTION, "weights": [1] * 5, "nets": [[0, 4], [1, 2, 3], [0, 3]]})
    with monkeypatch.context() as patched:
        patched.setattr(kahypar_processes._Child, "_line", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asked.ask(QUESTION)
    assert asked.ask(other) == answer(other)


def test_a_question_that_children_die_of_is_told(tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(f"{READY} exit(3)")
    asked = Processes(most=1, script=str(script))
    asked.ask(QUESTION)
    with pytest.raises(InternalError, match="divide 4 vertices into 2 blocks ended with code 3 instead, 2 times"):
        asked.ask(QUESTION)


def test_this_process_answers_where_no_child_can_be_started(tmp_path):
    script, others = tmp_path / "ends.py", children()
    script.write_text("")
    asked = Processes(most=1, script=str(script))
    assert asked.ask(QUESTION) == asked.ask(QUESTION) == answer(QUESTION)
    assert children() == others


def test_a_child_ends_with_its_parent_however_that_ends():
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        child = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
        poll = select.poll()
        poll.register(child, select.POLLIN)
        assert poll.poll(60_000), "it goes on"
    os.close(child)
