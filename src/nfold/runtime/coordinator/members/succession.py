"""Trains, generation after generation, from the first plan to the last step. Pure.

build ──> until .. ──> the last step
  ^          └── another plan pays, or members come and go ──> hold the state ──> regroup ──┐
  └────────────────────────────────────────────────────────────────────────────────────────┤
                                   who is left has no plan, and others can come ──> wait ──┘
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nfold.core.job import JobSettings, Known, Recipe
from nfold.core.members import Turnover
from nfold.errors import PlanError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, build_orders, with_placed
from nfold.runtime.coordinator.members.generation_end import GenerationEnd
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.members.placed_regrouping import PlacedRegrouping
from nfold.runtime.coordinator.members.regrouping import Regrouping
from nfold.runtime.coordinator.members.standstill import Standstill
from nfold.runtime.coordinator.placing.beside_training import with_moves
from nfold.runtime.coordinator.placing.brought import planned_from
from nfold.runtime.coordinator.placing.living_data import LivingData
from nfold.runtime.coordinator.progress import Progress
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.replanning import Replanning, plan_of
from nfold.runtime.coordinator.same_program import tell_kept
from nfold.runtime.coordinator.states.hand_over import HandOver
from nfold.runtime.coordinator.states.protection import Protection
from nfold.runtime.coordinator.training import Training
from nfold.runtime.failures.ranks_lost import RanksLost
from nfold.runtime.measuring.reprobing import Reprobing
from nfold.runtime.measuring.shifting_speeds import ShiftingSpeeds
from nfold.runtime.measuring.slowness import ProbeSpacing

STOP_S = 0.1
"""What ranks take to stop after the same step and to connect again, however little they build."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a generation begins with."""

    known: Known
    """With its plan; the plan's ranks are connected."""
    header: bytes
    """Of the state that it goes on from; empty: the run begins."""
    next_step: int
    """Counts from 0."""
    builds: tuple[dict[str, Any], ...] = ()
    """The order that makes each rank build its part, without the state; empty: it is compiled when it is needed."""


class Succession:
    """The generations of one job."""

    def __init__(
        self,
        settings: JobSettings,
        planning: JobPlanning,
        requests: RankRequests,
        membership: Membership,
        generations: Generations,
        regrouping: Regrouping | PlacedRegrouping,
        training: Training,
        hand_over: HandOver,
        protection: Protection,
        living: LivingData | None = None,
    ) -> None:
        """Args:
        settings: of the job.
        planning: for its first ranks.
        requests: to ranks.
        membership: who they are.
        generations: begins them.
        regrouping: connects the ranks of the next generation.
        training: the steps.
        hand_over: has the state that the next generation goes on from.
        protection: says when ranks keep snapshots.
        living: who trains on which samples; None: all ranks read all.
        """
        self._living = living
        self._progress: Progress | None = None
        self._speeds, self._spacing = ShiftingSpeeds(), ProbeSpacing()
        self._settings, self._planning, self._requests = settings, planning, requests
        self._membership, self._generations, self._regrouping = membership, generations, regrouping
        self._training, self._hand_over, self._protection = training, hand_over, protection
        self._kept = 0
        """Steps of the last checkpoint that this part of the run has kept; 0: none."""
        self._file = (b"", 0)
        """Header and steps of the last file that ranks were or could be given."""
        self._standstill: Standstill | None = None
        """How ranks wait that have no plan; None: nobody can come, so that the run ends."""
        if isinstance(regrouping, Regrouping) and training.host_wait.may_wait:
            given = (requests, membership, generations, regrouping, hand_over, training.host_wait)
            self._standstill = Standstill(*given)
        self._loss: RanksLost | None = None
        """That was not told yet."""
        self._is_loss_told = False
        """Whether what the last generation has lost was told, so that its steps are counted."""

    def play(self, known: Known, ready: Ready, recipe: Recipe, checkpoint: bytes, first_step: int) -> Flow:
        """Train until the last step; return the last commands.

        Args:
            known: with the plan of the first generation, whose ranks are connected.
            ready: what ranks told of the program.
            recipe: the same, as it is kept.
            checkpoint: header of the state that the run goes on from; empty: it begins.
            first_step: counts from 0.
        """
        self._file, self._beginning = (checkpoint, first_step), Beginning(known, checkpoint, first_step)
        told: Recipe | None = recipe
        generation_end: GenerationEnd | None = None
        ended: Any = None
        while True:
            try:
                if self._loss is not None:
                    ended = yield from self._without(self._loss, ready)
                elif generation_end is not None:
                    ended = yield from self._followed(generation_end, ready)
                if isinstance(ended, list):
                    return ended
                generation_end, done, ended = yield from self._generation(self._beginning, ready, told)
                self._note_kept()
                if not isinstance(ended, bytes):
                    return ended
                self._beginning, told = Beginning(generation_end.known, ended, done), None
            except RanksLost as error:
                self._take_late([*self._requests.late, *error.late], error.members)
                before = self._loss or RanksLost(())
                self._loss = RanksLost((*before.hosts, *error.hosts), left=(*before.left, *error.left))

    def _followed(self, generation_end: GenerationEnd, ready: Ready) -> Flow:
        """Connect those for whom the generation before has ended; return the last commands if the run ends."""
        ready, done, before = self._as_seen(ready), self._beginning.next_step, self._membership.ranks
        try:
            known, builds = yield from self._regrouping.follow(generation_end, ready, done)
        except PlanError as error:
            if self._standstill is None or not self._membership.others_could_come:
                raise
            self._standstill.tell_left(before, done, error)
            yield from self._generations.sever(tuple(range(len(self._membership.ranks))))
            return (yield from self._wait_for_room(self._standstill, ready))
        self._beginning = replace(self._beginning, known=known, builds=builds)
        return None

    def _wait_for_room(self, standstill: Standstill, ready: Ready) -> Flow:
        """Wait for others where there is no plan for those who are left; return the last commands if none come."""
        step = self._beginning.next_step
        yield from self._keep(step)
        begun = yield from standstill.wait(self._beginning.known, ready, step, self._training.wished_end)
        if isinstance(begun, list):
            return begun
        known, builds = begun
        header = self._hand_over.header
        if not header:  # it was in the memory of somebody who has left
            header, _ = yield from self._last_file()
        self._beginning = Beginning(known, header, step, builds)
        return None

    def _without(self, loss: RanksLost, ready: Ready) -> Flow:
        """Go back to what was kept last, with those who are left; return the last commands if the run ends."""
        ranks, beginning = tuple(range(len(self._membership.ranks))), self._beginning
        yield from self._generations.sever(ranks)
        self._take_late(self._requests.late, self._membership.ranks)
        self._note_kept()
        progress, chunks = self._progress, plan_of(beginning.known).chunks
        counts = progress if progress is not None and not self._is_loss_told else None
        done = max(beginning.next_step, counts.done if counts is not None else 0)
        most = max(done, counts.countable if counts is not None else 0)
        state = yield from self._hand_over.recall(ranks, most, chunks)
        known = replace(beginning.known, cluster=self._speeds.in_cluster(beginning.known.cluster))
        kept = max(self._kept, self._file[1])
        if state is not None and state.step >= kept and self._may_keep(known, ready, state.step, kept):
            if counts is not None and state.step > done:
                self._requests.say(*counts.count_to(state.step))
                done = state.step
            header, step = state.header, state.step
            told = "the step under way" if state.is_committed and step >= done else "a snapshot"
        else:
            self._hand_over.forget()
            header, step = yield from self._last_file()
            told = "a checkpoint" if header else "the beginning"
        if progress is not None:
            self._training.go_back(step, progress)
        if self._living is not None and self._hand_over.header:
            yield from self._keep(step)
            self._hand_over.forget()
            header, _ = yield from self._last_file()
        turnover = Turnover(lost=loss.hosts, left=loss.left, steps_again=done - step, again_from=told)
        after = Beginning(known, header, step)
        try:
            known, builds = yield from self._regrouping.without(
                turnover, known, self._as_seen(ready), step, lambda: self._note_told(after)
            )
        except PlanError as error:
            if self._standstill is None or not self._membership.others_could_come:
                raise
            self._standstill.tell(turnover, step, error)
            self._note_told(after)
            return (yield from self._wait_for_room(self._standstill, self._as_seen(ready)))
        self._beginning = Beginning(known, header, step, builds)
        return None

    def _may_keep(self, known: Known, ready: Ready, step: int, kept: int) -> bool:
        """Whether those who are left may go on from a step, in place of the checkpoint that was kept last."""
        if not isinstance(self._regrouping, PlacedRegrouping):
            return True
        why = self._regrouping.further_back(known, self._as_seen(ready), step, kept)
        if why is not None:
            self._requests.say(cmd.Noted(f"note: from step {step + 1} on those who are left cannot train: {why}"))
        return why is None

    def _keep(self, step: int) -> Flow:
        """Let ranks keep the state that is in their memory, unless there is none or a file has it."""
        if self._hand_over.header and step > max(self._kept, self._file[1]):
            yield from self._generations.keep(step, lambda: self._note_file(step))

    def _note_told(self, after: Beginning) -> None:
        """Note that a loss was told, and with what those who are left go on: another one does not count it again."""
        self._loss, self._is_loss_told, self._beginning = None, True, after

    def _take_late(self, told: Sequence[ev.Received], members: tuple[int, ...]) -> None:
        """Take in what ranks told of the generation that has ended: the newest state may be known only by that.

        Args:
            told: by the ranks that members had then.
            members: by these.
        """
        progress, generation = self._progress, self._membership.generation
        if progress is None or generation is None:
            return
        for each in told:
            if each.message["is"] in ("delivered", "kept") and each.file is not None:
                each.file.drop()  # it is sent again
            if (number := members[each.rank]) not in generation.members:
                continue
            by_earlier_rank = replace(each, rank=generation.members.index(number))
            news = progress.take(by_earlier_rank)
            self._requests.say(*news)
            self._training.hear_late(news)
            self._protection.note(by_earlier_rank.rank, each.message)

    def _last_file(self) -> Flow:
        """Return header and steps of the checkpoint that was kept last; without one, of what the run began with."""
        if self._kept > self._file[1]:
            unsaid = self._requests.take_unsaid()  # it may be that checkpoint which came last
            self._file = (yield from self._training.take_state(unsaid)), self._kept
        return self._file

    def _as_seen(self, ready: Ready) -> Ready:
        return {**ready, "may_rest": self._speeds.seen}

    def _note_kept(self) -> None:
        if self._progress is not None:
            self._kept = max(self._kept, self._progress.kept or 0)

    def _note_file(self, step: int) -> None:
        """Note that ranks which wait have kept the state that all go on from."""
        self._kept = step
        if self._progress is not None:
            self._training.drop_owed(step, self._progress)

    def _generation(self, beginning: Beginning, ready: Ready, recipe: Recipe | None) -> Flow:
        """Build and train; return why it ended, the steps that are done, and what `Training.play` does.

        Args:
            beginning: what it begins with.
            ready: what ranks told of the program.
            recipe: to say what a checkpoint has changed of it, in the first generation of a run that goes on.
        """
        placed = self._living.runs if self._living is not None else ()
        ready = with_placed(ready, placed)
        known, chosen, run_steps = beginning.known, plan_of(beginning.known), self._planning.run_steps(ready)
        self._training.lasts(run_steps)
        ranks = tuple(range(chosen.world_size))
        orders = [cmd.Order((rank,), build, beginning.header) for rank, build in enumerate(beginning.builds)]
        orders = orders or build_orders(known, chosen, run_steps.total_steps, beginning.header, placed, ready["seed"])
        data = self._living.data if self._living is not None else None
        orders = with_moves(orders, known, chosen, data, run_steps.by_epoch.epoch(beginning.next_step))
        costs = self._protection.begin(chosen, known.cluster)
        orders = self._hand_over.with_sources(orders, self._protection.wishes)
        built = yield from self._requests.collect(ranks, orders, "built")
        told = dict.fromkeys(note for reply in built.values() for note in reply["notes"])
        given = sum(reply.get("state_bytes", 0) for reply in built.values())  # who begins anew is given none
        read: list[cmd.Command] = [cmd.StateRead(given)] if given else []
        for rank, reply in built.items():
            if (begun := reply.get("snapshot")) is not None:
                read += self._protection.take(rank, {"is": "snapshot", "step": beginning.next_step, **begun}, None)
        notes = [
            *costs,
            *read,
            *(tell_kept(built.values(), recipe) if recipe else ()),
            *(cmd.Noted(f"note: {text}") for text in told),
        ]
        planning = self._planning.of(chosen)
        from_step = planned_from(placed[-1], run_steps.by_epoch) if placed else 0
        replanning = Replanning(
            planning,
            known,
            ready,
            price_s=STOP_S + 2 * max(reply["seconds"] for reply in built.values()),
            shares_price_s=STOP_S + 2 * max(reply["seconds"] - reply.get("model_s", 0.0) for reply in built.values()),
            is_wanted=self._settings.checkpoint_every != 0,
            speeds=self._speeds,
            from_step=from_step,
        )
        watched = self._settings.measure
        expected_s = partial(planning.expected_s, known, chosen, ready) if watched else dict[str, float]
        lookahead = self._regrouping.lookahead
        generation_end = GenerationEnd(replanning, self._membership, lookahead)
        reprobing = Reprobing(chosen.nodes, known.cluster, expected_s, self._spacing, from_step)
        progress = self._progress = Progress(ranks, chosen, beginning.next_step, run_steps.by_epoch)
        self._is_loss_told = False
        if lookahead is not None:
            notes += lookahead.begin(known, self._as_seen(ready))
        ended = yield from self._training.play(ranks, progress, reprobing, generation_end, notes)
        return generation_end, progress.done, ended
