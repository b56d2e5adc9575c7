"""The shell of a job: what it started ends with it, whenever somebody wants it to end."""

import queue
import signal

import pytest

from nfold.runtime.session import Session


class Door:
    """Nobody comes."""

    host, port, channels = "127.0.0.1", 4000, {}
    closed = False

    def heard_s(self):
        return {}

    def close(self):
        self.closed = True


class Launcher:
    """Starts nothing, and is interrupted while it does."""

    def __init__(self, interrupted_at, by):
        self.started, self.stopped = [], []
        self._interrupted_at, self._by = interrupted_at, by

    def start(self, rank, host, port, token):
        self.started.append(rank)
        if rank == self._interrupted_at:
            signal.raise_signal(self._by)

    def ended(self, rank, timeout_s):
        return None

    def last_lines(self):
        return []

    def stop(self, grace_s):
        self.stopped.append(grace_s)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_more_ranks_are_started_once_it_is_told_to_end(by):
    door, launcher = Door(), Launcher(2, by)
    session = Session(None, launcher, door, queue.SimpleQueue(), world_size=400, token="t", log=lambda text: None)
    before = signal.getsignal(by)

    with pytest.raises(KeyboardInterrupt):
        session.__enter__()

    assert launcher.started == [0, 1, 2]
    assert launcher.stopped == [0.0]
    assert door.closed
    assert signal.getsignal(by) == before
