"""Agents that this machine has started itself: how their processes begin and end."""

import os
import sys

import pytest

from nfold.hosts.managers.child_agents import ChildAgent

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


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
