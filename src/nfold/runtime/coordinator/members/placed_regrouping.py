"""From one generation to the next where each rank trains on what lives on its node. Pure.

all meet: who stays, leaves and comes ──> who comes is lent a few samples, and all are measured
   ──> samples are placed anew, with none on those who leave ──> they move ──> who trains on nothing is let go

What newcomers bring is placed with the rest, and counts from the next epoch on. Where that cannot be it stays out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings, Known
from nfold.core.members import NOBODY, SpeedShift, Turnover
from nfold.core.residency import PlacedData, PlacedRun, SampleMove, Spans
from nfold.core.text.units import count, duration, size
from nfold.errors import ClusterError, InternalError, NfoldError, PlanError, ProgramError
from nfold.planning.choosing.early_checks import RunSteps, check_last_batch
from nfold.planning.residency.placed_chunks import check_least, check_whole_chunks
from nfold.planning.residency.resident_order import check_runs
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, with_placed
from nfold.runtime.coordinator.members.generation_end import GenerationEnd
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.members.planned_aside import plan_for
from nfold.runtime.coordinator.placing.beside_training import needed_by
from nfold.runtime.coordinator.placing.brought import first_counted, gone, left_out, told_of
from nfold.runtime.coordinator.placing.living_data import Gathered, LivingData
from nfold.runtime.coordinator.placing.move_orders import move_orders, moved_of
from nfold.runtime.coordinator.preparation import Preparation
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.replanning import plan_of
from nfold.runtime.measuring.declared_nodes import as_if_measured

NO_BUILDS: tuple[dict[str, Any], ...] = ()
"""Orders to build are compiled when they are needed."""


class _Placement(NamedTuple):
    """What a generation is to begin with."""

    data: PlacedData
    known: Known
    """With the plan."""
    run_steps: RunSteps
    """Of the run from then on."""
    brought: dict[int, Spans]
    """What counts from a later epoch on and did not before, by the number of who has brought it."""
    notes: tuple[str, ...]
    """What to tell of it."""


class PlacedRegrouping:
    """Lets the generations of one job follow each other, and their samples with them.

    Attributes:
        lookahead: None, since nothing is made ready while others train: where samples are to live is known only once
            all have met.
    """

    lookahead = None

    def __init__(
        self,
        settings: JobSettings,
        requests: RankRequests,
        generations: Generations,
        membership: Membership,
        living: LivingData,
        cores: int,
    ) -> None:
        self._settings, self._requests, self._cores = settings, requests, cores
        self._generations, self._membership, self._living = generations, membership, living
        self._later = set[int]()
        """Members that were given a rank after the run had begun."""

    def follow(self, generation_end: GenerationEnd, ready: Ready, next_step: int) -> Flow:
        """Connect the ranks of the next generation, once their samples are there, as `Regrouping.follow`.

        Raises:
            ClusterError: samples are gone, or there is no room for those of who leaves.
            PlanError: those who stay cannot go on.
        """
        known = generation_end.planned
        if generation_end.members_change or known is None:
            return (yield from self._regroup(generation_end.known, ready, next_step, NOBODY, generation_end.shifts))
        self._requests.say(cmd.Replanned(known, plan_of(known), next_step, shifts=generation_end.shifts))
        yield from self._generations.begin(plan_of(known).world_size)
        return known, NO_BUILDS

    def without(self, turnover: Turnover, known: Known, ready: Ready, next_step: int, note: Callable[[], None]) -> Flow:
        """Connect the ranks that are left when others were lost, as `Regrouping.without`.

        Raises:
            ClusterError: nobody who is left holds what the lost ones held.
            PlanError: those who are left cannot go on.
        """
        begun = yield from self._regroup(known, ready, next_step, turnover)
        note()
        return begun

    def _regroup(
        self, before: Known, ready: Ready, step: int, turnover: Turnover, shifts: tuple[SpeedShift, ...] = ()
    ) -> Flow:
        membership = self._membership
        newcomers, leavers = membership.newcomers, membership.leavers
        self._later.update(newcomers)
        self._generations.enlist((*membership.ranks, *newcomers))
        epochs = self._run_steps(before.cluster, ready, self._living.runs).by_epoch
        gathered = self._living.gather(membership.ranks, leavers, step, epochs)
        self._requests.say(*map(cmd.Noted, gone(self._living.data.members, gathered.missing)))
        yield from self._generations.begin(len(membership.ranks))
        known = yield from self._measured(before, ready, gathered)
        placement = self._agreed(gathered, leavers, known, ready, step)
        self._requests.say(*map(cmd.Noted, (*placement.notes, *placement.data.plan.sentences)))
        yield from self._move(gathered, placement.data)
        # Only now is it so, and before who leaves is let go: another one or the command may be lost right then.
        self._living.data = replace(placement.data, members=self._living.data.members)
        self._requests.say(cmd.Placed(self._living.data))
        self._need(placement.brought, gathered)
        yield from self._begin(placement, gathered, leavers)
        turnover = self._membership.histories.told(self._turned(placement, before, turnover))
        planned = cmd.Replanned(placement.known, plan_of(placement.known), step, turnover, shifts=shifts)
        lacking = membership.num_lacking
        self._requests.say(replace(planned, num_lacking=lacking, run_steps=placement.run_steps))
        return placement.known, NO_BUILDS

    def further_back(self, known: Known, ready: Ready, step: int, kept: int) -> PlanError | None:
        """Return why those who are left are to go further back than to a step; None: they are not.

        Where a program needs two samples a chunk, it may be that no order of samples follows for them from that step,
        while one does from the checkpoint that was kept last.

        Args:
            known: what the generation before rested on.
            ready: what ranks told of the program.
            step: counts from 0.
            kept: that of the checkpoint.
        """
        if step == kept or known.graph.least_chunk == 1:
            return None
        why = self._refusal(known, ready, step)
        return why if isinstance(why, PlanError) and self._refusal(known, ready, kept) is None else None

    def _refusal(self, known: Known, ready: Ready, step: int) -> NfoldError | None:
        """Return why those who are left cannot go on from a step, all of them; None: they can."""
        ranks, leavers = self._membership.ranks, self._membership.leavers
        known = replace(known, plan=None, cluster=self._cluster_of(ranks, known))
        epochs = self._run_steps(known.cluster, ready, self._living.runs).by_epoch
        try:
            gathered = self._living.gather(ranks, leavers, step, epochs)
            gathered = gathered.without_brought if gathered.brought else gathered
            self._placement(gathered, leavers, known, ready, step)
        except NfoldError as error:
            return error
        return None

    # Measuring

    def _measured(self, known: Known, ready: Ready, gathered: Gathered) -> Flow:
        """Return what is known of all that are there, who are measured together if somebody is new."""
        there = {node.name for node in known.cluster.nodes}
        known = replace(known, plan=None, cluster=self._cluster_of(self._membership.ranks, known))
        if there >= {node.name for node in known.cluster.nodes}:
            return known
        examples, loans = self._living.loan(gathered)
        if loans:
            yield from self._order_moves(gathered, loans, examples)
        if known.cluster.is_emulated:  # of a node that joins all is declared
            return known
        planning = self._planning(known.cluster)
        ready = {**ready, "chunks": len(gathered.members)}
        preparation = Preparation(planning, self._cores, self._requests, self._generations)
        cluster = yield from preparation.meet(known.graph, known.profiles, known.cluster, ready)
        return replace(known, cluster=cluster)

    def _cluster_of(self, members: Collection[int], known: Known) -> Cluster:
        """Return the hosts of members and no others; new ones cost what the first was measured to."""
        there = {
            node.name: as_if_measured(known.cluster, node)
            for member in members
            if (node := self._membership.node(member)) is not None
        } | {node.name: node for node in known.cluster.nodes}
        return replace(known.cluster, nodes=tuple(there[self._host(member)] for member in members))

    # Placing

    def _agreed(
        self, gathered: Gathered, leavers: tuple[int, ...], known: Known, ready: Ready, step: int
    ) -> _Placement:
        """Return a placement of all that is there; where that cannot be, one without what is brought, or who came last.

        Raises:
            PlanError, ClusterError: there is none either, for the reason why there is none of all.
        """
        told: tuple[str, ...] = ()
        if gathered.brought:
            try:
                placement = self._placement(gathered, leavers, known, ready, step)
            except (PlanError, ClusterError, ProgramError, InternalError) as error:  # others train well without
                told, gathered = self._left_out(gathered.brought, str(error)), gathered.without_brought
            else:
                return placement._replace(notes=(*self._told_brought(placement, step), *placement.notes))
        stay = [each for each in gathered.members if each not in leavers]
        came = tuple(each for each in stay if each in self._later)
        came = came[1:] if len(came) == len(stay) else came  # somebody has to stay
        first: NfoldError | None = None
        for num_staying in range(len(came), -1, -1):
            let_go = came[num_staying:]
            try:
                placement = self._placement(gathered, (*leavers, *let_go), known, ready, step)
            except (PlanError, ClusterError) as error:
                first = first or error
            else:
                told += (f"note: {self._named(let_go)} cannot be used, and is let go: {first}",) if let_go else ()
                return placement._replace(notes=(*told, *placement.notes))
        assert first is not None, "that of all was tried"
        raise first

    def _placement(
        self, gathered: Gathered, excluded: Collection[int], known: Known, ready: Ready, step: int
    ) -> _Placement:
        """Return where the data are to live, and the plan for those who train then.

        Raises:
            PlanError: no plan trains on them so, or not before the run ends.
            ClusterError: there is no room for them.
            ProgramError: the program does not compute on the last batch of a longer epoch.
            InternalError: an epoch would miss a sample or visit it twice.
        """
        planning = self._planning(known.cluster)
        facts = planning.facts(known.graph, known.profiles, known.cluster, ready)
        before = planning.run_steps(with_placed(ready, self._living.runs))
        data = self._living.placed_anew(gathered, excluded, facts, known, before, step)
        run, run_steps = data.runs[-1], planning.run_steps(with_placed(ready, data.runs))
        if gathered.brought:
            if self._settings.steps is not None:  # it was begun without, and went on with that
                raise PlanError(f"the run was asked for {count(self._settings.steps, 'step')} in all (--steps)")
            if first_counted(before.by_epoch, step) >= before.by_epoch.begun(before.total_steps):
                raise PlanError("no other epoch begins before the run ends")
            check_last_batch(known.graph, run_steps)
        check_runs(data.runs, ready["batch_size"])
        check_least(data.runs, ready["batch_size"], known.graph, ready["seed"])  # before anything has moved for it
        nodes = tuple(known.cluster.node(name) for name in run.nodes)
        known = replace(known, cluster=replace(known.cluster, nodes=nodes))
        chosen, notes = plan_for(self._settings_of(known.cluster), known, with_placed(ready, data.runs))
        check_whole_chunks(chosen, run)
        return _Placement(data, replace(known, plan=chosen), run_steps, gathered.brought, notes)

    def _run_steps(self, cluster: Cluster, ready: Ready, runs: Sequence[PlacedRun]) -> RunSteps:
        return self._planning(cluster).run_steps(with_placed(ready, runs))

    def _planning(self, cluster: Cluster) -> JobPlanning:
        return JobPlanning(self._settings_of(cluster))

    def _settings_of(self, cluster: Cluster) -> JobSettings:
        """Return the settings of a rank for each node of a cluster."""
        names = tuple(node.name for node in cluster.nodes)
        return replace(self._settings, workers=len(names), servers=0, cluster=cluster, nodes=names)

    # What newcomers bring

    def _told_brought(self, placement: _Placement, step: int) -> list[str]:
        run_steps, members = placement.run_steps, self._living.data.members
        return told_of(members, placement.brought, step, placement.data.runs[-1], run_steps)

    def _left_out(self, spans: Mapping[int, Spans], why: str) -> tuple[str, ...]:
        members = self._living.data.members
        return tuple(left_out(members[number].node, each, why) for number, each in spans.items())

    def _need(self, brought: Collection[int], gathered: Gathered) -> None:
        """Let the run be kept and end if a host leaves that has brought what may not leave it."""
        came = [member for member, number in zip(gathered.members, gathered.numbers, strict=True) if number in brought]
        for member, why in self._living.indispensable(came).items():
            self._membership.need(member, why)
            self._requests.say(cmd.Noted(f"note: if {self._host(member)} leaves, {why}"))

    # Moving

    def _move(self, gathered: Gathered, data: PlacedData) -> Flow:
        """Let samples move that must be there before the next step."""
        moves = tuple(move for move in data.runs[-1].moves if move.epoch is None)
        if not moves:
            return
        moved = moved_of((yield from self._order_moves(gathered, moves, needed=data)).values())
        if moved.num_bytes:
            self._requests.say(cmd.Noted(f"moved {size(moved.num_bytes)} in {duration(moved.seconds)}"))
        self._requests.say(moved)

    def _order_moves(
        self,
        gathered: Gathered,
        moves: tuple[SampleMove, ...],
        examples: Collection[Spans] = (),
        needed: PlacedData | None = None,
    ) -> Flow:
        run = (needed or self._living.data).runs[-1]
        kept = [needed_by(run, number) for number in gathered.numbers]
        orders = move_orders(self._living.data.members, gathered.numbers, moves, kept, tuple(examples))
        return (yield from self._requests.collect(tuple(range(len(orders))), orders, "moved"))

    # The next generation

    def _begin(self, placement: _Placement, gathered: Gathered, leavers: Collection[int]) -> Flow:
        """Let those go who leave or train on nothing, and connect the others."""
        run, membership = placement.data.runs[-1], self._membership
        trains = {
            each for each, number in zip(gathered.members, gathered.numbers, strict=True) if number in run.members
        }
        yield from self._generations.let_go(tuple(map(membership.ranks.index, leavers)))
        idle = tuple(rank for rank, member in enumerate(membership.ranks) if member not in trains)
        yield from self._generations.spare(idle)
        if len(gathered.members) > len(trains):
            yield from self._generations.begin(len(run.members))

    @staticmethod
    def _turned(placement: _Placement, before: Known, turnover: Turnover) -> Turnover:
        """Return who came and went, beside those who were lost."""
        had, have = plan_of(before).nodes, placement.data.runs[-1].nodes
        return replace(
            turnover,
            joined=tuple(name for name in have if name not in had),
            left=tuple(name for name in had if name not in {*have, *turnover.lost}),
        )

    def _host(self, member: int) -> str:
        return self._membership.member(member).host

    def _named(self, members: Collection[int]) -> str:
        return ", ".join(map(self._host, members))
