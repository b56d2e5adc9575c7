"""Trains, generation after generation, from the first plan to the last step. Pure.

build ──> until .. ──> the last step
  ^          └── another plan pays, or members come and go ──> checkpoint ──> regroup ──┐
  └─────────────────────────────────────────────────────────────────────────────────────┘
"""

from dataclasses import dataclass

from nfold.core.job import JobSettings, Known, Recipe
from nfold.core.members import Turnover
from nfold.core.residency import PlacedRun
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, build_orders
from nfold.runtime.coordinator.members.generation_end import GenerationEnd
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.members.regrouping import Regrouping
from nfold.runtime.coordinator.placing.beside_training import with_moves
from nfold.runtime.coordinator.progress import Progress
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.replanning import Replanning, plan_of
from nfold.runtime.coordinator.same_program import tell_kept
from nfold.runtime.coordinator.training import Training
from nfold.runtime.failures.ranks_lost import RanksLost
from nfold.runtime.measuring.reprobing import Reprobing
from nfold.runtime.measuring.shifting_speeds import ShiftingSpeeds


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a generation begins with."""

    known: Known
    """With its plan; the plan's ranks are connected."""
    header: bytes
    """Of the state that it goes on from; empty: the run begins."""
    next_step: int
    """Counts from 0."""


class Succession:
    """The generations of one job."""

    def __init__(
        self,
        settings: JobSettings,
        planning: JobPlanning,
        requests: RankRequests,
        membership: Membership,
        regrouping: Regrouping,
        training: Training,
        placed: tuple[PlacedRun, ...] = (),
    ) -> None:
        """Args:
        settings: of the job.
        planning: for its first ranks.
        requests: to ranks.
        membership: who they are.
        regrouping: connects the ranks of the next generation.
        training: the steps.
        placed: who trains on which samples, in all generations; empty: all ranks read all.
        """
        self._placed = placed
        self._progress: Progress | None = None
        self._speeds = ShiftingSpeeds()
        self._settings, self._planning, self._requests = settings, planning, requests
        self._membership, self._regrouping, self._training = membership, regrouping, training

    def play(self, known: Known, ready: Ready, recipe: Recipe, checkpoint: bytes, first_step: int) -> Flow:
        """Train until the last step; return the last commands.

        Args:
            known: with the plan of the first generation, whose ranks are connected.
            ready: what ranks told of the program.
            recipe: the same, as it is kept.
            checkpoint: header of the state that the run goes on from; empty: it begins.
            first_step: counts from 0.
        """
        beginning, is_first, loss = Beginning(known, checkpoint, first_step), True, None
        while True:
            try:
                if loss is not None:
                    beginning = yield from self._without(loss, beginning, ready)
                    loss = None
                told = recipe if is_first else None
                generation_end, done, ended = yield from self._generation(beginning, ready, told)
                if not isinstance(ended, bytes):
                    return ended
                beginning, is_first = Beginning(generation_end.known, ended, done), False
                known = yield from self._regrouping.follow(generation_end, ready, done)
                beginning = Beginning(known, ended, done)
            except RanksLost as error:
                loss = error if loss is None else RanksLost((*loss.hosts, *error.hosts))

    def _without(self, loss: RanksLost, beginning: Beginning, ready: Ready) -> Flow:
        """Go back to what was kept last, with those who are left; return what they begin with."""
        ranks = tuple(range(len(self._membership.ranks)))
        yield from self._requests.ask(ranks, {"do": "abandon"}, "abandoned")
        header, step, done = beginning.header, beginning.next_step, beginning.next_step
        if self._progress is not None:
            done = max(done, self._progress.done)
            if (kept := self._progress.kept or 0) > step:
                header, step = (yield from self._training.take_state()), kept
        turnover = Turnover(lost=loss.hosts, steps_again=done - step)
        known = yield from self._regrouping.without(turnover, beginning.known, ready, step)
        return Beginning(known, header, step)

    def _generation(self, beginning: Beginning, ready: Ready, recipe: Recipe | None) -> Flow:
        """Build and train; return why it ended, the steps that are done, and what `Training.play` does.

        Args:
            beginning: what it begins with.
            ready: what ranks told of the program.
            recipe: to say what a checkpoint has changed of it, in the first generation of a run that goes on.
        """
        known, chosen, run_steps = beginning.known, plan_of(beginning.known), self._planning.run_steps(ready)
        ranks = tuple(range(chosen.world_size))
        orders = build_orders(known, chosen, run_steps.total_steps, beginning.header, self._placed, ready["seed"])
        orders = with_moves(orders, known, chosen, self._placed, beginning.next_step // run_steps.steps_per_epoch)
        built = yield from self._requests.collect(ranks, orders, "built")
        told = dict.fromkeys(note for reply in built.values() for note in reply["notes"])
        notes = [*(tell_kept(built.values(), recipe) if recipe else ()), *(cmd.Noted(f"note: {text}") for text in told)]
        planning = self._planning.of(chosen)
        replanning = Replanning(
            planning,
            known,
            ready,
            price_s=2 * max(reply["seconds"] for reply in built.values()),
            is_wanted=self._settings.checkpoint_every != 0,
            speeds=self._speeds,
        )
        expected_s = planning.expected_s(known, chosen, ready) if self._settings.measure else {}
        generation_end = GenerationEnd(replanning, self._membership)
        reprobing = Reprobing(chosen.nodes, known.cluster, expected_s)
        progress = self._progress = Progress(ranks, chosen, beginning.next_step, run_steps.steps_per_epoch)
        ended = yield from self._training.play(ranks, progress, reprobing, generation_end, notes)
        return generation_end, progress.done, ended
