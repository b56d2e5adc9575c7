"""Agents that this machine has started itself: how their processes begin and end."""

import os
import sys

import pytest

from nfold.hosts.manager import Call
from nfold.hosts.managers.by_hand import ByHand
from nfold.hosts.managers.child_agents import ChildAgent

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def test_who_waits_for_people_lists_few_places(tmp_path):
    by_hand = ByHand(tmp_path / "token", lambda text: None)
    by_hand.start(Call(addresses=(("127.0.0.1", 1),), token="a" * 64, interpreter="python"), 10**20)
    assert [state.stage for state in by_hand.states()] == ["waiting"] * 8


def test_nothing_of_a_child_that_has_ended_is_kept_but_its_last_lines():
    """A run may see hundreds; each pipe would be a descriptor and a buffer of 8 KiB until the run ends."""
    program = "import sys; print(sys.stdin.readline().strip()); print('b'); print('c'); sys.exit(3)"
    child = ChildAgent(0, "pi-1", [sys.executable, "-c", program], "a", dict(os.environ))
    child._reader.join(30.0)
    assert (child._process.stdin, child._process.stdout) == (None, None)
    child._process.wait(30.0)
    assert child.last_lines() == ["b", "c"]
    assert child.state.reason == "exited with code 3"
    child.end()
