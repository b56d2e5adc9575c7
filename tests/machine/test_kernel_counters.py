"""What is read out of the kernel's texts, and what happened between two readings."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from nfold.machine import kernel_counters
from nfold.machine.kernel_counters import KernelCounters, sample_between
from nfold.machine.system_sampler import Kernel, SystemSampler, interface_of, shared_bytes_of_this_process
from nfold.transport.implementations.tcp import Listener, TcpConnections

TASK_STAT = (
    "3127 (a (name) 7) S 3062 3062 3009 0 -1 4194304 103 0 0 0 250 75 0 0 20 0 9 0 235384 3133440 412 "
    "18446744073709551615 94241070985216 94241071005097 140729106338480 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
)
NODE_STAT = "\n".join(
    (
        "cpu  1000 200 300 5000 60 7 8 90 0 0",
        "cpu0 500 100 150 2500 30 3 4 45 0 0",
        "intr 12345 0",
    )
)
NET_DEV = """Inter-|   Receive                                     |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1000 4 0 0 0 0 0 0 1000 4 0 0 0 0 0 0
  eth0:298564293    7811    0    0    0     0     0     0   447241    4442    0    0    0     0       0          0
eth0.7:       5       1    0    0    0     0      0     0        6       1    0    0    0     0       0          0
"""
STATUS = "Name:\tpython\nUmask:\t0022\nVmPeak:\t  999999 kB\nVmRSS:\t   12345 kB\nThreads:\t9\n"
IO = "rchar: 6976\nwchar: 1\nsyscr: 10\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 3\n"
VERSION_1 = "4:memory:/job\n2:cpu,cpuacct:/nfold/n0\n1:name=systemd:/\n0::/\n"
VERSION_2 = "0::/system.slice/nfold-n0.scope\n"


def test_a_thread_may_be_called_anything() -> None:
    assert kernel_counters.thread_cpu_s(TASK_STAT, 100) == pytest.approx(3.25)


def test_a_node_is_busy_or_robbed() -> None:
    busy_s, steal_s = kernel_counters.node_cpu_s(NODE_STAT, 100)
    assert busy_s == pytest.approx(15.15)
    assert steal_s == pytest.approx(0.9)


def test_the_quota_stands_with_the_group_or_at_the_mount() -> None:
    assert kernel_counters.throttling_files(VERSION_1) == [
        "/sys/fs/cgroup/cpu/nfold/n0/cpu.stat",
        "/sys/fs/cgroup/cpu/cpu.stat",
        "/sys/fs/cgroup/cpu.stat",
    ]
    assert kernel_counters.throttling_files(VERSION_2) == [
        "/sys/fs/cgroup/system.slice/nfold-n0.scope/cpu.stat",
        "/sys/fs/cgroup/cpu.stat",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n",
        "usage_usec 1\nnr_throttled 4\nthrottled_usec 2500000\n",
    ],
)
def test_both_versions_tell_how_long_a_group_was_throttled(text: str) -> None:
    assert kernel_counters.throttled_s(text) == pytest.approx(2.5)


def test_bytes_are_those_of_one_interface() -> None:
    assert kernel_counters.interface_bytes(NET_DEV, "eth0") == (447241, 298564293)
    assert kernel_counters.interface_bytes(NET_DEV, "lo") == (1000, 1000)
    assert kernel_counters.interface_bytes(NET_DEV, "eth1") == (0, 0)


def test_memory_and_disk() -> None:
    assert kernel_counters.resident_bytes(STATUS) == 12345 * 1024
    assert kernel_counters.disk_bytes(IO) == 12288


def test_a_machine_that_does_not_tell_counts_as_nothing() -> None:
    assert kernel_counters.thread_cpu_s("", 100) == 0
    assert kernel_counters.node_cpu_s("", 100) == (0, 0)
    assert kernel_counters.throttling_files("") == []
    assert kernel_counters.throttled_s("") == kernel_counters.resident_bytes("") == kernel_counters.disk_bytes("") == 0


BEFORE = KernelCounters(
    at_s=10.0,
    process_cpu_s=5.0,
    communication_cpu_s={1: 2.0, 2: 1.0},
    node_busy_s=100.0,
    node_steal_s=1.0,
    throttled_s=0.5,
    rss_bytes=50,
    sent_bytes=1000,
    received_bytes=2000,
    disk_bytes=30,
)
AFTER = KernelCounters(
    at_s=11.0,
    process_cpu_s=6.5,
    communication_cpu_s={1: 2.25, 3: 0.125},
    node_busy_s=101.75,
    node_steal_s=1.25,
    throttled_s=0.75,
    rss_bytes=60,
    sent_bytes=1500,
    received_bytes=2600,
    disk_bytes=34,
)


def test_a_sample_is_what_happened_between_two_readings() -> None:
    sample = sample_between(BEFORE, AFTER, 3, "n1", 8.0)
    assert (sample.rank, sample.node, sample.at_s, sample.span_s) == (3, "n1", 3.0, 1.0)
    assert (sample.communication_cpu_s, sample.compute_cpu_s) == (0.375, 1.125)
    assert (sample.neighbours_cpu_s, sample.steal_s, sample.throttled_s) == (0.25, 0.25, 0.25)
    assert (sample.rss_bytes, sample.sent_bytes, sample.received_bytes, sample.disk_bytes) == (60, 500, 600, 4)
    assert kernel_counters.SystemSample.from_row(sample.to_row()) == sample


def test_coarse_clocks_make_nothing_negative() -> None:
    sample = sample_between(BEFORE, replace(AFTER, communication_cpu_s={1: 9.0}, node_busy_s=100.5), 0, "", 0.0)
    assert sample.compute_cpu_s == sample.neighbours_cpu_s == 0


def test_a_short_run_has_one_sample_and_a_longer_one_more() -> None:
    readings = [BEFORE, AFTER, replace(AFTER, at_s=12.0), replace(AFTER, at_s=13.0)]
    third = threading.Event()

    def read() -> KernelCounters:
        if len(readings) == 2:
            third.set()
        return readings.pop(0) if len(readings) > 1 else readings[0]

    short = SystemSampler(0, "n0", iter([BEFORE, AFTER]).__next__, period_s=60.0)
    short.start()
    short.stop()
    short.stop()
    assert [sample.span_s for sample in short.take()] == [1.0]
    assert short.take() == []
    longer = SystemSampler(0, "n0", read, period_s=0.001)
    longer.start()
    assert third.wait(10)
    longer.stop()
    assert [sample.at_s for sample in longer.take()][:3] == [1.0, 2.0, 3.0]


def test_a_sampler_that_never_began_has_nothing_to_end() -> None:
    sampler = SystemSampler(0, "n0", iter([]).__next__)
    sampler.stop()
    assert sampler.take() == []


def test_this_process_computes_and_its_memory_counts() -> None:
    kernel = Kernel("127.0.0.1", iter([0.0, 1.0]).__next__)
    before = kernel.read()
    sum(range(2_000_000))
    sample = sample_between(before, kernel.read(), 0, "here", 0.0)
    assert sample.compute_cpu_s > 0
    assert sample.communication_cpu_s == 0
    assert sample.rss_bytes > 1 << 20


def test_what_loaders_do_is_the_ranks_own_and_no_neighbours() -> None:
    alone, with_one = (Kernel("", iter([0.0]).__next__, lambda each=each: each).read() for each in ((), (os.getpid(),)))
    assert with_one.process_cpu_s > 1.5 * alone.process_cpu_s
    assert with_one.rss_bytes > 1.5 * alone.rss_bytes


def test_threads_of_a_transport_are_told_from_others() -> None:
    """All of them: those that serve the sockets, and those that deliver late."""
    before = set(threading.enumerate())
    members = connected(delay_s=1e-6)
    ranks = [member.begin(0, (0, 1)) for member in members]
    try:
        sent = threading.Event()
        ranks[0].send(1, 1, memoryview(bytes(4 << 20)), sent.set)
        ranks[1].receive(0, 1, memoryview(bytearray(4 << 20)), lambda: None)
        assert sent.wait(10)
        own = {thread.native_id: thread.name for thread in set(threading.enumerate()) - before}
        reading = Kernel("", iter([0.0]).__next__).read()
    finally:
        for member in members:
            member.abort()
    assert sorted(own.values()) == ["nfold-io", "nfold-io", "nfold-late-0", "nfold-late-1"]
    assert own.keys() <= set(reading.communication_cpu_s)


def connected(delay_s: float) -> list[TcpConnections]:
    """Return two members with a connection that delivers late."""
    members = [TcpConnections(member, "a", delays_s={0: delay_s, 1: delay_s}) for member in (0, 1)]
    with Listener("127.0.0.1") as first, Listener("127.0.0.1") as second, ThreadPoolExecutor(2) as pool:
        listeners = [first, second]
        addresses = {0: first.address, 1: second.address}
        list(pool.map(lambda member: members[member].meet(listeners[member], addresses, 10.0), (0, 1)))
    return members


def test_the_interface_is_found_by_its_address() -> None:
    assert interface_of("127.0.0.1") == interface_of("") == "lo"
    assert interface_of("203.0.113.77") == ""


def test_what_other_processes_may_hold_too() -> None:
    status = "VmRSS:\t  700 kB\nRssAnon:\t  200 kB\nRssFile:\t  400 kB\nRssShmem:\t  100 kB\n"
    assert (kernel_counters.resident_bytes(status), kernel_counters.shared_resident_bytes(status)) == (
        700 << 10,
        500 << 10,
    )
    assert kernel_counters.shared_resident_bytes("VmRSS:\t  700 kB\n") == 0, "an old kernel does not tell"
    assert 0 < shared_bytes_of_this_process() < kernel_counters.resident_bytes(Path("/proc/self/status").read_text())
