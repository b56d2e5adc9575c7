"""Ranks as threads of this process."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

import torch

from nfold.program import Program, ProgramSource
from nfold.runtime.channel import QueueChannel
from nfold.runtime.orders import Orders
from nfold.runtime.worker import Worker
from nfold.transport.memory import MemoryNetwork
from nfold.verbs.toolbox import MemoryWiring, Toolbox


def thread_body(
    source: ProgramSource | Program, far_ends: Mapping[int, QueueChannel], world_size: int
) -> Callable[[int], int]:
    """Return what one thread runs for its rank."""
    network = MemoryNetwork(world_size)
    program = source.load() if isinstance(source, ProgramSource) else source

    def run(rank: int) -> int:
        channel = far_ends[rank]
        worker = Worker(
            rank,
            channel,
            Orders(channel, abandon=lambda: network.fail(rank)),
            lambda: program,
            MemoryWiring(lambda: network),
            Toolbox(),
            script=source.path if isinstance(source, ProgramSource) else None,
            owns_process=False,
        )
        return worker.run()

    return run


@contextlib.contextmanager
def shared_cores(world_size: int) -> Iterator[None]:
    """Give each thread its share of the cores: torch's own threads would otherwise fight over them."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world_size))
    try:
        yield
    finally:
        torch.set_num_threads(before)
