"""Ranks as threads of this process."""

from collections.abc import Callable, Mapping

from nfold.program import Program, ProgramSource
from nfold.runtime.channel import QueueChannel
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
            lambda: program,
            MemoryWiring(lambda: network),
            Toolbox(),
            script=source.path if isinstance(source, ProgramSource) else None,
            abandon=lambda: network.fail(rank),
            owns_process=False,
        )
        return worker.run()

    return run
