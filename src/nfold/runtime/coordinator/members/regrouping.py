"""From one generation to the next: who leaves is let go, newcomers are measured, and all begin under a plan for them.

Newcomers are counted on once they have been measured beside the others: links are probed and all compute at once, as at
the start, and nobody trains meanwhile. Where a plan for all gives some nothing to do, those are let go.
"""

from dataclasses import replace

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings, Known
from nfold.core.members import Turnover
from nfold.core.plan import Plan
from nfold.errors import PlanError, RunError
from nfold.planning.choosing.strategies import AUTO
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready
from nfold.runtime.coordinator.members.generation_end import GenerationEnd
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.preparation import Preparation
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.replanning import plan_of
from nfold.runtime.measuring.declared_nodes import as_if_measured


class Regrouping:
    """Lets the generations of one job follow each other."""

    def __init__(
        self,
        settings: JobSettings,
        cores: int,
        requests: RankRequests,
        generations: Generations,
        membership: Membership,
    ) -> None:
        self._settings, self._cores, self._requests = settings, cores, requests
        self._generations, self._membership = generations, membership

    def follow(self, generation_end: GenerationEnd, ready: Ready, next_step: int) -> Flow:
        """Connect the ranks of the next generation; return what it rests on, with its plan.

        Args:
            generation_end: why the one before has ended.
            ready: what ranks told of the program.
            next_step: counts from 0.

        Raises:
            PlanError: those who stay cannot go on.
            RunError: nobody stays.
        """
        known, before = generation_end.planned, self._hosts()
        if generation_end.members_change or known is None:
            ready = {**ready, "chunks": plan_of(generation_end.known).chunks}  # the result depends on them
            known = yield from self._for_members(generation_end.known, ready)
        chosen = plan_of(known)
        now = self._hosts()[: chosen.world_size]
        turnover = Turnover(
            joined=tuple(name for name in now if name not in before),
            left=tuple(name for name in before if name not in now),
        )
        self._requests.say(cmd.Replanned(known, chosen, next_step, self._membership.histories.told(turnover)))
        yield from self._generations.let_go(self._behind(chosen.world_size))
        yield from self._generations.begin(chosen.world_size)
        return known

    def without(self, turnover: Turnover, known: Known, ready: Ready, next_step: int) -> Flow:
        """Connect the ranks that are left when others were lost; return what they go on with.

        Args:
            turnover: who was lost.
            known: what the generation before rested on.
            ready: what ranks told of the program.
            next_step: counts from 0.

        Raises:
            PlanError: those who are left cannot go on.
        """
        ready = {**ready, "chunks": plan_of(known).chunks}  # the result depends on them
        before, measured, known = (
            plan_of(known).nodes,
            {node.name for node in known.cluster.nodes},
            self._with_hosts(known),
        )
        if measured >= {node.name for node in known.cluster.nodes}:
            known = replace(known, plan=self._plan(known, ready))
        else:  # somebody was being let in
            known = yield from self._measured(known, ready)
        chosen = plan_of(known)
        if self._settings.nodes:
            turnover = replace(turnover, joined=tuple(name for name in chosen.nodes if name not in before))
        self._requests.say(cmd.Replanned(known, chosen, next_step, self._membership.histories.told(turnover)))
        yield from self._generations.let_go(self._behind(chosen.world_size))
        yield from self._generations.begin(chosen.world_size)
        return known

    def _for_members(self, known: Known, ready: Ready) -> Flow:
        """Let leavers go and newcomers in, as far as a plan can be made for them."""
        membership, leavers = self._membership, self._membership.leavers
        yield from self._generations.let_go(tuple(map(membership.ranks.index, leavers)))
        stayers, newcomers = membership.ranks, membership.newcomers
        if newcomers:
            self._generations.enlist((*stayers, *newcomers))
            try:
                return (yield from self._measured(self._with_hosts(known), ready))
            except PlanError as error:
                self._requests.say(cmd.Noted(f"note: {_named(newcomers)} cannot be used, and is let go: {error}"))
                yield from self._generations.let_go(self._behind(len(stayers)))
        if not stayers:
            raise RunError(
                "nobody is left to go on with: all ranks were to leave, and who came in their place ended or could not "
                "be used"
            )
        known = self._with_hosts(known)
        return replace(known, plan=self._plan(known, ready)) if leavers else known

    def _hosts(self) -> tuple[str, ...]:
        """The host of each rank; where all share one, what members are called instead."""
        if self._settings.nodes:
            return tuple(map(self._host, self._membership.ranks))
        return tuple(f"member {number}" for number in self._membership.ranks)

    def _with_hosts(self, known: Known) -> Known:
        """Let the cluster have the hosts of all ranks and no others; new ones cost what the first was measured to."""
        if not self._settings.nodes:
            return known
        ranks, cluster = self._membership.ranks, known.cluster
        came = [node for number in ranks if (node := self._membership.node(number)) is not None]
        there = {node.name: as_if_measured(cluster, node) for node in came}
        there |= {node.name: node for node in cluster.nodes}
        used = dict.fromkeys(map(self._host, ranks))
        return replace(known, cluster=replace(known.cluster, nodes=tuple(there[name] for name in used)))

    def _measured(self, known: Known, ready: Ready) -> Flow:
        """Let all ranks be measured together, and plan for them; of emulated nodes all is declared."""
        count = len(self._membership.ranks)
        planning, known = self._planning(count, known.cluster), replace(known, plan=None)
        if known.cluster.is_emulated:
            return replace(known, plan=planning.plan(known, ready))
        yield from self._generations.begin(count)
        preparation = Preparation(planning, self._cores, self._requests, self._generations)
        cluster = yield from preparation.meet(known.graph, known.profiles, known.cluster, ready)
        known = replace(known, cluster=cluster)
        return replace(known, plan=planning.plan(known, ready))

    def _plan(self, known: Known, ready: Ready) -> Plan:
        """Return the plan for all ranks by the strategy that was asked for, or by any that can be had with so many."""
        count, strategy = len(self._membership.ranks), self._settings.strategy
        now = replace(known, plan=None)
        try:
            return self._planning(count, known.cluster).plan(now, ready)
        except PlanError as error:
            if strategy == AUTO or plan_of(known).asynchrony is not None:
                raise
            self._requests.say(
                cmd.Noted(
                    f"note: {strategy} cannot be had with the {count} that stay, so any other may follow: {error}"
                )
            )
            return self._planning(count, known.cluster, AUTO).plan(now, ready)

    def _planning(self, count: int, cluster: Cluster, strategy: str | None = None) -> JobPlanning:
        """Return the planning of the first ranks, with as many servers among them as the job has, if that is half."""
        servers, has_nodes = min(self._settings.servers, count // 2), bool(self._settings.nodes)
        settings = replace(
            self._settings,
            strategy=strategy or self._settings.strategy,
            workers=count - servers,
            servers=servers,
            cluster=cluster if self._settings.cluster is not None else None,
            nodes=tuple(map(self._host, self._membership.ranks[:count])) if has_nodes else (),
        )
        return JobPlanning(settings)

    def _host(self, number: int) -> str:
        return self._membership.member(number).host

    def _behind(self, num_ranks: int) -> tuple[int, ...]:
        return tuple(range(num_ranks, len(self._membership.ranks)))


def _named(newcomers: tuple[int, ...]) -> str:
    return f"member{'s' if len(newcomers) > 1 else ''} {', '.join(map(str, newcomers))}"
