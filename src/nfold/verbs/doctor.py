"""doctor: looks at hosts as a run would use them, before one does."""

import contextlib
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nfold.core import codec
from nfold.core.members import Member, dial_order, find_apart, tell_apart
from nfold.core.text.units import count, figure, link_rate, seconds, size
from nfold.errors import ClusterError, PlanError
from nfold.hosts.agent_pool import AgentPool
from nfold.hosts.host_agent import SKEW_S, HostAgent
from nfold.runtime.control.channel import Message
from nfold.runtime.measuring.probing_rounds import round_robin
from nfold.transport.connecting.job_token import new_token
from nfold.transport.probing.probe import ProbedPair
from nfold.verbs.options.option_checks import Options, Wishes
from nfold.verbs.ranks.remote_hosts import CommandSide, come_hosts

ANSWER_S = 60.0
LEAST_DISK_BYTES = 1 << 30
"""A program, and what it writes beside itself."""
SLOW = 0.5
"""A link that carries less than so much of what the best one of its cluster does is told of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The result of one check of hosts."""

    name: str
    passed: bool
    told: str
    fix: str = ""
    """What to do where it has not passed; empty where `told` says it."""


def doctor(wishes: Wishes, say: Callable[[str], None]) -> list[Check]:
    """Bring hosts, look at each and at the ways between them, and give them back.

    Args:
        wishes: options of a run that asks for hosts, by name.
        say: is given lines for the user while it goes on.

    Raises:
        PlanError: no hosts are asked for.
    """
    options = Options(**wishes)
    if options.target is None:
        raise PlanError("doctor looks at hosts, and none are asked for. Add --on or --listen.")
    command = CommandSide(
        token=new_token(encrypted=options.tls),
        events=queue.SimpleQueue(),
        log=None,
        spools=None,
        say=say,
        tell=lambda _: None,
        is_called_off=lambda: False,
    )
    with contextlib.ExitStack() as ending:
        try:
            come = ending.enter_context(come_hosts(options, command))
        except ClusterError as error:
            notes = " ".join(getattr(error, "__notes__", ())).replace("\n", " ")
            return [Check(name="hosts and versions", passed=False, told=f"{error} {notes}".strip())]
        return [*_look_at(come.agents), *_look_between(come.pool, come.agents)]


def _look_at(agents: Sequence[HostAgent]) -> list[Check]:
    """What each host told of itself."""
    names = ", ".join(
        f"{agent.name} ({figure(agent.facts.cores)} cores, {size(agent.facts.memory_bytes)})" for agent in agents
    )
    here = agents[0].facts.versions.told
    full = [
        f"{agent.name} ({size(agent.facts.disk_bytes)})"
        for agent in agents
        if agent.facts.disk_bytes < LEAST_DISK_BYTES
    ]
    late = [f"{agent.name} ({seconds(abs(agent.skew_s))})" for agent in agents if abs(agent.skew_s) > SKEW_S]
    return [
        Check(name="hosts", passed=True, told=f"{count(len(agents), 'host')}: {names}"),
        Check(name="versions", passed=True, told=f"equal: {here}"),
        Check(
            name="clocks",
            passed=not late,
            told=f"wrong by more than {seconds(SKEW_S)}: {', '.join(late)}" if late else "agree",
            fix="set them by NTP: training does not mind, certificates and your logs do" if late else "",
        ),
        Check(
            name="disks",
            passed=not full,
            told=f"less than {size(LEAST_DISK_BYTES)} is free: {', '.join(full)}" if full else "have room",
            fix="free some in ~/.cache/nfold, or set XDG_CACHE_HOME to another disk there" if full else "",
        ),
    ]


def _look_between(pool: AgentPool, agents: Sequence[HostAgent]) -> list[Check]:
    """Whether ranks on the hosts could reach each other, and how fast the ways between them are."""
    if len(agents) == 1:
        return [Check(name="ports", passed=True, told="one host has nobody to reach")]
    try:
        listening = pool.ask(
            {agent.place: {"do": "listen", "place": rank} for rank, agent in enumerate(agents)}, ANSWER_S
        )
        members = [_listener(rank, agent, listening[agent.place]) for rank, agent in enumerate(agents)]
        if apart := find_apart(members):
            raise ClusterError(tell_apart(*apart))
        addresses = [[member.number, *(member.address or ())] for member in dial_order(members)]
        pool.ask({agent.place: {"do": "connect", "addresses": addresses} for agent in agents}, ANSWER_S)
    except ClusterError as error:
        fix = "let hosts reach each other at any port above 1023, each in both directions"
        return [Check(name="ports", passed=False, told=str(error), fix=fix)]
    return [Check(name="ports", passed=True, told="every host reaches every other one"), *_probe(pool, agents)]


def _listener(rank: int, agent: HostAgent, told: Message) -> Member:
    host, port = told["address"]
    return Member(number=rank, host=agent.name, pid=agent.facts.pid, address=(host, port), seen=agent.seen)


def _probe(pool: AgentPool, agents: Sequence[HostAgent]) -> list[Check]:
    rates: dict[str, list[float]] = {agent.name: [] for agent in agents}
    lines = []
    for pairs in round_robin([agent.name for agent in agents]):
        orders: dict[int, dict[str, Any]] = {}
        for pair in pairs:
            orders[agents[pair.measures].place] = {"do": "probe", "peer": pair.echoes, "measures": True}
            orders[agents[pair.echoes].place] = {"do": "probe", "peer": pair.measures, "measures": False}
        replies = pool.ask(orders, ANSWER_S)
        for pair in pairs:
            one, other = agents[pair.measures], agents[pair.echoes]
            found = codec.decode(ProbedPair, replies[one.place]["found"])
            rates[one.name] += [found.there_bytes_per_s]
            rates[other.name] += [found.back_bytes_per_s]
            there, back = link_rate(found.there_bytes_per_s), link_rate(found.back_bytes_per_s)
            lines.append(f"{one.name} to {other.name} {there}, back {back}, {seconds(found.latency_s)} one way")
    best = {name: max(each) for name, each in rates.items()}
    slow = [f"{name} ({link_rate(rate)})" for name, rate in best.items() if rate < SLOW * max(best.values())]
    told = "; ".join(lines)
    if slow:
        told = f"{', '.join(slow)} send less than half as fast as the best host. {told}"
    fix = "a synchronous step waits for the slowest link: mend it, or leave the host out" if slow else ""
    return [Check(name="links", passed=not slow, told=told, fix=fix)]
