"""Describes this machine as a Node: cores and memory that it may really use, and how crowding slows a core down."""

import math
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import torch

from nfold.core.cluster import Channel, Device, Node
from nfold.machine.limits import available_cores, available_memory
from nfold.profiling.measure import Clock

_TASK_S = 0.003
_MOST_CORES = 16
_BUDGET_S = 0.4


def this_node(local: Channel, *, clock: Clock = time.perf_counter) -> Node:
    """Describe this machine. Less than 0.5 s, for measuring the crowding.

    Args:
        local: between two ranks here, measured or declared elsewhere.
        clock: gives seconds.
    """
    share, memory_bytes = available_cores(), available_memory()
    return Node(
        name=node_name(),
        cores=share.cores,
        quota_period_s=share.period_s,
        memory_bytes=memory_bytes,
        devices=_devices(memory_bytes),
        local=local,
        crowding=measure_crowding(max(1, math.floor(share.cores)), clock=clock),
    )


def node_name() -> str:
    """Return the host's own name, without asking any name server."""
    return socket.gethostname() or "localhost"


def measure_crowding(cores: int, *, clock: Clock = time.perf_counter) -> tuple[float, ...]:
    """Return how much longer one core's work takes while 1, 2, .. cores are busy; never less than with fewer.

    A core is kept busy by a thread that multiplies matrices which fit its own cache.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        work = _task(clock)
        counts = range(1, min(cores, _MOST_CORES) + 1)
        rounds = max(2, int(_BUDGET_S / (2 * _TASK_S * len(counts))))
        # The lower quartile: what other programs do meanwhile only ever adds time.
        seconds = [
            statistics.quantiles(_busy(work, count, min(rounds, 20), clock), n=4, method="inclusive")[0]
            for count in counts
        ]
    finally:
        torch.set_num_threads(threads)
    factors = [1.0]
    for found in seconds[1:]:
        factors.append(max(factors[-1], found / seconds[0]))
    return tuple(round(factor, 4) for factor in factors)


def _devices(memory_bytes: int) -> tuple[Device, ...]:
    devices = [Device(kind="cpu", count=1, memory_bytes=memory_bytes)]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        for name in dict.fromkeys(names):
            memory = torch.cuda.get_device_properties(names.index(name)).total_memory
            devices.append(Device(kind=name, count=names.count(name), memory_bytes=int(memory)))
    return tuple(devices)


def _task(clock: Clock) -> Callable[[], None]:
    """Return about 3 ms of one core's work."""
    matrix = torch.ones(256, 256)
    matrix @ matrix
    begin_s = clock()
    for _ in range(4):
        matrix @ matrix
    repeats = max(1, round(_TASK_S / max((clock() - begin_s) / 4, 1e-6)))

    def work() -> None:
        for _ in range(repeats):
            torch.mm(matrix, matrix)

    return work


def _busy(work: Callable[[], None], count: int, rounds: int, clock: Clock) -> Sequence[float]:
    """Let `count` threads work at once and return the seconds of every task of each."""
    seconds: list[float] = []
    start = threading.Barrier(count)

    def run() -> None:
        torch.set_num_threads(1)
        start.wait()
        for _ in range(rounds):
            begin_s = clock()
            work()
            seconds.append(clock() - begin_s)

    threads = [threading.Thread(target=run, name=f"nfold-crowd-{index}") for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds
