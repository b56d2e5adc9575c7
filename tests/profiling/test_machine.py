"""A machine is described as what may really be used of it."""

import itertools
import os
import socket
import time
from pathlib import Path

import pytest

from nfold.core import codec
from nfold.core.cluster import Channel, Node
from nfold.profiling import machine
from nfold.profiling.measure import Meter, timing


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def allowed() -> float:
    return float(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "50000 100000\n"}, (0.5, 0.1)),
        ({"cpu/cpu.cfs_quota_us": "2500\n", "cpu/cpu.cfs_period_us": "10000\n"}, (0.25, 0.01)),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "99900000 100000\n"}, None),
    ],
    ids=["none", "unlimited", "half", "version-1", "version-1-unlimited", "more-than-there-is"],
)
def test_cores(tmp_path: Path, allowed: float, files: dict[str, str], share: tuple[float, float] | None) -> None:
    assert machine.available_cores(write(tmp_path, files)) == (share or (allowed, 0.0))


def test_memory(tmp_path: Path) -> None:
    total = machine.available_memory(tmp_path)
    assert total > 1 << 20
    assert machine.available_memory(write(tmp_path, {"memory.max": "max\n"})) == total
    assert machine.available_memory(write(tmp_path, {"memory.max": "1000000\n"})) == 1_000_000
    limit = {"memory/memory.limit_in_bytes": "900000\n"}
    assert machine.available_memory(write(tmp_path, limit)) == 900_000


VERSION_1 = "4:memory:/box/a\n1:cpu,cpuacct:/box/a\n0::/\n"


@pytest.mark.parametrize(
    ("own", "files", "found"),
    [
        (VERSION_1, {"cpu/box/a/cpu.cfs_quota_us": "2500", "cpu/box/a/cpu.cfs_period_us": "10000"}, 0.25),
        (VERSION_1, {"cpu/box/cpu.cfs_quota_us": "2500", "cpu/box/cpu.cfs_period_us": "10000"}, 0.25),
        ("0::/box/a\n", {"box/a/cpu.max": "5000 10000", "box/cpu.max": "8000 10000", "cpu.max": "max 10000"}, 0.5),
        ("0::/box/a\n", {"box/a/cpu.max": "max 10000", "box/cpu.max": "8000 10000"}, 0.8),
        ("0::/../outside\n", {"cpu.max": "3000 10000"}, 0.3),
    ],
    ids=["version-1", "version-1-above", "version-2", "version-2-above", "group-of-another-namespace"],
)
def test_cores_of_the_own_group(tmp_path: Path, own: str, files: dict[str, str], found: float) -> None:
    write(tmp_path, {"own": own})
    assert machine.available_cores(write(tmp_path / "mount", files), tmp_path / "own") == (found, 0.01)


@pytest.mark.parametrize("path", ["memory/box/a/memory.limit_in_bytes", "memory/box/memory.limit_in_bytes"])
def test_memory_of_the_own_group(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"own": VERSION_1})
    mount = write(tmp_path / "mount", {path: "1000000", "memory/memory.limit_in_bytes": str(1 << 62)})
    assert machine.available_memory(mount, tmp_path / "own") == 1_000_000


def test_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    monkeypatch.setattr(socket, "gethostbyname", None)
    local = Channel(latency_s=1e-5, bandwidth_bytes_per_s=1e9, origin="declared")
    node = machine.this_node(local)
    assert codec.loads(Node, codec.dumps(node)) == node
    assert node.name == socket.gethostname()
    assert node.devices[0].kind == "cpu"
    assert (node.cores, node.quota_period_s) == machine.available_cores()
    assert 1 <= len(node.crowding) <= max(1, node.cores)
    assert node.crowding[0] == 1.0
    assert list(node.crowding) == sorted(node.crowding)


def test_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "")
    assert machine.node_name() == "localhost"


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
