"""The agents of a job, as its coordinator sees them: who has come, what each holds, how members on them ended."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from nfold.core import codec
from nfold.core.text.units import seconds
from nfold.errors import ClusterError, NfoldError, WorkerLost
from nfold.hosts.host_agent import (
    NO_CHANGES,
    HostAgent,
    HostChanges,
    dismiss,
    ended_early,
    give,
    make_room,
    place_of,
    program_order,
    reply_of,
    tell_late,
    tell_skew,
    tell_versions,
    tell_waiting,
    unique_name,
)
from nfold.hosts.host_facts import HostFacts, own_versions, why_no_name
from nfold.hosts.manager import Manager
from nfold.hosts.program_files.archive import Archive
from nfold.launch.output import Output
from nfold.runtime.control.channel import ALIVE, ChannelClosed, Message, SocketChannel

LOOK_S = 0.5
"""While hosts are waited for: how often their manager is asked."""
_LEAVING_S = 5.0
"""How long agents have to end beyond what members may take."""


class AgentPool:
    """Takes in agents as they come, and gives them orders."""

    def __init__(
        self,
        output: Output,
        say: Callable[[str], None],
        *,
        lost: Callable[[int, str], None] = lambda member, how: None,
        torch_comes: bool = False,
        leave_s: float = 0.0,
        hold_s: float = 0.0,
        changes: HostChanges = NO_CHANGES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        output: takes what members print.
        say: is given lines for the user, from any thread.
        lost: is told of each member whose agent is gone, and how; its own process may still be there.
        torch_comes: whether hosts get a torch of their own for the job, so that the one that they have does not matter.
        leave_s: how long members may take at least to leave, where they are given time to.
        hold_s: how long agents and members wait for another coordinator when this one is gone; see `hold`.
        changes: how hosts come and go.
        clock: gives seconds.
        """
        self._torch_comes, self._leave_s, self._hold_s = torch_comes, leave_s, hold_s
        self._hosts, self._changes = changes.hosts, changes
        self._output, self._say, self._lost, self._clock = output, say, lost, clock
        self._agents, self._homes, self._ends = dict[int, HostAgent](), dict[int, HostAgent](), dict[int, str]()
        self.lost: list[HostAgent] = []
        """Agents that went away before they were told to, the first one first."""
        self._error: NfoldError | None = None
        self._archive: Archive | None = None
        self._program: Message | None = None
        """The order that brings the program, once it is given."""
        self._holding: Message | None = None
        """The order to hold, once it is given."""
        self._first, self._ready, self._come = list[HostAgent](), deque[HostAgent](), set[int]()
        self._changed = threading.Condition()
        self._is_closed = self._is_complete = False

    # Coming

    def take(self, channel: SocketChannel, who: str) -> None:
        """Take in an agent that knows the token, and hear it until its connection ends. By a thread of its own."""
        try:
            hello, _ = channel.receive()
            agent = self._admit(hello, channel)
        except (ChannelClosed, NfoldError, KeyError, TypeError) as error:
            self._say(f"note: {who} said that it is an agent, and then no more: {error}")
            channel.close()
            return
        if agent is not None:
            self._listen(agent)

    def _admit(self, hello: Message, channel: SocketChannel) -> HostAgent | None:
        facts = codec.decode(HostFacts, hello["facts"])
        with self._changed:
            make_room(hello["place"], self._agents)
            name = hello["name"] or facts.host
            if why := why_no_name(name) or self._refusal(name, hello, facts):
                channel.send({"do": "refuse", "why": why})
                channel.close()
                self._changed.notify_all()
                return None
            place = place_of(hello, self._agents)
            name = unique_name(name, {agent.name for agent in (*self._agents.values(), *self.lost)})
            now = time.time()
            agent = self._agents[place] = HostAgent(
                place, name, facts, channel, channel.far_host, facts.time_s - now, launched_at=now - facts.age_s
            )
            agent.is_placed = hello["place"] is not None
            if skewed := tell_skew(agent):
                self._say(skewed)
            self._come |= {place} if agent.is_placed else set()
            for order in filter(None, (self._holding, self._program)):
                give(agent, order)
            self._changed.notify_all()
        return agent

    def _refusal(self, name: str, hello: Message, facts: HostFacts) -> str:
        """Why an agent is not let in; empty: it is."""
        if self._is_closed or (self._is_complete and self._hosts is None):
            return "the job has all the hosts that it asked for"
        if self._hosts is not None and len(self.here()) >= self._hosts.most:
            return f"the job has all the {self._hosts.most} hosts that --nodes {self._hosts} allows"
        there_already = None if hello.get("returns") else self._agents.get(hello["place"])
        if there_already is not None and not there_already.gone:
            return f"place {hello['place']} is filled by {there_already.name} already"
        own, there = own_versions(), facts.versions
        if there == own or (self._torch_comes and replace(there, torch=own.torch) == own):
            return ""
        why = tell_versions(name, there, own)
        if self._is_complete:
            self._say(f"note: {why} It is not let in; the others go on.")
        else:
            self._error = self._error or ClusterError(why)
        return why

    def wait(
        self, count_wanted: int, manager: Manager, within_s: float, is_called_off: Callable[[], bool]
    ) -> list[HostAgent]:
        """Wait until so many agents are there; return them in the order of their places.

        Args:
            count_wanted: how many.
            manager: that starts them; knows why one does not come.
            within_s: how long to wait.
            is_called_off: whether the user wants no more.

        Raises:
            ClusterError: one cannot come, may not come, or does not come in time.
            KeyboardInterrupt: it was called off.
        """
        deadline_s, told = self._clock() + within_s, ""
        while True:
            with self._changed:
                if self._error is not None:
                    raise self._error
                if len(self._agents) >= count_wanted and all(not agent.gone for agent in self._agents.values()):
                    self._is_complete = True
                    there = [self._agents[place] for place in sorted(self._agents)]
                    self._first = there if self._hosts is None else there[:count_wanted]
                    return self._first
                self._changed.wait(LOOK_S)
                here = frozenset(self._agents)
            if is_called_off():
                raise KeyboardInterrupt
            states = [state for state in manager.states() if state.place not in here]
            if (ended := next((state for state in states if state.stage == "ended"), None)) is not None:
                raise self._error or ended_early(manager, ended)  # it may have been refused, which says more
            told, before = tell_waiting(told, states, count_wanted - len(here), manager), told
            if told != before:
                self._say(told)
            if self._clock() > deadline_s:
                raise ClusterError(tell_late(manager, states, count_wanted, len(here), within_s))

    # The program

    def send_program(
        self, archive: Archive, function: str, within_s: float, is_called_off: Callable[[], bool] = lambda: False
    ) -> None:
        """Let every agent hold the program, and the environment that it needs; wait for the first ones.

        Args:
            archive: of the program.
            function: of its script.
            within_s: how long that may take.
            is_called_off: whether the user wants no more.

        Raises:
            ClusterError: one cannot, or not in time.
            KeyboardInterrupt: it was called off.
        """
        deadline_s = self._clock() + within_s
        with self._changed:
            self._archive = archive
            told = {"leaves_in_order": self._hosts is not None, "hold_s": self._hold_s}
            self._program = {**program_order(archive, function), **told}
            for agent in self._agents.values():
                give(agent, self._program)
        while self._clock() < deadline_s and not is_called_off():
            with self._changed:
                self._changed.wait_for(lambda: self._error is not None or not self._without_program, LOOK_S)
                if self._error is not None:
                    raise self._error
                if not self._without_program:
                    return
        if is_called_off():
            raise KeyboardInterrupt
        with self._changed:
            missing = ", ".join(self._without_program)
        raise ClusterError(f"the program did not reach {missing} within {seconds(within_s)}.")

    @property
    def _without_program(self) -> list[str]:
        return [agent.name for agent in self._first if not agent.holds_program]

    def hold(self, resume: str) -> None:
        """Let agents wait for another coordinator, if this one is lost; people are told to type `resume` then."""
        with self._changed:
            self._holding = {"do": "hold", "for_s": self._hold_s, "resume": resume}
            for agent in self._agents.values():
                give(agent, self._holding)

    # Meeting

    def ask(self, orders: Mapping[int, Message], within_s: float) -> dict[int, Message]:
        """Give orders to agents by place, all at once; return each one's reply.

        Raises:
            ClusterError: one is gone, says that it cannot, or does not answer in time.
        """
        for place, order in orders.items():
            give(self._agents[place], order)
        deadline_s = self._clock() + within_s
        return {place: reply_of(self._agents[place], deadline_s - self._clock(), within_s) for place in orders}

    # Members

    def start(self, member: int, agent: HostAgent) -> None:
        """Start a member on a host."""
        with self._changed:
            self._homes[member] = agent
        give(agent, {"do": "start", "member": member})

    def here(self) -> list[HostAgent]:
        """Return the agents that are there and stay, in the order in which they came."""
        with self._changed:
            every = self._agents.values()
            return [agent for agent in every if not (agent.gone or agent.is_leaving or agent.is_dismissed)]

    def places_come(self) -> frozenset[int]:
        """Return the places whose agents have come, whatever became of them."""
        with self._changed:
            return frozenset(self._come)

    def next_ready(self) -> HostAgent:
        """Return the first of the agents that came later, hold the program and were not returned yet.

        Raises:
            ClusterError: there is none, or it has gone since, or is about to.
        """
        with self._changed:
            if not self._ready:
                raise ClusterError("no host waits for a member: the job has one on each of its hosts")
            agent = self._ready.popleft()
            if agent.gone or agent.is_leaving or agent.is_dismissed:
                raise ClusterError(f"{agent.name} has gone, or leaves, before it had a member")
            return agent

    def ended(self, member: int, timeout_s: float) -> str | None:
        """Return how a member ended, or None while it runs; waits up to `timeout_s` for it to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._end_of(member) is not None, timeout_s)
            return self._end_of(member)

    def _end_of(self, member: int) -> str | None:
        home = self._homes.get(member)
        return self._ends.get(member) or (home.how_lost if home is not None else "was let go")

    def comes_again(self, member: int) -> bool:
        """Whether the host of a member that is lost would have another one, where hosts come and go."""
        with self._changed:
            home = self._homes.get(member)
            return home is not None and self._hosts is not None and home.may_try_again

    def release(self, member: int, *, is_lost: bool = False, why: str = "") -> None:
        """Let go of a member that has left the job; where hosts come and go, its host is free with the last one.

        A host that is there and has lost its member comes once more. One that is not let in is told why.
        """
        with self._changed:
            comes_again, home = is_lost and self.comes_again(member), self._homes.pop(member, None)
            is_free = home is not None and self._hosts is not None and home not in self._homes.values()
        if home is not None:
            give(home, {"do": "release", "member": member})
            if is_free and comes_again:
                home.tries_again()
                self._offer(home)
            elif is_free:
                dismiss(home, why)

    def _offer(self, agent: HostAgent) -> None:
        """Say that a host is there which has no member."""
        with self._changed:
            self._ready.append(agent)
            self._changes.came(agent)  # in the same order

    def call_back(self, agent: HostAgent, why: str) -> None:
        """Let an agent end, for a reason, once the run goes on without its members."""
        with self._changed:
            agent.is_leaving = True
            members = [member for member, home in self._homes.items() if home is agent]
        for member in members:
            self._changes.leaves(member, why)
        if not members:
            dismiss(agent)

    def stop(self, grace_s: float) -> None:
        """End all agents and what they have started. Safe to call again."""
        with self._changed:
            self._is_closed = True
            there = [agent for agent in self._agents.values() if not agent.gone]
        for agent in there:
            give(agent, {"do": "stop", "grace_s": grace_s})
        leave_s = max(grace_s, self._leave_s) if grace_s else 0.0
        with self._changed:
            self._changed.wait_for(lambda: all(agent.gone for agent in there), leave_s + _LEAVING_S)
        for agent in there:
            agent.channel.close()

    # Hearing

    def _listen(self, agent: HostAgent) -> None:
        told = how = ""
        try:
            while True:
                message, blob = agent.channel.receive()
                if message["is"] == "bye":
                    break
                if message["is"] == "leaving":
                    told = message["why"]
                self._hear(agent, message, blob)
        except (KeyError, TypeError) as error:
            how = f"its agent said something that no agent says ({error!r})"
        except ChannelClosed as error:
            how = "" if "closed" in str(error) else f"its agent's connection broke ({error})"
        agent.hang_up()
        with self._changed:
            agent.gone = told or how or "its agent closed the connection"
            is_expected = self._is_closed or agent.is_dismissed
            if (not self._is_complete or agent.is_dismissed) and self._agents.get(agent.place) is agent:
                del self._agents[agent.place]
            lost = [] if is_expected else [member for member, home in self._homes.items() if home is agent]
            agent.is_taken = not self._is_closed and (agent.is_taken or not is_expected)
            self.lost += [] if is_expected else [agent]
            self._changed.notify_all()
        for member in lost:
            self._lost(member, self.ended(member, 0.0) or agent.gone)
        if agent.is_taken:
            self._changes.taken(agent)
        self._changes.gone(agent)

    def _hear(self, agent: HostAgent, message: Message, blob: bytes) -> None:
        match message["is"]:
            case "output":
                self._output.add(message["member"], blob, agent.name)
            case "wants":
                assert self._archive is not None, "it was told of a program"
                agent.channel.send({"do": "archive"}, self._archive.content)
            case "making":
                assert self._archive is not None, "it was told of a program"
                assert self._archive.lock is not None, "it was told of a lock file"
                self._say(f"{agent.name} makes the environment of {self._archive.lock.name}, which is kept there")
            case "holds":
                with self._changed:
                    agent.holds_program = True
                    if agent not in self._first:
                        self._offer(agent)
                    self._changed.notify_all()
            case "leaving" if self._hosts is not None:
                agent.is_taken |= not agent.is_leaving
                self.call_back(agent, message["why"])
            case "ended":
                with self._changed:
                    self._ends[message["member"]] = f"{message['how']} on {agent.name}"
                    self._changed.notify_all()
            case "failed" if self._hosts is not None and self._is_complete and agent not in self._first:
                self._say(f"note: {agent.name} cannot take part: {message['why']}. The others go on.")
                dismiss(agent)
            case "failed":
                with self._changed:
                    self._error = self._error or WorkerLost(f"{agent.name}: {message['why']}")
                    self._changed.notify_all()
                agent.replies.put(message)
            case "listening" | "connected" | "probed":
                agent.replies.put(message)
            case _ if message == ALIVE:
                pass
