"""Signals that ask for an end are heard, by the innermost who listens."""

import signal
import threading

import pytest

from nfold.launch.launcher import STOP_SIGNALS
from nfold.launch.stopping import hearing


@pytest.mark.parametrize("which", STOP_SIGNALS)
def test_the_innermost_hears(which):
    heard, before = [], signal.getsignal(which)
    with hearing(lambda: heard.append("outer")):
        signal.raise_signal(which)
        with hearing(lambda: heard.append("inner")):
            signal.raise_signal(which)
        signal.raise_signal(which)
    assert heard == ["outer", "inner", "outer"]
    assert signal.getsignal(which) is before


def test_another_thread_changes_nothing():
    before, found = signal.getsignal(signal.SIGTERM), []

    def look():
        with hearing(lambda: None):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]
