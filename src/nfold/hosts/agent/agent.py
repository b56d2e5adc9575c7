"""One agent: `nfold agent`, started on a host by whoever owns it. Never by hand, but for `nfold join`.

    coordinator            agent
                   <--     agent        place, name and facts of the host, once the token is proven
    program        -->     holds        the script's folder is here already
                   <--     wants        it is not: `archive` brings it
                   <--     making       it makes the environment of a lock file, and holds the program only then
    archive        -->     holds
    start          -->                  starts the process of a member, which dials the coordinator by itself
                   <--     ended        how a member ended
                   <--     output       what members print
    hold           -->                  waits that long for another coordinator when this one is gone, with its members
    listen         -->     listening    opens a port, as a rank would
    connect        -->     connected    to the other agents
    probe          -->     probed       how fast bytes move to another one
    release        -->                  ends a member that has left the job, and all that it started
    stop           -->     bye          ends all members, and the agent with them
                   <--     failed       why it cannot do what it was told
                   <--     leaving      it was told to end by its host, and does so, or, where the job can go on without
                                        it, waits for `stop`

When the coordinator is gone, so are the members, and the agent, unless it was told to hold: then it dials until another
one lets it in, and says in its hello which members it has. It imports nothing heavy.
"""

import contextlib
import math
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfold.core import codec
from nfold.errors import ClusterError, TransportError
from nfold.hosts.agent.holding import Holding
from nfold.hosts.agent.meeting import Meeting
from nfold.hosts.host_facts import facts_of_this_host
from nfold.hosts.program_files.lock_file import LockFile
from nfold.hosts.program_files.unpacked import ProgramCache
from nfold.hosts.program_files.virtual_environment import EnvironmentMaker
from nfold.launch.local_launcher import Begin, LocalLauncher
from nfold.launch.mpi_process import LEAVE_S, MpiProcess
from nfold.launch.rank_command import rank_command, template_command
from nfold.launch.stopping import hearing
from nfold.launch.template import Template
from nfold.machine.user_folders import cache_folder
from nfold.runtime.control.channel import ChannelClosed, Message, SocketChannel, connect
from nfold.runtime.control.returning_channel import DIAL_AGAIN_S
from nfold.runtime.rank.heartbeat import Heartbeat
from nfold.transport.connecting.listener import Address
from nfold.transport.connecting.token_proof import AGENT

EXIT_DONE, EXIT_LOST, EXIT_REFUSED = 0, 1, 2
DIAL_S = 10.0
"""For each address of the coordinator."""
_LONG_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """What an agent was started with."""

    addresses: tuple[Address, ...]
    """Of the coordinator, to be tried in turn."""
    token: str
    place: int | None = None
    """Number of what its manager was asked for; None: it came by itself."""
    name: str = ""
    """Of the host, as the user calls it; empty: its own."""
    most_cores: float = math.inf
    """That were granted, where nothing on the host knows it."""
    most_memory_bytes: float = math.inf
    while_input: bool = False
    """Its standard input stays open as long as it is wanted."""


class Agent:
    """Does what the coordinator says, from the hello to the end."""

    def __init__(
        self, channel: SocketChannel, address: Address, settings: AgentSettings, mpi: MpiProcess | None = None
    ) -> None:
        """Args:
        channel: to the coordinator.
        address: of the coordinator, as it is reached from here.
        settings: what the agent was started with.
        mpi: becomes the only member here, where ranks talk through MPI; its owner closes it.
        """
        self._channel, self._address, self._settings = channel, address, settings
        self._programs = ProgramCache(_cache_folder() / "programs")
        self._environments = EnvironmentMaker(_cache_folder() / "environments")
        self._wanted: Message = {}
        self._is_leaving = False
        self._mpi = mpi
        self._holding = Holding(lambda: connect(*address, settings.token, AGENT, DIAL_AGAIN_S))
        self._members: dict[int, threading.Thread] = {}
        """Those that run, and who waits for their end."""
        self._template: Template | None = None
        self._launcher: LocalLauncher | None = None
        self._meeting: Meeting | None = None

    def run(self) -> int:
        """Obey until told to stop; return the exit code. Nothing that it started is left."""
        try:
            while (code := self._serve()) is None:
                self._channel.close()  # so that nothing seems to be heard there
                channel = None if self._is_leaving else self._holding.another()
                if channel is None:
                    return EXIT_LOST
                self._channel = channel
            return code
        finally:
            self._end_members(0.0)
            if self._meeting is not None:
                self._meeting.close()
            self._environments.close()
            self._channel.close()

    def _serve(self) -> int | None:
        """Obey one coordinator; return the exit code, None where its connection has ended."""
        settings = self._settings
        facts = facts_of_this_host(sys.executable, settings.most_cores, settings.most_memory_bytes)
        told: Message = {"place": settings.place, "name": settings.name, "facts": codec.encode(facts)}
        told |= {"returns": self._holding.has_lost, "members": sorted(self._members)}
        try:
            self._send("agent", **told)
            Heartbeat(self._channel)  # not before: who listens waits for the facts first
            while True:
                order, blob = self._channel.receive()
                self._holding.heard()
                if order["do"] == "refuse":
                    print(f"nfold agent: {order['why']}", file=sys.stderr, flush=True)
                    return EXIT_REFUSED
                if order["do"] == "stop":
                    self._end_members(order["grace_s"])
                    self._send("bye")
                    return EXIT_DONE
                self._obey(order, blob)
        except ChannelClosed:
            return None

    def lose_input(self) -> None:
        """End, since who started this agent has hung up, unless it is to hold: then its command may be gone alone."""
        if not self._holding.is_possible:
            self.leave(in_order=False)

    def leave(self, *, in_order: bool = True) -> None:
        """End, since the host wants it to; from a signal, so that it may interrupt anything.

        Args:
            in_order: wait the first time, where the job can go on without this host, until it does.
        """
        threading.Thread(target=self._leave, args=(in_order,), name="nfold-leaving", daemon=True).start()

    def _leave(self, in_order: bool) -> None:
        is_first, self._is_leaving = not self._is_leaving, True
        try:
            self._send("leaving", why=f"the agent on {facts_of_this_host('').host} was told to end")
        except ChannelClosed:
            is_first = False
        if is_first and in_order and self._wanted.get("leaves_in_order"):
            print("nfold agent: leaving after the step under way; a second time: at once", file=sys.stderr, flush=True)
        else:
            self._holding.end()
            self._channel.close()  # ends `run`, which ends the members

    def _obey(self, order: Message, blob: bytes) -> None:
        try:
            match order["do"]:
                case "program":
                    self._take_program(order)
                case "archive":
                    self._begin(self._programs.unpack(blob, self._wanted["digest"]))
                case "start":
                    self._start(order["member"])
                case "release":
                    self._the_launcher.release(order["member"])
                case "hold":
                    self._holding.allow(order["for_s"], order["resume"])
                case "listen":
                    self._meeting = Meeting(order["place"], self._channel.local_host, self._settings.token)
                    self._send("listening", address=self._meeting.address)
                case "connect":
                    self._the_meeting.connect({place: (host, port) for place, host, port in order["addresses"]})
                    self._send("connected")
                case "probe":
                    found = self._the_meeting.probe(order["peer"], measures=order["measures"])
                    self._send("probed", found=codec.encode(found) if found else None)
                case other:
                    raise ClusterError(f"the coordinator gave the order {other!r}, which this agent does not know")
        except (ClusterError, TransportError, OSError) as error:
            self._send("failed", why=str(error))

    def _take_program(self, order: Message) -> None:
        """Take a job's program. Of one that another coordinator has brought, members end; what starts them may stay."""
        before, self._wanted = self._wanted, order
        if self._launcher is not None and before == order:
            for member in sorted(self._members):
                self._launcher.release(member)
            self._send("holds")
            return
        self._end_members(0.0)
        self._launcher = self._template = None
        found = self._programs.find(order["digest"])
        if found is None:
            self._send("wants")
        else:
            self._begin(found)

    def _begin(self, folder: Path) -> None:
        """Be ready to start members of the program, as soon as its environment is there."""
        if self._wanted["lock"] is None:
            self._hold(folder, sys.executable)
        else:
            threading.Thread(target=self._make, args=(folder,), name="nfold-environment", daemon=True).start()

    def _make(self, folder: Path) -> None:
        try:
            lock = codec.decode(LockFile, self._wanted["lock"])
            self._hold(folder, self._environments.python_of(lock, lambda: self._send("making")))
        except ChannelClosed:
            return  # nobody is left to tell
        except Exception as error:  # of any kind: the job would wait for this host
            is_told = isinstance(error, (ClusterError, OSError))
            with contextlib.suppress(ChannelClosed):
                self._send("failed", why=str(error) if is_told else f"its environment cannot be made: {error!r}")

    def _hold(self, folder: Path, interpreter: str) -> None:
        script = folder / self._wanted["script"]
        command = [*rank_command(script, self._wanted["function"], interpreter), *self._held_for()]
        begin, printed = self._ways_to_begin(script, interpreter)
        self._launcher = LocalLauncher(
            command, None, relay=self._relay, folder=folder, begin=begin, printed_for_all=printed
        )
        self._send("holds")

    def _held_for(self) -> list[str]:
        """What tells a rank how long to wait for another coordinator."""
        hold_s = self._wanted["hold_s"]
        return ["--hold-for", str(hold_s)] if hold_s else []

    def _ways_to_begin(self, script: Path, interpreter: str) -> tuple[Begin, int | None]:
        """Return what starts a member, in MPI or as a fork, and what is printed for all."""
        if self._mpi is not None:
            return self._mpi.begin, None
        self._template = Template(template_command(script, interpreter))
        return self._template.begin, self._template.printed

    def _start(self, member: int) -> None:
        """Start a member. By the main thread: the kernel ends a member with the thread that started it."""
        try:
            self._the_launcher.start(member, *self._address, self._settings.token)
        except OSError as error:
            self._send("ended", member=member, how=f"could not be started: {error.strerror}")
            return
        watched = (member, self._channel)
        watch = threading.Thread(target=self._watch, args=watched, name=f"nfold-watch-{member}", daemon=True)
        self._members[member] = watch
        watch.start()

    def _watch(self, member: int, channel: SocketChannel) -> None:
        """Tell the coordinator that had a member started how it ended: for another one its number means others."""
        while (how := self._the_launcher.ended(member, _LONG_S)) is None:
            pass
        if self._members.get(member) is threading.current_thread():
            del self._members[member]
        with contextlib.suppress(ChannelClosed):  # nobody is left to tell
            channel.send({"is": "ended", "member": member, "how": how})

    def _relay(self, member: int | None, printed: bytes) -> None:
        try:
            self._channel.send({"is": "output", "member": member}, printed)
        except ChannelClosed:
            return

    def _end_members(self, grace_s: float) -> None:
        """End members, after a while in which those that are done leave by themselves, and MPI with them."""
        if self._launcher is not None:
            self._launcher.stop(max(grace_s, LEAVE_S) if grace_s and self._mpi is not None else grace_s)
        if self._template is not None:
            self._template.close()

    def _send(self, what: str, **told: Any) -> None:
        self._channel.send({"is": what, **told})

    @property
    def _the_meeting(self) -> Meeting:
        assert self._meeting is not None, "listen comes first"
        return self._meeting

    @property
    def _the_launcher(self) -> LocalLauncher:
        assert self._launcher is not None, "the program comes first"
        return self._launcher


def serve(settings: AgentSettings, mpi: MpiProcess | None = None) -> int:
    """Be an agent, until the job is over; return the exit code.

    Args:
        settings: what it was started with.
        mpi: see `Agent`.

    Raises:
        ClusterError: none of the addresses leads to the job.
    """
    channel, address = _dial(settings)
    agent = Agent(channel, address, settings, mpi)
    if settings.while_input:
        threading.Thread(target=_leave_with_input, args=(agent,), name="nfold-input", daemon=True).start()
    with hearing(agent.leave, agent.leave):
        return agent.run()


def _leave_with_input(agent: Agent) -> None:
    """Who started the agent hangs up to end it: over ssh no signal would come."""
    sys.stdin.read()
    agent.lose_input()


def _dial(settings: AgentSettings) -> tuple[SocketChannel, Address]:
    """Reach the coordinator: the token proves that it is the right one."""
    errors = []
    for address in dict.fromkeys((*settings.addresses, *_seen_by_ssh(settings.addresses))):
        try:
            return connect(*address, settings.token, AGENT, DIAL_S), address
        except ChannelClosed as error:
            errors.append(str(error))
    raise ClusterError("; ".join(errors) + ". Is the job still there, and no firewall between?")


def _seen_by_ssh(addresses: tuple[Address, ...]) -> list[Address]:
    """The address from which ssh came, which may be the coordinator's as seen from here."""
    client = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return [(client, addresses[0][1])] if client and addresses else []


def _cache_folder() -> Path:
    folder = cache_folder()
    if folder is None:
        raise ClusterError("this host has no cache folder for programs: set HOME or XDG_CACHE_HOME to a full path")
    return folder
