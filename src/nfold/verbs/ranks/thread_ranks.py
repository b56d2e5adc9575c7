"""Ranks as threads of this process."""

import contextlib
import os
from collections.abc import Iterator

import torch

from nfold.program import Program, ProgramSource
from nfold.runtime.control.channel import QueueChannel
from nfold.runtime.control.orders import Orders
from nfold.runtime.data.loaders import LoaderPool
from nfold.runtime.rank.worker import Worker
from nfold.transport.implementations.in_memory import MemoryNetwork
from nfold.verbs.ranks.toolbox import PACE_IN_TURN_S, MemoryWiring, Toolbox


class ThreadRanks:
    """The ranks of a job that are threads of this process, and what they share."""

    def __init__(self, source: ProgramSource | Program, world_size: int) -> None:
        """Load the program once for all, then leave each of the first ranks its share of the cores.

        Raises:
            ProgramError: it cannot be loaded; no thread was started.
        """
        self._script = source.path if isinstance(source, ProgramSource) else None
        self._program = source.load() if isinstance(source, ProgramSource) else source
        self._most_threads = torch.get_num_threads()
        torch.set_num_threads(min(self._most_threads, max(1, len(os.sched_getaffinity(0)) // world_size)))
        self._network = MemoryNetwork(0)

    def run(self, member: int, channel: QueueChannel) -> int:
        """Run one member, which may come at any time, and return its exit code."""
        self._network.join(member)
        worker = Worker(
            member,
            channel,
            Orders(channel, abandon=lambda: self._network.fail(member)),
            lambda: self._program,
            MemoryWiring(member, self._network),
            Toolbox(pace_s=PACE_IN_TURN_S),
            script=self._script,
            loader_pool=LoaderPool(None),
            owns_process=False,
            most_threads=lambda: self._most_threads,
        )
        return worker.run()

    def close(self) -> None:
        """End the network's threads."""
        self._network.close()


@contextlib.contextmanager
def threads_put_back() -> Iterator[None]:
    """Put torch's number of threads back at the end of a block."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
