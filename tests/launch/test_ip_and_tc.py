"""What `ip` and `tc` say is what the user reads; privileges are named only where they are the reason."""

import pytest

from nfold.errors import ClusterError
from nfold.launch.emulation.ip_and_tc import perform
from nfold.launch.emulation.namespaces import Batch

BATCH = Batch(tool="ip", namespace=None, lines=("netns add a", "netns add b"))


@pytest.fixture
def tool(tmp_path, monkeypatch):
    def make(script):
        (tmp_path / "ip").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "ip").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return make


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'Error: Specified qdisc kind is unknown.' >&2; exit 1",
            "ip -batch - failed: Error: Specified qdisc kind is unknown.",
        ),
        ("exit 1", "ip -batch - failed: it said nothing, at 'netns add a' and 1 more."),
    ],
)
def test_a_failure_says_what_the_tool_said_and_no_more(tool, script, message):
    tool(script)
    with pytest.raises(ClusterError) as caught:
        perform(BATCH)
    assert str(caught.value) == message


def test_what_is_forbidden_is_a_matter_of_privileges(tool):
    tool("echo 'RTNETLINK answers: Operation not permitted' >&2; exit 2")
    with pytest.raises(ClusterError, match=r"Operation not permitted\. Emulating .* in a container, use --privileged"):
        perform(BATCH)


def test_a_tool_that_hangs_is_told_of(tool):
    tool("exec tail -f /dev/null")
    with pytest.raises(ClusterError, match=r"^ip -batch - has not ended within 0\.1 s, at 'netns add a' and 1 more\. "):
        perform(BATCH, timeout_s=0.1)


def test_a_tool_that_has_gone_is_told_of(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterError, match=r"^ip -batch - cannot be started: No such file or directory$"):
        perform(BATCH)
