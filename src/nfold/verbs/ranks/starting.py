"""How a job's ranks start and how they reach it: as processes over TCP, if there is room, or as threads over queues."""

import contextlib
import queue
from pathlib import Path

from nfold.launch.launcher import Launcher
from nfold.launch.local_launcher import LocalLauncher
from nfold.launch.rank_command import rank_command, template_command
from nfold.launch.template import Template, shared_template, template_of_job
from nfold.launch.thread_launcher import ThreadLauncher
from nfold.machine.memory_check import check_cluster_memory, check_machine_memory
from nfold.program import Program, ProgramSource
from nfold.runtime.control import events as ev
from nfold.runtime.control.control_server import ControlServer, SocketControlServer, Tell, ThreadControlServer
from nfold.runtime.control.spool import Spools
from nfold.transport.connecting.job_token import new_token, tell_encryption
from nfold.verbs.options.forked import are_forked
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.emulated_ranks import EmulatedRanks
from nfold.verbs.ranks.remote_hosts import RemoteHosts

HOST = "127.0.0.1"
EXIT_WAIT_S = 1.0
"""How long to wait for a process to be gone after its connection is, to say how it ended."""

BYTES_PER_RANK = 350_000_000
"""What a process with torch in it takes before it has done anything."""

MPI_TRAFFIC = "note: ranks talk through MPI, which does not encrypt: who sees its network can read weights and data"

Source = ProgramSource | Program
Events = queue.SimpleQueue[ev.Event]


def check_room(source: Source, options: Options) -> None:
    """Refuse more ranks than memory can hold. Those that are threads of this process share its memory.

    Raises:
        ClusterError: with the numbers.
    """
    if _are_threads(source, options):
        return
    if options.target is not None:
        return  # what its hosts have is told by their agents, and planned with
    if options.emulated is not None:
        check_cluster_memory(options.emulated, BYTES_PER_RANK, options.member_nodes)
        return
    count = options.workers + options.servers
    check_machine_memory(f"{count} rank{'s' if count > 1 else ''}", count, BYTES_PER_RANK)


def forking(source: Source, options: Options) -> contextlib.AbstractContextManager[Template | None]:
    """Keep a process that a job's ranks are forked from, where they are processes of this machine itself."""
    if isinstance(source, Program) or not _are_forked(options):
        return contextlib.nullcontext()
    return template_of_job(template_command(source.path))


def forking_all(source: Source, options: Options) -> contextlib.AbstractContextManager[None]:
    """Keep the same one for all jobs of a block."""
    if isinstance(source, Program) or not _are_forked(options):
        return contextlib.nullcontext()
    return shared_template(template_command(source.path))


def _are_forked(options: Options) -> bool:
    return are_forked(debug=options.debug, emulate=options.emulated, on=options.on, listen=options.listen)


def own_threads(source: Source, options: Options) -> contextlib.AbstractContextManager[None]:
    """Give this process its own number of torch threads back after ranks that were threads of it."""
    if not _are_threads(source, options):
        return contextlib.nullcontext()
    from nfold.verbs.ranks.thread_ranks import threads_put_back

    return threads_put_back()


def token_for(source: Source, options: Options) -> str:
    """Return a new token for a job.

    Raises:
        ClusterError: its connections are to be encrypted, and no certificate can be made.
    """
    return new_token(encrypted=_is_encrypted(source, options))


def tell_traffic(source: Source, options: Options) -> str:
    """Say whether a job's traffic is encrypted; empty: it is not, and does not leave this machine."""
    if options.transport == "mpi":
        return MPI_TRAFFIC
    encrypted = _is_encrypted(source, options)
    return tell_encryption(encrypted=encrypted) if encrypted or options.target is not None else ""


def _is_encrypted(source: Source, options: Options) -> bool:
    """Threads have no connections."""
    return options.tls and not _are_threads(source, options)


def find_ways(
    source: Source,
    options: Options,
    world_size: int,
    *,
    emulated: EmulatedRanks | None,
    hosts: RemoteHosts | None,
    template: Template | None,
    log: Path | None,
    token: str,
    events: Events,
    tell: Tell,
    spools: Spools | None = None,
) -> tuple[Launcher, ControlServer]:
    """Return what starts ranks and where they arrive.

    Args:
        source: a program without a script can only be run by threads.
        options: of the run.
        world_size: ranks, dedicated servers included.
        emulated: where ranks live in an emulated cluster.
        hosts: where ranks live on other hosts; they have arrived.
        template: forks ranks that are processes of this machine; None: each is a program of its own.
        log: takes what ranks print.
        token: they prove that they know it.
        events: what they say is put there.
        tell: is given lines for the log, from any thread.
        spools: take the files that ranks send.
    """
    if hosts is not None:
        return hosts.launcher, hosts.control_server
    if isinstance(source, Program) or options.debug:
        return _threads(source, world_size, events, spools)
    command = rank_command(source.path, source.function)
    if emulated:
        launcher = LocalLauncher(command, log, place=emulated.place, left=emulated.left)
    elif template is not None:
        launcher = LocalLauncher(command, log, begin=template.begin, printed_for_all=template.printed)
    else:
        launcher = LocalLauncher(command, log)
    host = emulated.control_socket if emulated else HOST
    return launcher, SocketControlServer(
        host,
        options.port,
        token,
        events,
        lambda rank: launcher.ended(rank, EXIT_WAIT_S),
        tell=tell,
        spools=spools,
    )


def _are_threads(source: Source, options: Options) -> bool:
    """A program without a script can only be run by threads."""
    return options.debug or isinstance(source, Program)


def _threads(source: Source, world_size: int, events: Events, spools: Spools | None) -> tuple[Launcher, ControlServer]:
    from nfold.verbs.ranks.thread_ranks import ThreadRanks

    ranks = ThreadRanks(source, world_size)
    launcher = ThreadLauncher(lambda rank: ranks.run(rank, control_server.far_ends[rank]), finish=ranks.close)
    control_server = ThreadControlServer(events, lambda rank: launcher.ended(rank, EXIT_WAIT_S), spools)
    return launcher, control_server
