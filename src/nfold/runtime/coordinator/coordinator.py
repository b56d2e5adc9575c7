"""Decides what the ranks of a job do next. Pure: events in, commands out; no clock, no sockets, no processes.

    load ─> profile ─> listen, connect ─> probe, pace ─> plan ─> build ─> until / evaluate / checkpoint .. ─> finish
      └──────────────── any rank fails ──> post-mortem: who was first? ──> Failed

The job is one generator that is sent events and yields commands, so it reads in the order in which things happen. Ranks
may run a little ahead of what they reported, a window of about a third of a second, so that reports never hold up a
step and a stop is never far away.
"""

from collections.abc import Mapping
from dataclasses import replace

from nfold.core.averages import averaged
from nfold.core.best_model import BestSoFar, check_keep
from nfold.core.job import JobSettings, Known, Recipe
from nfold.errors import NfoldError
from nfold.planning.choosing.early_checks import check_last_batch
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.generations import Generations
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, build_orders
from nfold.runtime.coordinator.plan_trials import try_all
from nfold.runtime.coordinator.preparation import Preparation
from nfold.runtime.coordinator.progress import Progress
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.replanning import Replanning, plan_of
from nfold.runtime.coordinator.same_program import averages_of, check_same_program, recipe_of, tell_kept
from nfold.runtime.coordinator.steering import Steering
from nfold.runtime.coordinator.training import Training
from nfold.runtime.failures.failure_detector import PATIENCE, FailureDetector, Patience
from nfold.runtime.failures.network_cuts import QUIET_S, Cuts
from nfold.runtime.failures.postmortem import Postmortem
from nfold.runtime.measuring.reprobing import Reprobing

POSTMORTEM_S = 0.4
"""How long the other ranks have to say what they saw, after the first bad news."""


class Coordinator:
    """One job."""

    def __init__(
        self,
        settings: JobSettings,
        *,
        cores: int,
        known: Known | None = None,
        checkpoint: bytes = b"",
        first_step: int = 0,
        best: float | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self._settings, self._cores = settings, cores
        self._known, self._checkpoint, self._first_step = known, checkpoint, first_step
        self._postmortem = Postmortem(settings.world_size)
        self._patience, self._failure_detector, self._cuts = patience, FailureDetector(patience), Cuts(patience)
        self._requests = RankRequests(self._postmortem)
        self._generations = Generations(self._requests)
        self._planning = JobPlanning(settings, first_step)
        self._preparation = Preparation(self._planning, cores, self._requests, self._generations)
        self._best = BestSoFar(settings.kept, best)
        self._steering = Steering(first_step, is_looped=settings.lockstep)
        self._flow = self._run()
        self._over = False

    def start(self, places: Mapping[int, tuple[str, int]]) -> list[ev.Command]:
        """Return the first commands; call it once, when every rank has said hello.

        Args:
            places: host and process id of each rank.
        """
        for rank, (host, pid) in places.items():
            self._postmortem.place(rank, host, pid)
        return self._advance(None)

    def handle(self, event: ev.Event) -> list[ev.Command]:
        """Take in an event and return what to do about it."""
        if self._over:
            return []
        if isinstance(event, ev.Tick):
            return [] if self._postmortem.open else self._watch(event) or self._watch_network(event)
        if isinstance(event, ev.Received) and event.message["is"] == "alive":
            self._cuts.hear(event.rank, dict(event.message["silent_s"]))
            return []
        if isinstance(event, ev.Continue):
            self._steering.ask()  # here, because it may come while the ranks are still getting ready
        if isinstance(event, ev.Sentenced):
            self._postmortem.sentenced(event.ranks, event.fault)
            return []
        if isinstance(event, ev.Left):
            self._postmortem.left(event.rank, event.status)
        elif isinstance(event, ev.Received) and event.message["is"] == "failed":
            self._postmortem.failed(event.rank, event.message)
        elif isinstance(event, ev.Received) and event.message["is"] == "finished":
            self._postmortem.excuse((event.rank,))  # it may leave before the others have finished
        if self._postmortem.open:
            return self._examine(event)
        if isinstance(event, ev.Received) and event.message["is"] == "wants":
            return [ev.SendState(event.rank, event.message["start"], event.message["stop"])]
        return self._advance(event)

    def _advance(self, event: ev.Event | None) -> list[ev.Command]:
        try:
            return self._flow.send(event)  # type: ignore[arg-type]
        except StopIteration as end:
            self._over = True
            return list(end.value or [])
        except (NfoldError, KeyboardInterrupt) as error:
            self._over = True
            return [ev.Failed(error)]

    def _watch(self, tick: ev.Tick) -> list[ev.Command]:
        """Say which ranks have fallen silent, and give up those that stay so."""
        patience, loading = self._patience, self._postmortem.is_loading
        news = self._failure_detector.look(tick, self._postmortem.awaited, loading=loading)
        lost_s = patience.loading_s if loading else patience.lost_s
        notes = [self._postmortem.tell_silence(rank, patience.noticed_s, lost_s) for rank in news.silent]
        notes += [self._postmortem.tell_return(rank) for rank in news.back]
        for rank in news.lost:
            self._postmortem.silent(rank, lost_s)
        commands: list[ev.Command] = [ev.Noted(note) for note in notes]
        return commands + (self._examine(tick) if news.lost else [])

    def _watch_network(self, tick: ev.Tick) -> list[ev.Command]:
        """Say which ranks hear nothing from each other, and give up when that stays so."""
        awaited = self._postmortem.awaited
        heard = {rank for rank in awaited if tick.now_s - tick.heard_s.get(rank, tick.now_s) < QUIET_S}
        news = self._cuts.look(heard, awaited - heard)
        notes = [self._postmortem.tell_cut(cut, self._patience.lost_s) for cut in news.begun]
        notes += [self._postmortem.tell_healed(cut) for cut in news.healed]
        for cut in news.lost:
            self._postmortem.cut_off(cut)
        commands: list[ev.Command] = [ev.Noted(note) for note in notes]
        return commands + (self._examine(tick) if news.lost else [])

    def _examine(self, event: ev.Event) -> list[ev.Command]:
        """Collect what every rank has to say, then name the first cause."""
        if not self._postmortem.complete and not isinstance(event, ev.TimedOut):
            return [ev.SetTimer(POSTMORTEM_S)] if self._postmortem.take_first() else []
        self._over = True
        error, details = self._postmortem.error(), self._postmortem.details()
        return [ev.Failed(error, details, is_death=self._postmortem.is_death)]

    # The job, in order

    def _run(self) -> Flow:
        everyone = tuple(range(self._settings.world_size))
        ready = yield from self._requests.ask(everyone, self._preparation.load_order(), "ready")
        facts = self._preparation.check_ready(ready)
        recipe = recipe_of(facts)
        if self._settings.kept is not None:
            has_test, evaluates = bool(facts["has_test"]), self._settings.evaluate
            metrics = [*facts["metrics"], *(map(averaged, facts["metrics"]) if averages_of(facts) else ())]
            check_keep(self._settings.kept, metrics, has_test=has_test, evaluates=evaluates)
        if self._settings.begun is not None:
            check_same_program(self._settings.begun, facts["batch_size"], recipe)
        if self._settings.trials:
            return (yield from try_all(self._settings, self._cores, self._requests, self._generations, facts))
        if self._known is None:
            known = yield from self._preparation.measure(facts)
        else:
            known = self._known
            check_last_batch(known.graph, self._planning.course(facts))
            yield from self._preparation.wire()
        chosen = known.plan or self._planning.plan(known, facts)
        known = replace(known, plan=chosen)
        course, foretold = self._planning.course(facts), self._planning.notes(facts, chosen, known.graph)
        total, per_epoch = course.total_steps, course.steps_per_epoch
        planned = ev.Planned(known, chosen, total, per_epoch, self._first_step, recipe, foretold)
        if self._settings.plan_only:
            self._requests.say(planned)
            yield from self._requests.ask(everyone, {"do": "finish", "tag": 0}, "finished")
            return [ev.Finished()]
        idle = everyone[chosen.world_size :]
        if idle:
            yield from self._requests.ask(idle, {"do": "finish", "tag": 0}, "finished")
        ranks = everyone[: chosen.world_size]
        self._requests.say(planned)
        return (yield from self._play(ranks, known, facts, recipe))

    def _play(self, ranks: tuple[int, ...], known: Known, facts: Ready, recipe: Recipe) -> Flow:
        """Train, generation after generation, until the last step."""
        header, first_step, course = self._checkpoint, self._first_step, self._planning.course(facts)
        training = Training(
            self._settings, course, averages_of(facts), self._best, self._steering, self._requests, self._postmortem,
            evaluates=bool(facts["has_test"]) and self._settings.evaluate,
        )  # fmt: skip
        while True:
            chosen = plan_of(known)
            orders = build_orders(known, chosen, course.total_steps, header)
            built = yield from self._requests.collect(ranks, orders, "built")
            told = dict.fromkeys(note for reply in built.values() for note in reply["notes"])
            notes: list[ev.Command] = [ev.Noted(f"note: {text}") for text in told]
            if first_step == self._first_step:
                notes = [*tell_kept(built.values(), recipe), *notes]
            planning = self._planning.of(chosen)
            expected_s = planning.expected_s(known, chosen, facts) if self._settings.measure else {}
            replanning = Replanning(
                planning,
                known,
                facts,
                price_s=2 * max(reply["seconds"] for reply in built.values()),
                is_wanted=self._settings.checkpoint_every != 0,
            )
            reprobing = Reprobing(chosen.nodes, known.cluster, expected_s)
            progress = Progress(ranks, chosen, first_step, course.steps_per_epoch)
            ended = yield from training.play(ranks, progress, reprobing, replanning, notes)
            if replanning.next is None:
                return ended
            header, known, first_step = ended, replanning.next, progress.done
            ranks = yield from self._regroup(ranks, known, first_step)

    def _regroup(self, ranks: tuple[int, ...], known: Known, next_step: int) -> Flow:
        """Let the ranks of another plan begin a generation, and the others go; return those who stay."""
        chosen = plan_of(known)
        stay, left = ranks[: chosen.world_size], ranks[chosen.world_size :]
        self._requests.say(ev.Replanned(known, chosen, next_step))
        if left:
            yield from self._requests.ask(left, {"do": "abandon"}, "abandoned")
            yield from self._requests.ask(left, {"do": "finish", "tag": 0}, "finished")
        yield from self._generations.begin(stay)
        return stay
