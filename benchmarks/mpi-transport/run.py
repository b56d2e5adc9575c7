"""Times an all-reduce in a ring over TCP and through MPI, and MPI's own, on the same buffers of local processes."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nfold.transport.connecting.listener import Listener
from nfold.transport.implementations.mpi_transport import MpiConnections
from nfold.transport.implementations.tcp import TcpConnections
from nfold.transport.links.mpi_loop import MpiLoop, Peer, load_mpi

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

SIZES = [4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]
RANKS = [2, 3, 4]
TOKEN, TIMEOUT_S, MARK = "a benchmark", 60.0, "result: "
LEAST_S = 0.5
"""Spent on each way and size at least, but for the most repeats."""
MOST_REPEATS = 200
Reduce = Callable[[np.ndarray], None]


class Ring:
    """The all-reduce of a ring, as a schedule writes it out: each part goes round, and is summed on its way."""

    def __init__(self, transport: Any) -> None:
        self._transport, self._next_tag = transport, 0

    def reduce(self, data: np.ndarray) -> None:
        """Sum over all ranks, in place."""
        rank, size = self._transport.rank, self._transport.world_size
        parts = np.array_split(data, size)
        for turn in range(size - 1):
            mine, theirs = parts[(rank - turn) % size], parts[(rank - turn - 1) % size]
            theirs += self._pass_on(mine, np.empty_like(theirs))
        for turn in range(size - 1):
            self._pass_on(parts[(rank + 1 - turn) % size], parts[(rank - turn) % size])

    def _pass_on(self, data: np.ndarray, into: np.ndarray) -> np.ndarray:
        """Send to the next rank while the one before sends to us."""
        rank, size, self._next_tag = self._transport.rank, self._transport.world_size, self._next_tag + 1
        sent, come = threading.Event(), threading.Event()
        self._transport.receive((rank - 1) % size, self._next_tag, memoryview(into), come.set)
        self._transport.send((rank + 1) % size, self._next_tag, memoryview(data), sent.set)
        if not (come.wait(TIMEOUT_S) and sent.wait(TIMEOUT_S)):
            raise SystemExit(f"nothing came within {TIMEOUT_S:g} s")
        return into


def be_rank(sizes: list[int]) -> None:
    """Be one of the processes that MPI has started: reduce in all ways in turn; rank 0 prints seconds."""
    mpi = load_mpi()
    loop = MpiLoop("nfold-mpi", mpi)
    through_mpi = MpiConnections(loop.rank, loop)
    through_mpi.meet({rank: Peer(rank) for rank in range(loop.size)})
    over_tcp = TcpConnections(loop.rank, TOKEN)
    with Listener("127.0.0.1") as listener:
        addresses = in_loop(loop, lambda: mpi.COMM_WORLD.allgather(listener.address))
        over_tcp.meet(listener, dict(enumerate(addresses)), TIMEOUT_S)
    members = range(loop.size)
    ways: dict[str, Reduce] = {
        "ring over TCP": Ring(over_tcp.begin(0, members)).reduce,
        "ring through MPI": Ring(through_mpi.begin(0, members)).reduce,
        "MPI's own": lambda data: in_loop(loop, lambda: mpi.COMM_WORLD.Allreduce(mpi.IN_PLACE, data)),
    }
    found = {size: timed(loop, mpi, ways, size) for size in sizes}
    if loop.rank == 0:
        print(MARK + json.dumps(found), flush=True)
    over_tcp.close()
    through_mpi.close()
    loop.leave()


def in_loop(loop: MpiLoop, act: Callable[[], Any]) -> Any:
    """Do something in the thread that speaks MPI."""
    done: list[Any] = []
    over = threading.Event()
    loop.call(lambda: (done.append(act()), over.set()))
    over.wait()
    return done[0]


def timed(loop: MpiLoop, mpi: Any, ways: dict[str, Reduce], size: int) -> dict[str, float]:
    """Return the median seconds of each way for one size; ways take turns."""
    data, seconds = np.empty(size // 4, np.float32), {way: [] for way in ways}
    goes_on = True
    while goes_on:
        for way, reduce in ways.items():
            data[:] = loop.rank + 1
            in_loop(loop, mpi.COMM_WORLD.Barrier)
            begun_s = time.perf_counter()
            reduce(data)
            seconds[way].append(time.perf_counter() - begun_s)
            if not (data == loop.size * (loop.size + 1) / 2).all():
                raise SystemExit(f"{way}: wrong sums")
        spent = min(sum(each) for each in seconds.values())
        own = len(seconds["MPI's own"]) < MOST_REPEATS and spent < LEAST_S
        goes_on = in_loop(loop, lambda own=own: mpi.COMM_WORLD.bcast(own))
    return {way: statistics.median(each) for way, each in seconds.items()}


def measure(num_ranks: int, sizes: list[int]) -> dict[str, dict[str, float]]:
    """Return the seconds of each size and way."""
    own = [sys.executable, __file__, "--rank", "--sizes", ",".join(map(str, sizes))]
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(num_ranks), *own]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, env=os.environ | root, stdout=subprocess.PIPE, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith(MARK))
    found: dict[str, dict[str, float]] = json.loads(line.removeprefix(MARK))
    return found


def main() -> None:
    """Measure all numbers of ranks, print a table and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=SIZES)
    options.add_argument("--ranks", type=lambda text: [int(each) for each in text.split(",")], default=RANKS)
    options.add_argument("--rank", action="store_true", help="be one of the processes that MPI has started")
    chosen = options.parse_args()
    if chosen.rank:
        be_rank(chosen.sizes)
        return
    found = {num_ranks: measure(num_ranks, chosen.sizes) for num_ranks in chosen.ranks}
    for num_ranks, sizes in found.items():
        for size, ways in sizes.items():
            told = ", ".join(f"{way} {seconds * 1e3:.3f} ms" for way, seconds in ways.items())
            print(f"{num_ranks} ranks, {int(size) >> 10} KiB: {told}")
    write({"median_s": found}, __file__)


if __name__ == "__main__":
    main()
