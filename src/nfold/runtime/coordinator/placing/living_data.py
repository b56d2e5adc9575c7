"""What lives on the nodes of members that come and go, and where it is to live as others train. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nfold.core import codec
from nfold.core.job import JobSettings, Known
from nfold.core.residency import NodeData, PlacedData, PlacedRun, SampleMove, Spans, num_begun, spans_of
from nfold.core.text.units import count
from nfold.errors import PlanError, ProgramError
from nfold.planning.choosing.early_checks import RunSteps
from nfold.planning.inputs.facts import Facts
from nfold.planning.residency.best_place import place
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.model.spans import common, cut_last, num_samples, union, without
from nfold.planning.residency.model.traffic import traffic_kind
from nfold.planning.residency.node_inventory import Inventory, SampleCosts
from nfold.planning.residency.placed_run import check_supply, counted_from, placed_run
from nfold.planning.residency.resident_order import runs_before
from nfold.runtime.coordinator.placing.brought import Run, check_brought, first_counted
from nfold.runtime.coordinator.placing.emulated_parts import part_of
from nfold.runtime.coordinator.placing.inventories import members_of, numbered
from nfold.runtime.coordinator.placing.kept_placement import (
    counted_at,
    lists_beside_leavers,
    pinned_first,
    refuse_pinned_elsewhere,
    scheduled_at,
)
from nfold.runtime.coordinator.placing.loans import LENT, pinned_of
from nfold.runtime.coordinator.placing.question import question_of
from nfold.runtime.coordinator.placing.residing import reside_order
from nfold.runtime.coordinator.same_on_all_ranks import joined


def check_hosts_stay(settings: JobSettings) -> None:
    """Refuse hosts that come and go where data live on them and may not follow.

    Raises:
        PlanError: that is asked for.
    """
    if settings.hosts is None or settings.place not in (None, "nothing"):
        return
    stay = "leave out --nodes" if settings.box is not None else f"use --nodes {settings.hosts.least}"
    raise PlanError(
        f"--nodes {settings.hosts}: data live on nodes and stay there, so the hosts of the run stay the same. "
        f"Add --place auto, which lets samples follow hosts that come and go, or {stay}."
    )


@dataclass(frozen=True, slots=True)
class Gathered:
    """Members that are together for a moment, with what they hold."""

    members: tuple[int, ...]
    """Of the job, by rank."""
    numbers: tuple[int, ...]
    """Of each among those that have held data."""
    lists: tuple[Spans, ...]
    """The samples of each."""
    counted: Spans
    """Those of the epoch under way."""
    scheduled: Spans
    """Those of later epochs, as far as that is settled."""

    @property
    def brought(self) -> dict[int, Spans]:
        """What nobody has counted on yet, by the number of who holds it."""
        pairs = ((number, without(spans, self.scheduled)) for number, spans in self._by_number)
        return {number: spans for number, spans in pairs if spans}

    @property
    def missing(self) -> Spans:
        """What was to count in later epochs, and is not there any more."""
        return without(self.scheduled, union(span for _, spans in self._by_number for span in spans))

    @property
    def without_brought(self) -> "Gathered":
        """The same without what nobody has counted on yet."""
        return replace(self, lists=tuple(common(spans, self.scheduled) for spans in self.lists))

    @property
    def _by_number(self) -> list[tuple[int, Spans]]:
        return list(zip(self.numbers, self.lists, strict=True))


class LivingData:
    """The data of one job, by the members that hold them. It knows who may never have trained, and who has left."""

    def __init__(
        self,
        settings: JobSettings,
        data: PlacedData,
        numbers: Mapping[int, int],
        costs: Mapping[int, SampleCosts | None],
        deviation_bytes: float,
        inventories: Mapping[str, Inventory],
    ) -> None:
        """Args:
        settings: of the job.
        data: as they were placed.
        numbers: of the data's members, by the job's.
        costs: of moving, by the data's members; None: no sample was there to measure with.
        deviation_bytes: of a sample, from the mean.
        inventories: of the nodes that are there.
        """
        self.data = data
        self._inventories = dict(inventories)
        self._settings, self._numbers, self._deviation_bytes = settings, dict(numbers), deviation_bytes
        self._costs = dict(costs)

    @property
    def runs(self) -> tuple[PlacedRun, ...]:
        """Who trains on which samples, stretch by stretch."""
        return self.data.runs

    def part_on(self, node: str) -> dict[str, Any] | None:
        """Return what the file of an emulated cluster says that lives on a node; None: the program says it."""
        return part_of(self._settings, node)

    def welcome(
        self, member: int, node: str, ready: dict[str, Any], ranks: Collection[int], told: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take in what lives on the node of a newcomer; return what it told, with the samples that the run began with.

        Args:
            member: the newcomer.
            node: its host.
            ready: what it told of the program.
            ranks: the members that train.
            told: by these, of the program.

        Raises:
            ProgramError: the run cannot count the samples that it brings, or the node has a rank already.
        """
        inventory = codec.decode(Inventory, ready["inventory"])
        members, (number,) = numbered(self.data, members_of({node: inventory}), may_bring=True)
        if number in [self._numbers[rank] for rank in ranks]:
            raise ProgramError(f"{node} trains already, and what lives on a node is for one rank of it.")
        own = spans_of(members)[number]
        if members[number].is_brought and without((own,), self._scheduled):
            run = Run(self._settings, told, self.data.members, self._inventories)
            check_brought(node, inventory, ready, run)
        self.data = replace(self.data, members=members)
        self._numbers[member], self._inventories[node] = number, inventory
        return joined({**ready, "total": num_begun(members)})

    def resides(self, member: int, told: dict[str, Any]) -> None:
        """Take in what a newcomer told of moving samples, once it knows the numbers of its own."""
        costs = told["costs"]
        self._costs[self._numbers[member]] = None if costs is None else codec.decode(SampleCosts, costs)

    def reside_order(self, member: int) -> dict[str, Any]:
        """Return the order that tells a newcomer the numbers of its samples."""
        data = self.data
        return reside_order(self._settings, data.key, data.members, self._numbers[member], data.sample_bytes)

    def home_of(self, number: int) -> tuple[str, int | None]:
        """Return the node that a sample lived on at first, and the member that was there last; None: none was."""
        spans = spans_of(self.data.members)
        home = next(index for index, (first, end) in enumerate(spans) if first <= number < end)
        owner = next((member for member, index in reversed(self._numbers.items()) if index == home), None)
        return self.data.members[home].node, owner

    def node_of(self, member: int) -> str:
        """Return the node of a member."""
        return self.data.members[self._numbers[member]].node

    def indispensable(self, members: Collection[int]) -> dict[int, str]:
        """Return those of some members that hold what may not leave them, and counts, with what follows."""
        scheduled, pinned = self._scheduled, pinned_of(self.data.members)
        needed = [member for member in members if common(pinned[self._numbers[member]], scheduled)]
        return {member: _pinned_here(self.data.members[self._numbers[member]]) for member in needed}

    def gather(self, members: Sequence[int], leavers: Collection[int], step: int, epochs: EpochSteps) -> Gathered:
        """Return what members hold before a step.

        Args:
            members: of the job, by rank, those that leave and those that come among them.
            leavers: those that leave.
            step: counts from 0.
            epochs: of the run so far.

        Raises:
            ClusterError: samples live on nodes that are not there any more, or are pinned where they are not.
        """
        numbers = tuple(self._numbers[member] for member in members)
        pinned = pinned_of(self.data.members)
        refuse_pinned_elsewhere(self.data, self.data.members, pinned)
        going = {self._numbers[member] for member in leavers}
        epoch, is_begun = epochs.epoch(step), not epochs.is_end(step)
        lists = lists_beside_leavers(self.data, step, epoch, numbers, going, is_begun=is_begun)
        lists = pinned_first(lists, [pinned[number] for number in numbers])
        counted, scheduled = counted_at(self.data, step, epoch), scheduled_at(self.data, step)
        return Gathered(tuple(members), numbers, tuple(lists), counted, scheduled)

    def loan(self, gathered: Gathered) -> tuple[list[Spans], tuple[SampleMove, ...]]:
        """Return what those who hold nothing are to look at, so that they can be timed, and the moves that bring it."""
        pinned = pinned_of(self.data.members)
        pairs = zip(gathered.numbers, gathered.lists, strict=True)
        free = [without(spans, pinned[number]) for number, spans in pairs]
        most = max(range(len(free)), key=lambda rank: num_samples(free[rank]))
        _, lent = cut_last(free[most], LENT)
        needy = [not spans for spans in gathered.lists]
        moves = tuple(
            SampleMove(source=gathered.numbers[most], target=number, spans=lent)
            for number, is_needy in zip(gathered.numbers, needy, strict=True)
            if is_needy and lent
        )
        return [lent if is_needy else () for is_needy in needy], moves

    def placed_anew(
        self, gathered: Gathered, excluded: Collection[int], facts: Facts, known: Known, steps: RunSteps, step: int
    ) -> PlacedData:
        """Return where the data are to live from a step on.

        Args:
            gathered: who is there.
            excluded: members that shall hold nothing from then on.
            facts: of all that are there, by rank.
            known: the same, as it was measured.
            steps: of the run.
            step: counts from 0.

        Raises:
            ClusterError: there is no room for what some would take along.
            PlanError: the method has no answer.
        """
        epochs, names = steps.by_epoch, dict(zip(gathered.members, facts.nodes, strict=True))
        epoch = epochs.epoch(step)
        problem = question_of(
            facts,
            [self.data.members[number] for number in gathered.numbers],
            [spans_of(self.data.members)[number] for number in gathered.numbers],
            gathered.lists,
            [self._costs.get(number) for number in gathered.numbers],
            self.data.sample_bytes,
            self._deviation_bytes,
            epochs=max(1, epochs.begun(steps.total_steps) - epoch),
            traffic=traffic_kind(self._settings.strategy),
            excluded=[names[member] for member in excluded],
        )
        plan = place(problem, self._method)
        run = placed_run(plan, gathered.numbers, first_step=step, first_epoch=epoch, sites=problem.sites)
        if (first := first_counted(epochs, step)) > epoch:
            later = [without(spans, gathered.counted) for spans in gathered.lists]
            brought = union(span for spans in later for span in spans)
            run = counted_from(run, brought, first)
            here = dict(zip(gathered.numbers, gathered.lists, strict=True))
            check_supply(run, [here[member] for member in run.members], brought)
        run = replace(run, in_a_row=known.graph.least_chunk, has_moved=True)  # kept once it has
        return replace(self.data, runs=(*runs_before(self.data.runs, step), run), plan=plan)

    @property
    def _scheduled(self) -> Spans:
        """The samples of all later epochs."""
        return scheduled_at(self.data, self.runs[-1].first_step + 1)

    @property
    def _method(self) -> Any:
        return self._settings.place or "nothing"


def _pinned_here(data: NodeData) -> str:
    pinned = count(data.num_pinned, "sample")
    return f"{pinned} pinned to {data.node} would be missing in every epoch: the run keeps a checkpoint and ends"
