"""Makes the next generation ready while the one of now trains, so that nobody stops before all of it is there. Pure.

    somebody is prepared ──> measured ──> planned for ──> newcomers have built once ──> ready: ranks may stop
                                             │                  └─ its link is slow: it follows as a shadow ──^
    somebody is to leave ───────────────> planned for ───────────────────────────────────────────────────────^
                                             └─ a step would take longer: it waits as a spare

    nobody trains, for want of a plan ──> somebody is prepared ──> measured, planned for with all who are there

What is ready stays so until ranks begin the next generation, unless somebody of it goes. Then it is planned anew. While
nobody comes or goes, plans are made for the loss of each host, so that the others need not wait for one.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import isinf
from typing import TYPE_CHECKING, Any

from nfold.core.cluster import Cluster, Node
from nfold.core.job import JobSettings, Known
from nfold.core.text.units import link_rate, percent, seconds
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import Ready
from nfold.runtime.coordinator.members.admission import Admission
from nfold.runtime.coordinator.members.following import Following
from nfold.runtime.coordinator.members.membership import Decision, Membership
from nfold.runtime.coordinator.members.newcomer_measuring import NewcomerMeasuring
from nfold.runtime.coordinator.members.shadow import to_follow_with
from nfold.runtime.coordinator.replanning import plan_of
from nfold.runtime.measuring.declared_nodes import as_if_measured

if TYPE_CHECKING:
    from nfold.runtime.coordinator.members.shadow import Shadow

_Question = tuple[tuple[int, ...], tuple[int, ...]]
"""Who would stay, and who would come."""
LATE_S = 90.0
"""How long a newcomer may take for one thing beside training: to compute, to meet others, or to build."""


class Lookahead:
    """What the next generation will be.

    Attributes:
        is_stranded: whether ranks have no plan, and wait for others to have one with.
        has_no_room: whether those who stay are to have no plan, and can wait for others.
        are_links_probed: whether ranks probe theirs again, so that nobody is to begin to follow.
    """

    def __init__(self, settings: JobSettings, membership: Membership, admission: Admission) -> None:
        self._settings, self._membership, self._admission = settings, membership, admission
        self.is_stranded = self.has_no_room = self.are_links_probed = False
        self._known: Known | None = None
        self._ready: Ready = {}
        self._nodes: dict[str, Node] = {}
        self._met: dict[int, tuple[int, ...]] = {}
        """Newcomers that were measured, and the ranks that each is connected to since."""
        self._measuring: NewcomerMeasuring | None = None
        self._asked: set[_Question] = set()
        self._without: dict[_Question, ev.PlannedAside] = {}
        """Plans for those who would be left if somebody left, or was lost."""
        self._version = 0
        """Of links and speeds: a plan that was asked for before they changed is not kept for a loss."""
        self._refused: set[_Question] = set()
        """Who would be there next, and would have no plan either."""
        self._planned: ev.PlannedAside | None = None
        self._unbuilt: set[int] = set()
        self._following = Following(membership)
        self._num_warmed = 0
        """Plans for which newcomers were told to build."""
        self._late: tuple[int | Shadow | None, float] = (None, 0.0)
        """Who is waited for, and since when."""

    def begin(self, known: Known, ready: Ready, *, is_stranded: bool = False) -> list[cmd.ToShell]:
        """Look ahead from a generation that trains from now on, or from ranks without a plan; return the first orders.

        Args:
            known: what the generation rests on, or the last one did.
            ready: what ranks told of the program.
            is_stranded: whether ranks have no plan.
        """
        self.is_stranded, self.are_links_probed = is_stranded, False
        self._following.begin()
        self._known, self._ready = known, {**ready, "chunks": plan_of(known).chunks}  # the result depends on them
        self._note(known.cluster.nodes)
        return self.advance()

    def see(self, cluster: Cluster) -> None:
        """Take in links and speeds as they are by now."""
        if self._known is not None:
            self._known = replace(self._known, cluster=cluster)
            self._without, self._version = {}, self._version + 1
            self._note(cluster.nodes)

    @property
    def is_ready(self) -> bool:
        """Whether all ranks may stop, because the next generation can begin, or nobody has room for who leaves."""
        if self.has_no_room:
            return self._membership.decision is Decision.SHRINK
        if self._planned is None or self._unbuilt or not self._is_wanted:
            return False
        return self._holds(self._planned) and self._following.may_begin

    @property
    def has_shadow(self) -> bool:
        """Whether a newcomer follows: steps and messages take longer then, and not for good."""
        return self._following.shadow is not None

    def reach(self, step: int, step_s: float) -> None:
        """Take in that so many steps are done, and how long the last one took."""
        self._following.reach(step, step_s)

    @property
    def is_under_way(self) -> bool:
        """Whether the next generation is being made ready, so that links and shares will soon be others."""
        is_asked = self._target in self._asked or self._planned is not None
        return self._is_wanted and (is_asked or self._measuring is not None)

    def take(self) -> ev.PlannedAside | None:
        """Return the next generation if it is ready, and look ahead no more until it has begun."""
        planned = self._planned if self.is_ready else None
        self._known, self._planned, self._measuring = None, None, None
        self._following.forget()
        self._asked, self._without, self._unbuilt, self._refused = set(), {}, set(), set()
        self.is_stranded = self.has_no_room = False
        return planned

    def take_loss(self) -> ev.PlannedAside | None:
        """Return what was planned for the ranks that are left, and look ahead no more; None: nobody thought of that."""
        found = self._without.get((self._membership.ranks, ()))
        self.take()
        return found if found is not None and found.known is not None else None

    def with_hosts(self, known: Known) -> Known:
        """Let the cluster have the hosts of all ranks and no others, as they were measured."""
        if not self._settings.nodes:
            return known
        hosts = dict.fromkeys(self._membership.member(number).host for number in self._membership.ranks)
        return replace(known, cluster=replace(known.cluster, nodes=self._nodes_of(hosts, known)))

    def advance(self) -> list[cmd.ToShell]:
        """Return the orders that follow from who is there now."""
        commands = self._forget_gone()
        self.has_no_room &= self._membership.others_can_come
        if self._known is None or not self._is_wanted or self.has_no_room:
            return commands
        if not self.are_links_probed:
            commands += [*self._measure(self._known), *self._follow()]
        if self._planned is None:
            commands += self._ask(self._known)
        return commands

    def _forget_gone(self) -> list[cmd.ToShell]:
        """Wait for nobody who has gone; return the order that gives a shadow nothing more that is not to join so."""
        if self._measuring is not None and self._measuring.number not in self._membership.newcomers:
            self._measuring = None
        follows_for_nothing = self.has_shadow and not self._is_wanted
        if self._planned is None or (self._holds(self._planned) and not follows_for_nothing):
            return []
        self._planned, self._unbuilt = None, set()
        return self._following.end()

    def tick(self, now_s: float) -> list[cmd.ToShell]:
        """Take in that time has passed; who has not answered for long is waited for no more."""
        number = self._measuring.number if self._measuring is not None else min(self._unbuilt, default=None)
        shadow = self._following.awaited
        if (late := shadow or number) is None or late != self._late[0]:
            self._late = late, now_s
        waited_s = now_s - self._late[1]
        if shadow is not None and waited_s >= max(LATE_S, shadow.longest_s):
            return self._give_up(f"after {seconds(waited_s)} it is not as far as the others")
        late_s = LATE_S * (2 if self._following.next in self._unbuilt else 1)  # it may build the whole model, too
        if number is None or waited_s < late_s:
            return self._plan_losses() if number is None else []
        self._measuring = None
        return [*self._admission.refuse(number, f"it has not answered for {late_s:g} s."), *self.advance()]

    def hear(self, number: int, message: dict[str, Any]) -> list[cmd.ToShell]:
        """Take in what a member has done beside the steps of others; return the orders that follow."""
        if message["is"] == "warmed":
            self._unbuilt -= {number} if message["number"] == self._num_warmed else set()  # else for an earlier plan
            return self.advance()
        if message["is"] in ("lent", "followed"):
            commands = self._following.hear(number, message)
            return [*commands, *self._give_up(self._following.failure), *self.advance()]
        if (measuring := self._measuring) is None:
            return []
        commands = measuring.hear(number, message)
        if measuring.failure:
            self._measuring = None
            commands += self._admission.refuse(measuring.number, f"{measuring.failure.rstrip('.')}.")
        elif measuring.is_done:
            self._note(measuring.nodes.values())
            self._met[measuring.number] = measuring.ranks
            self._measuring = None
        return [*commands, *self.advance()]

    def planned(self, found: ev.PlannedAside) -> list[cmd.ToShell]:
        """Take in a plan; return the orders that follow."""
        question, commands = (found.stayers, found.newcomers), list[cmd.ToShell]()
        if question not in self._asked:
            return []  # by an earlier generation
        self._asked.discard(question)
        if not found.newcomers and found.version == self._version:
            self._without[question] = found
        if question != self._target or not self._is_wanted:
            return self.advance() or self._plan_losses()
        if self._known is not None and not (self.is_stranded or self._following.take(found, self._known, self._nodes)):
            return self.advance()
        if found.refusal and self.is_stranded:
            self._refused.add(question)
            names = ", ".join(self._membership.member(number).host for number in found.newcomers)
            commands.append(cmd.Noted(f"{names} has come, and there is still no plan: {found.refusal}"))
        elif found.refusal and found.newcomers:
            commands += self._refuse(found)
        elif found.longer:
            commands += self._spare(found)
        if found.known is not None and self._holds(found):
            self._planned = found
            commands += self._build(found)
        return [*commands, *self.advance()] or self._plan_losses()

    @property
    def _is_wanted(self) -> bool:
        return self._membership.decision in (Decision.GROW, Decision.SHRINK)

    def _measure(self, known: Known) -> list[cmd.ToShell]:
        """Measure the next newcomer, one at a time; one that was measured is only connected to ranks it has not met."""
        waiting = [number for number in self._membership.newcomers if not self._has_met(number)]
        if self._measuring is not None or not waiting or self.has_shadow or self._following.is_next:
            return []
        given = (waiting[0], self._membership, known, self._ready)
        is_new = waiting[0] not in self._met
        self._measuring = NewcomerMeasuring(*given, has_host=bool(self._settings.nodes), is_new=is_new)
        return self._measuring.begin()

    def _has_met(self, number: int) -> bool:
        return number in self._met and set(self._membership.ranks) <= set(self._met[number])

    def _ask(self, known: Known) -> list[cmd.ToShell]:
        """Let a plan be made for who would be there next, unless nothing would change or that is asked already."""
        stayers, newcomers = self._target
        if (stayers, newcomers) == (self._membership.ranks, ()) or not (stayers or newcomers):
            return []
        if (stayers, newcomers) in self._refused or (self.is_stranded and not newcomers):
            return []
        if (found := self._without.get((stayers, newcomers))) is not None:
            self._planned = found if found.known is not None else None
            may_help = not all(map(self._has_met, self._membership.newcomers))
            return self._end(found.refusal) if found.refusal and not may_help else []
        return self._question(known, stayers, newcomers)

    def _end(self, why: str) -> list[cmd.ToShell]:
        """Let those who would stay wait for others, since there is no plan for them; or let the run be kept and end."""
        if self._membership.others_can_come:
            self.has_no_room = True
            return []
        leavers = self._membership.leavers
        for number in leavers:
            self._membership.need(number, why)
        hosts = ", ".join(self._membership.member(number).host for number in leavers)
        return [cmd.Noted(f"note: {hosts} is to leave, and the others cannot go on without it: {why}")]

    def _plan_losses(self) -> list[cmd.ToShell]:
        """Let a plan be made for the next host that may be lost, one at a time."""
        if self._known is None or self._settings.hosts is None or self._asked or self.is_stranded:
            return []
        if self._target != (self._membership.ranks, ()):
            return []  # others will train soon
        for number in self._membership.ranks:
            stayers = tuple(each for each in self._membership.ranks if each != number)
            if self._membership.can_lose({number}) and (stayers, ()) not in self._without:
                return self._question(self._known, stayers, ())
        return []

    def _question(self, known: Known, stayers: tuple[int, ...], newcomers: tuple[int, ...]) -> list[cmd.ToShell]:
        """Ask for a plan, unless that is done already."""
        if (stayers, newcomers) in self._asked:
            return []
        self._asked.add((stayers, newcomers))
        hosts = [self._membership.member(number).host for number in (*stayers, *newcomers)]
        nodes = self._nodes_of(dict.fromkeys(hosts), known) if self._settings.nodes else known.cluster.nodes
        return [
            cmd.PlanAside(
                settings=self._settings,
                known=replace(known, cluster=replace(known.cluster, nodes=nodes)),
                ready=self._ready,
                ranks=self._membership.ranks,
                stayers=stayers,
                newcomers=newcomers,
                hosts=tuple(hosts) if self._settings.nodes else (),
                are_stranded=self.is_stranded,
                version=self._version,
            )
        ]

    @property
    def _target(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Who would stay, and which newcomers can be planned with and have their turn."""
        stayers, newcomers, spares = self._membership.stayers, self._membership.newcomers, self._membership.spares
        usable = tuple(each for each in newcomers if self._has_met(each) and spares.get(each) != stayers)
        return stayers, self._following.in_turn(stayers, usable)

    def _holds(self, planned: ev.PlannedAside) -> bool:
        """Whether everybody is there still whom a plan counts on, and nobody else stays."""
        stayers, _ = self._target
        newcomers = set(planned.members) - set(planned.stayers)
        return stayers == planned.stayers and newcomers <= set(self._membership.newcomers)

    def _refuse(self, found: ev.PlannedAside) -> list[cmd.ToShell]:
        number = self._last_of(found)
        return self._admission.refuse(number, f"it cannot be used: {found.refusal.rstrip('.')}.")

    def _spare(self, found: ev.PlannedAside) -> list[cmd.ToShell]:
        """Let the newcomer wait that has the slowest link."""
        number = self._last_of(found)
        self._membership.spares[number] = found.stayers
        name = self._membership.member(number).host
        what = "have nothing to do in the best plan"
        if not isinf(found.longer):
            what = f"make a step {percent(found.longer)} longer"
        return [cmd.Noted(f"{name} would {what} ({_told(self._nodes[name])}): it waits as a spare")]

    def _last_of(self, found: ev.PlannedAside) -> int:
        """Of newcomers that are planned with, the one with the slowest link; where links are not known, the last."""
        names = {number: self._membership.member(number).host for number in found.newcomers}
        rates = {number: _rate(self._nodes[name]) if name in self._nodes else 0.0 for number, name in names.items()}
        return min(reversed(found.newcomers), key=rates.__getitem__)

    def _build(self, found: ev.PlannedAside) -> list[cmd.ToShell]:
        """Let newcomers build their parts once: what takes long, their processes keep."""
        count = len(found.builds)
        self._num_warmed += 1
        follows = to_follow_with(self._known, found, self._following.next)
        order = {"do": "warm", "number": self._num_warmed, "world_size": count, "protect": 0, **follows}
        sent = [
            cmd.Send((number,), {**found.builds[rank], **order, "rank": rank})
            for rank, number in enumerate(found.members[:count])
            if number not in found.stayers
        ]
        self._unbuilt = {number for each in sent for number in each.members}
        return list(sent)

    def _follow(self) -> list[cmd.ToShell]:
        """Let the newcomer follow that is to, once it has built and nobody probes: one thing is beside steps."""
        then = None if self._planned is None else self._planned.known
        if self._unbuilt or self._measuring is not None or self._known is None or then is None:
            return []
        return self._following.follow(self._known, then, self._nodes)

    def _give_up(self, why: str) -> list[cmd.ToShell]:
        """Let a newcomer build again, to join as others do, which cannot follow for the reason `why`; empty: it can."""
        if not why:
            return []
        built = [] if self._planned is None else self._build(self._planned)
        return [*self._following.give_up(why), *built]

    def end_following(self) -> list[cmd.ToShell]:
        """Return the order that a shadow is given nothing more: training is over."""
        return self._following.end()

    def _nodes_of(self, names: dict[str, None], known: Known) -> tuple[Node, ...]:
        declared = (self._membership.node(number) for number in self._membership.ranks)
        there = {node.name: as_if_measured(known.cluster, node) for node in declared if node is not None}
        there |= {node.name: node for node in known.cluster.nodes} | self._nodes
        return tuple(there[name] for name in names)

    def _note(self, nodes: Iterable[Node]) -> None:
        """Keep what is known of nodes; a link that was measured once is not forgotten where nobody uses it."""
        for node in nodes:
            if node.uplink is not None or node.name not in self._nodes:
                self._nodes[node.name] = node


def _told(node: Node) -> str:
    latency_s = max((channel.latency_s for channel in (node.uplink, node.downlink) if channel is not None), default=0.0)
    return f"its link carries {link_rate(_rate(node))}, after {seconds(2 * latency_s)} on the way"


def _rate(node: Node) -> float:
    ways = [channel.bandwidth_bytes_per_s for channel in (node.uplink, node.downlink) if channel is not None]
    return min(ways, default=0.0)
