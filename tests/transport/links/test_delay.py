"""Messages that are held back: how long, in which order, and what becomes of them when a line ends."""

import queue
import threading
import time

import pytest

from nfold.transport.links.delay import DelayLine

WAIT_S = 10.0


@pytest.fixture
def line():
    """Make lines whose acts and failures come out of queues; none of their threads is left after the test."""
    lines = []

    def make(delay_s, **more):
        failures = queue.SimpleQueue()
        lines.append(DelayLine(delay_s, "nfold-late-test", failures.put, **more))
        return lines[-1], failures

    yield make
    for each in lines:
        each.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "nfold-late-test"]


def test_everything_comes_as_late_as_it_was_asked_for_and_nobody_waits(line):
    late, _ = line(0.05)
    came = queue.SimpleQueue()
    handed_in_s = []
    for number in range(20):
        handed_in_s.append(time.monotonic())
        late.put(lambda number=number: came.put((number, time.monotonic())))
    assert handed_in_s[-1] - handed_in_s[0] < 0.05, "handing in does not wait for what was handed in before"
    found = [came.get(timeout=WAIT_S) for _ in range(20)]
    assert [number for number, _ in found] == list(range(20))
    for (_, came_s), put_s in zip(found, handed_in_s, strict=True):
        assert came_s - put_s >= 0.05


def test_nothing_comes_before_its_time(line):
    now = [0.0]
    late, _ = line(1.0, clock=lambda: now[0])
    came = threading.Event()
    late.put(came.set)
    now[0] = 0.999
    assert not came.wait(0.05)
    late.stop()


def test_what_an_act_raises_is_told_and_ends_the_line(line):
    late, failures = line(0.001)
    came = threading.Event()

    def fail():
        raise ValueError("the receiver is gone")

    late.put(fail)
    late.put(came.set)
    assert str(failures.get(timeout=WAIT_S)) == "the receiver is gone"
    late.close()
    assert not came.is_set()


def test_a_line_that_was_stopped_does_nothing_more(line):
    late, _ = line(0.02)
    came = threading.Event()
    late.put(came.set)
    late.close()
    assert not came.wait(0.05)


def test_a_line_may_be_closed_by_what_it_does(line):
    late, failures = line(0.001)
    closed = threading.Event()

    def close():
        late.close()
        closed.set()

    late.put(close)
    assert closed.wait(WAIT_S)
    assert failures.empty()
