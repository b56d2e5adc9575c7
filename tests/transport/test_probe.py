"""What a probe finds out about a link, with known and with real ones."""

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nfold.errors import PeerLost
from nfold.transport.memory import MemoryNetwork
from nfold.transport.probe import probe_pair

Connect = Callable[[int], Any]


def probe(transports: list[Any], **options: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        echo = pool.submit(probe_pair, transports[1], 0, "echo", base_tag=1 << 40)
        channel = probe_pair(transports[0], 1, "measure", base_tag=1 << 40, **options)
        assert echo.result(10) is None
    return channel


def test_a_probe_measures_and_ends_soon(connect: Connect) -> None:
    start_s = time.perf_counter()
    channel = probe(connect(2).transports)
    assert time.perf_counter() - start_s < 3
    assert channel.origin == "measured"
    assert 0 < channel.latency_s < 0.1
    assert channel.bandwidth_bytes_per_s > 1e6
    assert 0 <= channel.cpu_s_per_byte < 1e-6
    assert 0 < channel.cpu_s_per_message < 0.1


@pytest.mark.parametrize(("tick_s", "most_bytes"), [(1e-6, 100e6), (10.0, 2e6)])
def test_a_slow_link_is_probed_with_less(tick_s: float, most_bytes: float) -> None:
    network, ticks = MemoryNetwork(2), itertools.count()
    transports = [network.transport(rank) for rank in range(2)]
    probe(transports, clock=lambda: next(ticks) * tick_s)
    assert transports[0].sent_bytes == transports[1].received_bytes < most_bytes
    network.close()


def test_latency_is_half_of_a_round_trip_by_the_given_clock() -> None:
    network, ticks = MemoryNetwork(2), itertools.count()
    channel = probe([network.transport(rank) for rank in range(2)], clock=lambda: next(ticks) * 1e-4)
    assert channel.latency_s == pytest.approx(0.5e-4)
    network.close()


def test_a_lost_peer_ends_the_probe(connect: Connect) -> None:
    world = connect(2)
    world.transports[1].abort()
    with pytest.raises(PeerLost, match="rank 0 lost rank 1"):
        probe_pair(world.transports[0], 1, "measure", base_tag=0)
