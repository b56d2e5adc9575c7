"""Decides where the data of a run live, and lets them move before it trains. Pure.

reside ──> lend ──> (the program is measured) ──> decide ──> (planned) ──> move ──> who gave all away leaves
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nfold.core import codec
from nfold.core.job import JobSettings, Known
from nfold.core.residency import PlacedData, PlacedRun, SampleMove, Spans, num_begun, spans_of
from nfold.core.text.units import duration, size
from nfold.errors import ClusterError, PlanError
from nfold.planning.residency.best_place import place
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.model.spans import common, num_samples, union, without
from nfold.planning.residency.model.traffic import traffic_kind
from nfold.planning.residency.node_inventory import SampleCosts, data_key
from nfold.planning.residency.placed_chunks import check_least
from nfold.planning.residency.placed_run import counted_from, placed_run
from nfold.planning.residency.resident_order import epoch_steps, runs_before
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, with_placed
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.placing.beside_training import needed_by
from nfold.runtime.coordinator.placing.brought import first_counted, gone, left_out
from nfold.runtime.coordinator.placing.inventories import (
    as_called,
    check_settings,
    inventories_of,
    mean_bytes,
    members_of,
    numbered,
    why_pinned,
)
from nfold.runtime.coordinator.placing.kept_placement import (
    counted_at,
    lists_at,
    pinned_first,
    refuse_pinned_elsewhere,
    repairs,
    scheduled_at,
    stages,
)
from nfold.runtime.coordinator.placing.living_data import LivingData
from nfold.runtime.coordinator.placing.loans import lendable, loans_of, pinned_of
from nfold.runtime.coordinator.placing.move_orders import added, move_orders, moved_of
from nfold.runtime.coordinator.placing.question import question_of
from nfold.runtime.coordinator.placing.residing import reside_order
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests

NO_LOADERS = "note: loaders are not used: where data live on nodes, others come later, and a thread of each rank reads"
LENT_WITHIN_S = 60.0
MOVING = "moving data"
"""What that is called in a run's ledger."""


class Placing:
    """Where the data of one run live."""

    def __init__(
        self,
        settings: JobSettings,
        requests: RankRequests,
        generations: Generations,
        ready: dict[int, Ready],
        nodes: Sequence[str],
        first_step: int,
    ) -> None:
        """Args:
        settings: of the job.
        requests: to ranks.
        generations: connects them.
        ready: what each rank told of its data.
        nodes: of each rank.
        first_step: that the job begins with.

        Raises:
            PlanError: ranks cannot each train on what lives on a node of their own.
            ProgramError: nodes hold other data than when the run began.
            ClusterError: two nodes claim one sample, or samples that are trained on live on nodes that are gone.
        """
        check_settings(settings)
        self._settings, self._requests, self._generations = settings, requests, generations
        self._nodes, self._first_step = tuple(nodes), first_step
        self._kept = settings.begun.placed if settings.begun else None
        inventories = inventories_of(self._nodes, [ready[rank] for rank in sorted(ready)])
        found = members_of(inventories)
        found = found if settings.nodes else as_called(self._kept, found)
        self._members, self._numbers = numbered(self._kept, found)
        self._sample_bytes = self._kept.sample_bytes if self._kept else mean_bytes(inventories.values())
        self._deviation_bytes = max(each.deviation_bytes for each in inventories.values())
        self._key = self._kept.key if self._kept else data_key(inventories, settings.run)
        self._found = tuple(self._members[number] for number in self._numbers)
        self._inventories = {each.node: told for each, told in zip(found, inventories.values(), strict=True)}
        self._batch_size = ready[0]["batch_size"]
        if ready[0]["loaders"]:
            requests.say(cmd.Noted(NO_LOADERS))
        if self._method != "nothing":
            requests.say(*(cmd.Noted(note) for note in why_pinned(inventories)))
        self._lists = self._lists_now()  # before anything is measured
        self._costs: list[SampleCosts | None] = []
        """Of samples that move, by rank; once ranks know what they hold."""
        self.data: PlacedData | None = None
        """Once it is decided."""

    @property
    def runs(self) -> tuple[PlacedRun, ...]:
        """Who trains on which samples, stretch by stretch."""
        return self.data.runs if self.data else ()

    def living(self, members: Sequence[int]) -> LivingData:
        """Return the data of those who train, once others were let go.

        Args:
            members: of the job, by rank.
        """
        assert self.data is not None, "it is decided before anybody trains"
        numbers = dict(zip(members, self.runs[-1].members, strict=True))
        costs = dict(zip(self._numbers, self._costs, strict=True))
        return LivingData(self._settings, self.data, numbers, costs, self._deviation_bytes, self._inventories)

    @property
    def holders(self) -> tuple[int, ...]:
        """The ranks that hold enough to measure a program with: a batch, or as much as any."""
        counts = [member.num_samples for member in self._found]
        enough = min(self._batch_size, max(counts))
        return tuple(rank for rank, held in enumerate(counts) if held >= enough)

    def reside(self, ready: dict[int, Ready]) -> Flow:
        """Tell each rank the numbers of its samples; return what ranks told, and how many the run began with."""
        orders = [
            cmd.Order((rank,), reside_order(self._settings, self._key, self._members, number, self._sample_bytes))
            for rank, number in enumerate(self._numbers)
        ]
        replies = yield from self._requests.collect(tuple(range(len(orders))), orders, "resides")
        costs = [replies[rank]["costs"] for rank in sorted(replies)]
        self._costs = [None if each is None else codec.decode(SampleCosts, each) for each in costs]
        total = {"total": num_begun(self._members)}
        return {rank: {**told, **replies[rank]["schedule"], **total} for rank, told in ready.items()}

    def leave_out(self, *, goes_on: bool) -> Flow:
        """Let nodes go that hold nothing and will be given nothing; say so.

        Args:
            goes_on: whether the run goes on as it was placed.

        Returns:
            The settings of those that stay; None: all do.
        """
        trains = self._kept.runs[-1].members if self._kept is not None and goes_on else ()
        empty = [rank for rank, spans in enumerate(self._lists) if not spans and self._numbers[rank] not in trains]
        why = "--place nothing gives it none" if self._method == "nothing" else "all samples of others are pinned"
        if not empty or (self._method != "nothing" and lendable(self._members, self._numbers)):
            return None
        for rank in empty:
            self._requests.say(cmd.Noted(f"note: {self._nodes[rank]} is left out: it holds no samples, and {why}"))
        yield from self._generations.spare(tuple(empty))
        stay = [rank for rank in range(len(self._nodes)) if rank not in empty]
        self._nodes = tuple(self._nodes[rank] for rank in stay)
        self._numbers = tuple(self._numbers[rank] for rank in stay)
        self._found = tuple(self._found[rank] for rank in stay)
        self._lists = [self._lists[rank] for rank in stay]
        self._costs = [self._costs[rank] for rank in stay]
        self._settings = replace(self._settings, workers=len(stay), nodes=self._nodes)
        return self._settings

    def lend(self) -> Flow:
        """Let nodes that hold nothing have a few samples, so that they can be timed like the others.

        Raises:
            ClusterError: a link is too slow even for that.
        """
        loans = loans_of(self._members, self._numbers, self._lists)
        for rank, example in enumerate(loans.examples):
            if example and not self._lists[rank]:
                self._check_loan(rank, num_samples(example))
        if any(loans.examples):
            yield from self._move(loans.moves, loans.examples)

    def _check_loan(self, rank: int, number: int) -> None:
        declared = self._settings.cluster
        link = declared.node(self._nodes[rank]).downlink if declared else None
        takes_s = number * self._sample_bytes / link.bandwidth_bytes_per_s if link else 0.0
        if takes_s > LENT_WITHIN_S:
            raise ClusterError(
                f"{self._nodes[rank]} holds no samples, and the {number} that it must have to be timed, "
                f"{size(number * self._sample_bytes)}, take {duration(takes_s)} over its link. Leave it out."
            )

    def decide(self, known: Known, ready: Ready, planning: JobPlanning) -> JobPlanning:
        """Decide who trains on what, unless the run goes on as it was; say so. Return the planning of the members.

        Raises:
            ClusterError: nothing can be decided for these nodes.
            PlanError: the method has no answer, or a node would have too few samples of a batch.
        """
        if self._kept is not None and known.plan is not None:
            self.data = self._kept
        else:
            self.data = self._placed_anew(known, ready, planning)
            if len(self._nodes) > 1:
                self._requests.say(*(cmd.Noted(text) for text in self.data.plan.sentences))
        self._requests.say(cmd.Placed(self.data))
        run = self.data.runs[-1]
        check_least(self.data.runs, self._batch_size, known.graph, ready["seed"])  # before anything has moved for it
        _check_chunks(ready, run, self._settings)
        settings = replace(
            planning.settings, workers=len(run.members), nodes=run.nodes if planning.settings.nodes else ()
        )
        return JobPlanning(settings, self._first_step)

    def _placed_anew(self, known: Known, ready: Ready, planning: JobPlanning) -> PlacedData:
        facts = planning.facts(known.graph, known.profiles, known.cluster, ready)
        run_steps = planning.run_steps(with_placed(ready, self._kept.runs if self._kept else ()))
        epoch = run_steps.by_epoch.epoch(self._first_step)
        epochs = run_steps.by_epoch.begun(run_steps.total_steps) - epoch
        lists = self._lists
        traffic = traffic_kind(self._settings.strategy)
        problem = question_of(
            facts,
            self._found,
            [spans_of(self._members)[number] for number in self._numbers],
            lists,
            self._costs,
            self._sample_bytes,
            self._deviation_bytes,
            epochs=max(1, epochs),
            traffic=traffic,
        )
        plan = place(problem, self._method)
        run = placed_run(plan, self._numbers, first_step=self._first_step, first_epoch=epoch, sites=problem.sites)
        first = first_counted(run_steps.by_epoch, self._first_step)
        if self._kept is not None and first > epoch:
            held, counted = [span for spans in lists for span in spans], counted_at(self._kept, self._first_step, epoch)
            run = counted_from(run, without(union(held), counted), first)
        run = replace(run, in_a_row=known.graph.least_chunk)
        if self._kept is not None:
            run = replace(run, moves=(*repairs(self._kept, lists, self._numbers), *run.moves))
        earlier = runs_before(self._kept.runs, self._first_step) if self._kept else ()
        return PlacedData(
            members=self._members, key=self._key, sample_bytes=self._sample_bytes, runs=(*earlier, run), plan=plan
        )

    def _lists_now(self) -> list[Spans]:
        """Return the samples that each rank holds as the job begins; those that are pinned come first."""
        begun = self._settings.begun
        if self._kept is None or begun is None:
            return [((first, end),) if end > first else () for first, end in spans_of(self._members)]
        pinned = pinned_of(self._members)
        refuse_pinned_elsewhere(self._kept, self._members, pinned)
        steps = epoch_steps(self._kept.runs, begun.batch_size)
        step, is_begun = self._first_step, not steps.is_end(self._first_step)
        lists = lists_at(self._kept, step, steps.epoch(step), self._numbers, is_begun=is_begun)
        scheduled = scheduled_at(self._kept, step)
        for node, spans in zip(self._nodes, lists, strict=True):
            if stays_out := without(spans, scheduled):
                self._requests.say(cmd.Noted(left_out(node, stays_out, "they did not when the run was kept")))
        missing = without(scheduled, union(span for spans in lists for span in spans))
        self._requests.say(*map(cmd.Noted, gone(self._members, missing)))
        counted = [common(spans, scheduled) for spans in lists]
        return pinned_first(counted, [pinned[number] for number in self._numbers])

    @property
    def _method(self) -> Any:
        return self._settings.place or "nothing"

    def move(self, epochs: EpochSteps) -> Flow:
        """Let samples move that must be there before training; then let those go who train on nothing.

        Args:
            epochs: of the run.
        """
        run = self.runs[-1]
        epoch = epochs.epoch(self._first_step)
        before = [move for move in run.moves if move.epoch is None or move.epoch < epoch]
        moves = tuple(move for move in before if {move.source, move.target} <= {*self._numbers})  # others have left
        if moves:
            moved = cmd.Moved(0, 0.0, beside_training=False)
            for stage in stages(moves, self._members):
                replies = yield from self._move(stage)
                moved = added(moved, moved_of(replies.values()))
            if moved.num_bytes:
                told = f"moved {size(moved.num_bytes)} before training, in {duration(moved.seconds)}"
                self._requests.say(cmd.Noted(told))
            self._requests.say(moved, cmd.Prepared(MOVING))
        if moves and len(moves) == len(before):
            self._note_moved()
        idle = tuple(rank for rank, number in enumerate(self._numbers) if number not in run.members)
        if idle:
            yield from self._generations.spare(idle)
            yield from self._generations.begin(len(run.members))

    def _note_moved(self) -> None:
        """Say that samples are where the first step needs them: from now on those may be gone who gave them away."""
        assert self.data is not None, "it is decided before anything moves"
        run = replace(self.runs[-1], has_moved=True)
        self.data = replace(self.data, runs=(*self.runs[:-1], run))
        self._requests.say(cmd.Placed(self.data))

    def _move(self, moves: Sequence[SampleMove], examples: Sequence[Spans] = ()) -> Flow:
        """Let samples move; what nodes keep of earlier runs makes room for them where it must.

        Args:
            moves: of all nodes.
            examples: what each rank is to look at; empty: what it has looked at so far.
        """
        everyone = tuple(range(len(self._numbers)))
        runs = self.runs or (self._kept.runs if self._kept else ())
        needed = [needed_by(runs[-1], number) if runs else () for number in self._numbers]
        orders = move_orders(self._members, self._numbers, moves, needed, examples)
        return (yield from self._requests.collect(everyone, orders, "moved"))


def _check_chunks(ready: Ready, run: PlacedRun, settings: JobSettings) -> None:
    """Refuse another number of chunks than there are nodes that train; a run that goes on has what it must."""
    if settings.begun is None and ready["chunks"] not in (None, len(run.members)):
        raise PlanError(
            f"chunks are {ready['chunks']}, and with data that live on nodes each of the {len(run.members)} nodes that "
            "train has one of every batch. Leave out --chunks, and chunks of the program."
        )
