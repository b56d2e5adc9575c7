"""What a process may use of its machine, from files as the kernel writes them."""

import os
from pathlib import Path

import pytest

from nfold.machine import limits


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
    assert limits.available_cores(write(tmp_path, files)) == (share or (allowed, 0.0))


def test_memory(tmp_path: Path) -> None:
    total = limits.available_memory(tmp_path)
    assert total > 1 << 20
    assert limits.available_memory(write(tmp_path, {"memory.max": "max\n"})) == total
    assert limits.available_memory(write(tmp_path, {"memory.max": "1000000\n"})) == 1_000_000
    limit = {"memory/memory.limit_in_bytes": "900000\n"}
    assert limits.available_memory(write(tmp_path, limit)) == 900_000


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
    assert limits.available_cores(write(tmp_path / "mount", files), tmp_path / "own") == (found, 0.01)


@pytest.mark.parametrize("path", ["memory/box/a/memory.limit_in_bytes", "memory/box/memory.limit_in_bytes"])
def test_memory_of_the_own_group(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"own": VERSION_1})
    mount = write(tmp_path / "mount", {path: "1000000", "memory/memory.limit_in_bytes": str(1 << 62)})
    assert limits.available_memory(mount, tmp_path / "own") == 1_000_000


def test_what_a_group_has_left_counts_files_that_are_given_up(tmp_path: Path) -> None:
    assert limits.unused_memory(tmp_path) is None
    unlimited = {"memory.max": "max\n", "memory.current": "600\n"}
    assert limits.unused_memory(write(tmp_path, unlimited)) is None
    limited = {"memory.max": "1000\n", "memory.stat": "anon 350\ninactive_file 200\n"}
    assert limits.unused_memory(write(tmp_path, limited)) == 600
    version_1 = {
        "memory/memory.limit_in_bytes": "900\n",
        "memory/memory.usage_in_bytes": "700\n",
        "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
    }
    assert limits.unused_memory(write(tmp_path, version_1)) == 300
    assert limits.unused_memory(write(tmp_path, {"memory/memory.usage_in_bytes": "2000\n"})) == 0
