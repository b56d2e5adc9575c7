"""The ranks of a job on hosts that are not this machine: who brings agents there, and which rank lives where."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nfold.core.cluster import Cluster, Node
from nfold.core.job import Grant
from nfold.core.text.cluster_file import LOCAL
from nfold.core.text.units import count, figure, size
from nfold.errors import NfoldError, ProgramError
from nfold.hosts.agent_launcher import AgentLauncher
from nfold.hosts.agent_pool import AgentPool
from nfold.hosts.host_agent import HostAgent, HostChanges
from nfold.hosts.lost_hosts import add_reasons
from nfold.hosts.manager import Call, Manager
from nfold.hosts.managers.by_hand import ByHand
from nfold.hosts.own_addresses import LOOPBACK, own_addresses
from nfold.hosts.program_files.archive import pack
from nfold.hosts.program_files.lock_file import LockFile, read_lock
from nfold.launch.mpi_process import LEAVE_S
from nfold.launch.output import Output
from nfold.machine.request_socket import answering
from nfold.program import Program, ProgramSource
from nfold.runtime.control.control_server import SocketControlServer, Tell
from nfold.runtime.control.events import HostGone, HostReady, Left, ReleaseWanted
from nfold.runtime.control.spool import Spools
from nfold.transport.connecting.token_file import token_file
from nfold.verbs.options.option_checks import Options
from nfold.verbs.options.target import read_listen
from nfold.verbs.ranks.find_manager import find_manager
from nfold.verbs.ranks.host_scaling import Scaling
from nfold.verbs.ranks.replacing import Replacing

if TYPE_CHECKING:
    import queue

    from nfold.runtime.control import events as ev

ANYWHERE = "0.0.0.0"
"""Hosts dial in at any address of this machine, and prove that they know the token."""
PROGRAM_S = 120.0
"""How long the program may take to every host."""
ENVIRONMENT_S = 3600.0
"""The same where hosts make an environment: torch alone may be 3 GB."""
_EXIT_WAIT_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteHosts:
    """Hosts with agents, and what a session needs to start ranks on them."""

    cluster: Cluster
    """As their agents told; links are not measured yet."""
    nodes: tuple[str, ...]
    """Host of each rank, dedicated servers last."""
    launcher: AgentLauncher
    pool: AgentPool
    control_server: SocketControlServer
    token: str
    grant: Grant | None
    """For how long they are there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComeHosts:
    """Hosts whose agents have connected."""

    pool: AgentPool
    agents: list[HostAgent]
    manager: Manager
    output: Output
    control_server: SocketControlServer
    call: Call
    """What agents need to find the job."""
    replacing: Replacing


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandSide:
    """What hosts need of the command that asks for them."""

    token: str
    """Of the job."""
    events: "queue.SimpleQueue[ev.Event]"
    """The coordinator's."""
    log: Path | None
    """Takes what members print."""
    spools: Spools | None
    """Take the files that members send."""
    say: Callable[[str], None]
    """Is given lines for the user, from any thread."""
    tell: Tell
    """Is given lines for the log, from any thread."""
    is_called_off: Callable[[], bool]
    """Whether the user wants no more."""
    back: tuple[str, ...] = ()
    """Hosts that have served another command of the run, and dial in by themselves."""


@contextlib.contextmanager
def come_hosts(
    options: Options,
    command: CommandSide,
) -> Iterator[ComeHosts]:
    """Bring the hosts that options ask for, and give them back in the end; nothing of the program is needed.

    Raises:
        ClusterError: a host cannot be had, or not used.
    """
    output, replacing = Output(command.log), Replacing(command.say)
    with contextlib.ExitStack() as ending:
        ending.callback(output.close)
        pool = AgentPool(
            output,
            command.say,
            lost=lambda member, how: command.events.put(Left(member, how)),
            torch_comes=options.env is not None,
            leave_s=LEAVE_S if options.transport == "mpi" else 0.0,
            hold_s=options.hold_s,
            changes=HostChanges(
                hosts=options.hosts,
                came=lambda agent: command.events.put(HostReady(node_of(agent), _came_by(agent), agent.launched_at)),
                leaves=lambda member, why: command.events.put(ReleaseWanted(member, why)),
                taken=replacing.taken,
                gone=lambda agent: command.events.put(HostGone(agent.name)),
            ),
        )
        manager = find_manager(options, token_file(), command.say, there=command.back)
        ending.callback(manager.close)
        ending.callback(pool.stop, 0.0)
        host, port = _where(options)
        control_server = SocketControlServer(
            host,
            port,
            command.token,
            command.events,
            lambda member: pool.ended(member, _EXIT_WAIT_S),
            tell=command.tell,
            spools=command.spools,
            agents=pool.take,
        )
        ending.callback(control_server.close)
        call = _call(options, host, control_server.port, command.token)
        if options.hosts is not None and options.on is not None and options.listen is not None:
            invitation = ByHand(token_file(), command.say)
            ending.callback(invitation.close)
            invitation.start(call, 0)
        if len(command.back) < options.num_hosts or options.on is None:
            manager.start(call, options.num_asked - len(command.back))
        agents = pool.wait(options.num_hosts, manager, float(options.hosts_within), command.is_called_off)
        try:
            yield ComeHosts(
                pool=pool, agents=agents, manager=manager, output=output, control_server=control_server, call=call,
                replacing=replacing,
            )  # fmt: skip
        except NfoldError as error:
            add_reasons(error, manager, pool.lost, threading.Event().wait)
            raise


@contextlib.contextmanager
def remote_hosts(
    source: ProgramSource | Program,
    options: Options,
    command: CommandSide,
) -> Iterator[RemoteHosts]:
    """Bring the hosts that options ask for, and give them back in the end.

    Args:
        source: of the program.
        options: of the job.
        command: that asks for them.

    Raises:
        ClusterError: a host cannot be had, or not used.
        ProgramError: the program cannot be sent.
    """
    archive = pack(_script(source).path, _lock(options))
    with come_hosts(options, command) as come, contextlib.ExitStack() as ending:
        within_s = PROGRAM_S if archive.lock is None else ENVIRONMENT_S
        come.pool.send_program(archive, _script(source).function, within_s, command.is_called_off)
        command.say(_told(come.agents, come.manager))
        if options.hosts is not None and command.log is not None:
            scaling = Scaling(options.hosts, come.pool, come.manager, come.call, by_hand=options.on is None)
            come.replacing.begin(scaling)
            ending.callback(come.replacing.close)
            ending.enter_context(answering(os.getpid(), os.path.realpath(command.log.parent), scaling.answer))
        homes = homes_of_ranks(come.agents, _slots(options, come.agents), options.workers + options.servers)
        yield RemoteHosts(
            cluster=cluster_of(come.agents),
            nodes=tuple(home.name for home in homes),
            launcher=AgentLauncher(come.pool, homes, come.output),
            pool=come.pool,
            control_server=come.control_server,
            token=command.token,
            grant=_grant(come.manager),
        )


def dry_run(source: ProgramSource | Program, options: Options, say: Callable[[str], None]) -> str:
    """Return what would be submitted to bring hosts; nothing is.

    Raises:
        ClusterError: there is nothing to submit it to.
        ProgramError: the program cannot be sent.
    """
    pack(_script(source).path, _lock(options))
    manager = find_manager(options, token_file(), say)
    try:
        host, port = _where(options)
        return manager.dry_run(_call(options, host, port, ""), options.num_asked)
    finally:
        manager.close()


def homes_of_ranks(agents: Sequence[HostAgent], slots: Sequence[int], num_ranks: int) -> list[HostAgent]:
    """Return the host of each rank: one for each host, in order, and again while a host has slots left; then anew.

    Args:
        agents: of the hosts.
        slots: ranks that each is meant for.
        num_ranks: that need one.
    """
    turns = [agent for turn in range(max(slots)) for agent, most in zip(agents, slots, strict=True) if turn < most]
    return [turns[rank % len(turns)] for rank in range(num_ranks)]


def cluster_of(agents: Sequence[HostAgent]) -> Cluster:
    """Return the machines as their agents describe them. Their speed and links are measured later."""
    return Cluster(nodes=tuple(map(node_of, agents)))


def node_of(agent: HostAgent) -> Node:
    """Return a host as its agent describes it."""
    return Node(
        name=agent.name,
        cores=agent.facts.cores,
        quota_period_s=agent.facts.quota_period_s,
        memory_bytes=agent.facts.memory_bytes,
        devices=agent.facts.devices,
        local=LOCAL,
    )


def _came_by(agent: HostAgent) -> str:
    if agent.num_tries:
        return "its rank was lost, and it was not"
    return "its place was granted" if agent.is_placed else "it joined by hand"


def _lock(options: Options) -> LockFile | None:
    return None if options.env is None else read_lock(Path(options.env))


def _script(source: ProgramSource | Program) -> ProgramSource:
    if isinstance(source, Program):
        raise ProgramError(
            "this program was made in Python and has no script that hosts could import. Write it as a function of a "
            "file."
        )
    return source


def _where(options: Options) -> tuple[str, int]:
    """The address to listen on."""
    if options.listen is not None:
        host, port = read_listen(options.listen)
        return host, port or options.port
    is_here = options.target is not None and options.target.kind == "local"
    return (LOOPBACK if is_here else ANYWHERE), options.port


def _call(options: Options, host: str, port: int, token: str) -> Call:
    hosts = own_addresses() if host == ANYWHERE else [host]
    return Call(
        addresses=tuple((each, port) for each in hosts),
        token=token,
        interpreter=options.python or sys.executable,
        in_mpi=options.transport == "mpi",
    )


def _slots(options: Options, agents: Sequence[HostAgent]) -> list[int]:
    """Ranks that each host is meant for: as its file says, one for each accelerator, or one."""
    listed = {number: host.slots for number, host in enumerate(options.listed_hosts)}
    return [listed.get(agent.place) or max(1, sum(device.count for device in agent.facts.devices)) for agent in agents]


def _grant(manager: Manager) -> Grant | None:
    return None if manager.most_time_s is None else Grant(by=manager.title, seconds=manager.most_time_s)


def _told(agents: Sequence[HostAgent], manager: Manager) -> str:
    hosts = ", ".join(
        f"{agent.name} ({figure(agent.facts.cores)} cores, {size(agent.facts.memory_bytes)})" for agent in agents
    )
    return f"{count(len(agents), 'host')} by {manager.title}: {hosts}"
