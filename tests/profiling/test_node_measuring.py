"""A machine is described as what may really be used of it."""

import itertools
import socket
import time

import pytest

from nfold.core import codec
from nfold.core.cluster import Channel, Node
from nfold.machine.limits import available_cores
from nfold.profiling import node_measuring
from nfold.profiling.measure import Meter, timing


def test_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    monkeypatch.setattr(socket, "gethostbyname", None)
    local = Channel(latency_s=1e-5, bandwidth_bytes_per_s=1e9, origin="declared")
    node = node_measuring.this_node(local)
    assert codec.loads(Node, codec.dumps(node)) == node
    assert node.name == socket.gethostname()
    assert node.devices[0].kind == "cpu"
    assert (node.cores, node.quota_period_s) == available_cores()
    assert 1 <= len(node.crowding) <= max(1, node.cores)
    assert node.crowding[0] == 1.0
    assert list(node.crowding) == sorted(node.crowding)


def test_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "")
    assert node_measuring.node_name() == "localhost"


def test_timing() -> None:
    found = timing([3.0, 1.0, 2.0, 4.0, 5.0])
    assert (found.median_s, found.spread_s, found.repeats) == (3.0, 2.0, 5)
    assert timing([2.0]).spread_s == 0.0


@pytest.mark.parametrize(
    ("tick_s", "is_warm", "repeats"),
    [(0.0, False, 15), (1.0, False, 1), (0.05, False, 4), (0.0, True, 15), (1.0, True, 2), (0.05, True, 5)],
)
def test_repeats_stop_with_the_budget(tick_s: float, is_warm: bool, repeats: int) -> None:
    clock = itertools.count(0, 1)
    meter = Meter(clock=lambda: next(clock) * tick_s)
    assert len(meter.repeat(lambda: (meter.now(), 0.0), 0.5, is_warm=is_warm)) == repeats


def test_where_threads_have_less_than_a_core_their_processor_time_is_what_counts() -> None:
    wall = Meter(clock=lambda: 7.0)
    assert wall.for_cores(1.0) is wall
    fair = wall.for_cores(0.25)
    begin_s = time.process_time()
    first, second = fair.now(), fair.now()
    end_s = time.process_time()
    assert begin_s / 0.25 <= first <= second <= end_s / 0.25
