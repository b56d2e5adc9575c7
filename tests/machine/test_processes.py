"""Which process is meant."""

import os
import subprocess
import sys

from nfold.machine.processes import started, started_here


def test_a_process_is_the_same_until_it_ends():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        first = started(process.pid)
        assert first is not None
        assert started(process.pid) == first
        assert started(os.getpid()) == started_here() != first, "it began later"
        process.communicate(b"\n")
    assert started(process.pid) is None
