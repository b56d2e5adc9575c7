"""How a job's ranks start and how they reach it: as processes over TCP, if there is room, or as threads over queues."""

import contextlib
import queue
import sys
from pathlib import Path

from nfold.launch.base import Launcher
from nfold.launch.local import LocalLauncher
from nfold.launch.memory import check_cluster_memory, check_machine_memory
from nfold.launch.threads import ThreadLauncher
from nfold.program import Program, ProgramSource
from nfold.runtime import events as ev
from nfold.runtime.door import Door, SocketDoor, Tell, ThreadDoor
from nfold.runtime.spool import Spools
from nfold.verbs.boxed import BoxedRanks
from nfold.verbs.options import Options

HOST = "127.0.0.1"
EXIT_WAIT_S = 1.0
"""How long to wait for a process to be gone after its connection is, to say how it ended."""

BYTES_PER_RANK = 350_000_000
"""What a process with torch in it takes before it has done anything."""

Source = ProgramSource | Program
Events = queue.SimpleQueue[ev.Event]


def check_room(source: Source, options: Options) -> None:
    """Refuse more ranks than memory can hold. Those that are threads of this process share its memory.

    Raises:
        ClusterError: with the numbers.
    """
    if _are_threads(source, options):
        return
    if options.emulated is not None:
        check_cluster_memory(options.emulated, BYTES_PER_RANK, options.nodes)
        return
    count = options.workers + options.servers
    check_machine_memory(f"{count} rank{'s' if count > 1 else ''}", count, BYTES_PER_RANK)


def own_threads(source: Source, options: Options) -> contextlib.AbstractContextManager[None]:
    """Give this process its threads back after ranks that lived in it."""
    if not _are_threads(source, options):
        return contextlib.nullcontext()
    from nfold.verbs.threads import threads_put_back

    return threads_put_back()


def find_ways(
    source: Source,
    options: Options,
    world_size: int,
    *,
    boxed: BoxedRanks | None,
    log: Path | None,
    token: str,
    events: Events,
    tell: Tell,
    spools: Spools | None = None,
) -> tuple[Launcher, Door]:
    """Return what starts ranks and where they arrive.

    Args:
        source: a program without a script can only be run by threads.
        options: of the run.
        world_size: ranks, dedicated servers included.
        boxed: where ranks live in an emulated cluster.
        log: takes what ranks print.
        token: they prove that they know it.
        events: what they say is put there.
        tell: is given lines for the log, from any thread.
        spools: take the files that ranks send.
    """
    if isinstance(source, Program) or options.debug:
        return _threads(source, world_size, events, spools)
    command = _rank_command(source)
    launcher = LocalLauncher(command, log, place=boxed.place) if boxed else LocalLauncher(command, log)
    host = boxed.door if boxed else HOST
    return launcher, SocketDoor(
        host,
        options.port,
        token,
        world_size,
        events,
        lambda rank: launcher.ended(rank, EXIT_WAIT_S),
        tell=tell,
        spools=spools,
    )


def _are_threads(source: Source, options: Options) -> bool:
    """A program without a script can only be run by threads."""
    return options.debug or isinstance(source, Program)


def _threads(source: Source, world_size: int, events: Events, spools: Spools | None) -> tuple[Launcher, Door]:
    from nfold.verbs.threads import ThreadRanks

    ranks = ThreadRanks(source, world_size)
    launcher = ThreadLauncher(lambda rank: ranks.run(rank, door.far_ends[rank]), finish=ranks.close)
    door = ThreadDoor(world_size, events, lambda rank: launcher.ended(rank, EXIT_WAIT_S), spools)
    return launcher, door


def _rank_command(source: ProgramSource) -> list[str]:
    """What starts a rank, but for its number and our address."""
    module = [sys.executable, "-P", "-m", "nfold.verbs.rank"]
    return [*module, "--script", str(source.path), "--function", source.function]
