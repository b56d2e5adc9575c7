"""Decides what the ranks of a job do next. Pure: events in, commands out; no clock, no sockets, no processes.

    load ─> profile ─> listen, connect ─> probe, pace ─> plan ─> build ─> until / evaluate / checkpoint .. ─> finish
      └──────────────── any rank fails ──> post-mortem: who was first? ──> Failed

The job is one generator that is sent events and yields commands, so it reads in the order in which things happen. Ranks
may run a little ahead of what they reported, a window of about a third of a second, so that reports never hold up a
step and a stop is never far away.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nfold.core import codec
from nfold.core.averages import Averages, averaged, is_averaged
from nfold.core.trace import RankUsage
from nfold.errors import NfoldError
from nfold.planning.foretold import check_last_batch
from nfold.runtime import events as ev
from nfold.runtime.asking import Asking, Flow
from nfold.runtime.best import BestSoFar, check_keep
from nfold.runtime.cuts import QUIET_S, Cuts
from nfold.runtime.generations import Generations
from nfold.runtime.halting import Halting
from nfold.runtime.postmortem import Postmortem
from nfold.runtime.preparation import Preparation, Ready, build_orders
from nfold.runtime.progress import Progress
from nfold.runtime.replanning import Replanning, plan_of
from nfold.runtime.reprobing import Reprobing
from nfold.runtime.same_program import averages_of, check_same_program, recipe_of, tell_kept
from nfold.runtime.settings import JobSettings, Known, Recipe
from nfold.runtime.steering import Steering
from nfold.runtime.trials import try_all
from nfold.runtime.vigil import PATIENCE, Patience, Vigil

if TYPE_CHECKING:
    from nfold.runtime.spool import Arrived

POSTMORTEM_S = 0.4
"""How long the other ranks have to say what they saw, after the first bad news."""
STOPPING = "stopping after the step under way; press Ctrl-C again to stop now"


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
        self._patience, self._vigil, self._cuts = patience, Vigil(patience), Cuts(patience)
        self._asking = Asking(self._postmortem)
        self._generations = Generations(self._asking)
        self._preparation = Preparation(settings, cores, self._asking, self._generations, first_step)
        self._best = BestSoFar(settings.keep, best)
        self._steering = Steering(first_step, is_looped=settings.lockstep)
        self._gathers = 0
        self._averages: Averages | None = None
        self._per_epoch = 1
        self._interrupted = self._time_is_up = self._is_terminated = False
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
        news = self._vigil.look(tick, self._postmortem.awaited, loading=loading)
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
        ready = yield from self._asking.ask(everyone, self._preparation.load_order(), "ready")
        facts = self._preparation.check_ready(ready)
        recipe = recipe_of(facts)
        self._averages, self._per_epoch = averages_of(facts), self._preparation.course(facts).steps_per_epoch
        if self._settings.keep is not None:
            has_test, evaluates = bool(facts["has_test"]), self._settings.evaluate
            metrics = [*facts["metrics"], *(map(averaged, facts["metrics"]) if self._averages else ())]
            check_keep(self._settings.keep, metrics, has_test=has_test, evaluates=evaluates)
        if self._settings.begun is not None:
            check_same_program(self._settings.begun, facts["batch_size"], recipe)
        if self._settings.trials:
            return (yield from try_all(self._settings, self._cores, self._asking, self._generations, facts))
        if self._known is None:
            known = yield from self._preparation.measure(facts)
        else:
            known = self._known
            check_last_batch(known.graph, self._preparation.course(facts))
            yield from self._preparation.wire()
        chosen = known.plan or self._preparation.plan(known, facts)
        known = replace(known, plan=chosen)
        course, foretold = self._preparation.course(facts), self._preparation.notes(facts, chosen, known.graph)
        total, per_epoch = course.total_steps, course.steps_per_epoch
        planned = ev.Planned(known, chosen, total, per_epoch, self._first_step, recipe, foretold)
        if self._settings.plan_only:
            self._asking.say(planned)
            yield from self._asking.ask(everyone, {"do": "finish", "tag": 0}, "finished")
            return [ev.Finished()]
        idle = everyone[chosen.world_size :]
        if idle:
            yield from self._asking.ask(idle, {"do": "finish", "tag": 0}, "finished")
        ranks = everyone[: chosen.world_size]
        self._asking.say(planned)
        return (yield from self._play(ranks, known, facts, recipe))

    def _play(self, ranks: tuple[int, ...], known: Known, facts: Ready, recipe: Recipe) -> Flow:
        """Train, generation after generation, until the last step."""
        header, first_step = self._checkpoint, self._first_step
        while True:
            chosen, total = plan_of(known), self._preparation.course(facts).total_steps
            built = yield from self._asking.collect(ranks, build_orders(known, chosen, total, header), "built")
            told = dict.fromkeys(note for reply in built.values() for note in reply["notes"])
            notes: list[ev.Command] = [ev.Noted(f"note: {text}") for text in told]
            if first_step == self._first_step:
                notes = [*tell_kept(built.values(), recipe), *notes]
            preparation = self._preparation.of(chosen)
            expected_s = preparation.expected_s(known, chosen, facts) if self._settings.measure else {}
            replanning = Replanning(
                preparation,
                known,
                facts,
                price_s=2 * max(reply["seconds"] for reply in built.values()),
                is_wanted=self._settings.checkpoint_every != 0,
            )
            reprobing = Reprobing(chosen.nodes, known.cluster, expected_s)
            progress = Progress(ranks, chosen, first_step, self._per_epoch)
            ended = yield from self._train(ranks, progress, facts, reprobing, replanning, notes)
            if replanning.next is None:
                return ended
            header, known, first_step = ended, replanning.next, progress.done
            ranks = yield from self._regroup(ranks, known, first_step)

    def _regroup(self, ranks: tuple[int, ...], known: Known, next_step: int) -> Flow:
        """Let the ranks of another plan begin a generation, and the others go; return those who stay."""
        chosen = plan_of(known)
        stay, left = ranks[: chosen.world_size], ranks[chosen.world_size :]
        self._asking.say(ev.Replanned(known, chosen, next_step))
        if left:
            yield from self._asking.ask(left, {"do": "abandon"}, "abandoned")
            yield from self._asking.ask(left, {"do": "finish", "tag": 0}, "finished")
        yield from self._generations.begin(stay)
        return stay

    # Training

    def _train(
        self,
        ranks: tuple[int, ...],
        progress: Progress,
        facts: Ready,
        reprobing: Reprobing,
        replanning: Replanning,
        commands: list[ev.Command],
    ) -> Flow:
        """Train until the end, or until another plan is to follow; return the last commands, or the state's header."""
        course = self._preparation.course(facts)
        total, per_epoch = course.total_steps, course.steps_per_epoch
        halting, granted = Halting(ranks), progress.done
        has_test = bool(facts["has_test"]) and self._settings.evaluate
        self._postmortem.ordered("until")
        is_first = granted == self._first_step
        if is_first and has_test and self._settings.begun is not None and not self._settings.begun.is_evaluated:
            commands = [*commands, self._evaluation(granted, ranks, progress)]
        for wish in self._asking.take_postponed():
            commands = [*commands, *self._hear_wish(wish, granted, ranks, progress)]
        while progress.done < total or self._steering.is_held(progress.done) or self._waits_for_best(progress):
            allowed = self._steering.allowed(total)
            if self._time_is_up and progress.done > self._first_step:  # who goes on gets somewhere, however often
                self._interrupted = True
            stop = min(self._next_stop(granted, total, per_epoch), allowed, progress.done + progress.window())
            is_ending = self._interrupted or replanning.next is not None
            is_held = is_ending or reprobing.is_open or self._waits_for_best(progress)
            if stop > granted and not is_held:
                commands.append(ev.Order(ranks, {"do": "until", "step": stop}))
                granted = stop
                commands += self._orders_at(granted, ranks, total, per_epoch, has_test, progress)
                continue
            commands += self._steering.hand_out(progress.done, granted, is_waiting=bool(progress.pending))
            if is_ending and progress.done == granted and not progress.pending:
                break
            if is_ending and not progress.is_asynchronous and not progress.pending:
                commands += halting.ask()  # what is ordered behind a step shall find that step's weights
            event = yield commands
            commands = []
            commands += self._hear_wish(event, granted, ranks, progress)
            if isinstance(event, ev.Received):
                news = [*progress.take(event), *reprobing.take(event, granted)]
                commands += news
                commands += replanning.take(news, total - granted)
                commands += self._best_of(news, ranks, progress)
                if (halted := halting.take(event)) is not None:
                    granted = max(progress.done, halted)
                    commands.append(ev.Order(ranks, {"do": "until", "step": granted}))
                for done in news:
                    if isinstance(done, ev.StepDone) and granted < total and not self._interrupted:
                        commands += reprobing.look(done)
                self._postmortem.reached(progress.done)
        if replanning.next is not None and granted < total and not self._interrupted:
            kept = yield from self._hand_over(ranks, progress, commands)
            if isinstance(kept, bytes):
                return kept
            replanning.give_up()
            return (yield from self._train(ranks, progress, facts, reprobing, replanning, kept))
        replanning.next = None
        if self._interrupted and granted < total and self._settings.checkpoint_every != 0 and not progress.unkept:
            commands.append(self._keeping(granted, ranks, progress))
        if self._has_averages(granted):
            progress.pending.append((granted, "average", set(ranks)))
            commands.append(ev.Order(ranks, {"do": "average", "tag": self._next_tag()}))
        commands.append(ev.Order(ranks, {"do": "finish", "tag": self._next_tag()}))
        self._postmortem.ordered("finish")
        return (yield from self._finish(ranks, progress, commands, total))

    def _hear_wish(self, event: ev.Event, granted: int, ranks: tuple[int, ...], progress: Progress) -> list[ev.Command]:
        """Take note of what the user wants of a run that trains."""
        if isinstance(event, ev.Interrupted):
            self._is_terminated |= event.by_manager
            self._interrupted = True
            return [ev.Noted(STOPPING)] if event.by_key else []
        if isinstance(event, ev.TimeUp):
            self._time_is_up = not self._interrupted
        return [self._keeping(granted, ranks, progress)] if isinstance(event, ev.CheckpointWanted) else []

    def _hand_over(self, ranks: tuple[int, ...], progress: Progress, commands: list[ev.Command]) -> Flow:
        """Keep a checkpoint of the step at which all have stopped; return the header of what the next ranks read.

        Where nobody can go on from a checkpoint of this program, return commands that are still to be said.
        """
        if progress.kept != progress.done and not progress.unkept:
            commands.append(self._keeping(progress.done, ranks, progress))
        while progress.pending:
            event = yield commands
            commands = progress.take(event) if isinstance(event, ev.Received) else []
            self._asking.postpone(event)
        if progress.unkept:
            return commands
        commands.append(ev.TakeState())
        while not isinstance(event := (yield commands), ev.StateTaken):
            self._asking.postpone(event)
            commands = []
        return event.header

    def _finish(self, ranks: tuple[int, ...], progress: Progress, commands: list[ev.Command], total: int) -> Flow:
        left, usage = set(ranks), {}
        model: Arrived | None = None
        staleness: dict[str, int] = {}
        while left:
            event = yield commands
            commands = []
            if not isinstance(event, ev.Received):
                continue
            if event.message["is"] == "finished":
                left.discard(event.rank)
                usage[event.rank] = codec.decode(RankUsage, event.message["usage"])
                model = event.file or model
                staleness = event.message["staleness"] or staleness
            else:
                commands = progress.take(event)
        order = tuple(usage[rank] for rank in sorted(usage))
        is_early = progress.done < total
        ended = ev.Finished(
            order,
            model,
            interrupted=is_early,
            is_time_up=is_early and self._time_is_up,
            is_terminated=is_early and self._is_terminated,
            staleness=staleness,
        )
        return [*commands, ended]

    def _next_stop(self, granted: int, total: int, per_epoch: int) -> int:
        """The next step after which something else than a step is due."""
        stops = [total, (granted // per_epoch + 1) * per_epoch]
        if self._settings.checkpoint_every:
            stops.append((granted // self._settings.checkpoint_every + 1) * self._settings.checkpoint_every)
        return min(stops)

    def _orders_at(
        self,
        step: int,
        ranks: tuple[int, ...],
        total: int,
        per_epoch: int,
        has_test: bool,
        progress: Progress,
    ) -> list[ev.Command]:
        commands: list[ev.Command] = []
        ends_epoch = step % per_epoch == 0
        every = 0 if progress.unkept else self._settings.checkpoint_every
        keeps = ends_epoch if every is None else bool(every) and step % every == 0
        keeps = keeps or (step == total and every != 0)
        evaluates = has_test and (ends_epoch or step == total)
        # A run that goes on must not find a best model that is ahead of it.
        keeps = keeps or (evaluates and self._best.keep is not None and every != 0)
        if keeps:
            commands.append(self._keeping(step, ranks, progress, evaluates=evaluates))
        if evaluates:  # after what was learnt is safe: a metric may raise
            commands.append(self._evaluation(step, ranks, progress, is_fetched=keeps))
        return commands

    def _keeping(self, step: int, ranks: tuple[int, ...], progress: Progress, *, evaluates: bool = False) -> ev.Command:
        """Order a checkpoint; who evaluates right after it takes the weights that it fetches."""
        progress.pending.append((step, "checkpoint", set(ranks)))
        return ev.Order(ranks, {"do": "checkpoint", "tag": self._next_tag(), "evaluates": evaluates})

    def _evaluation(
        self, step: int, ranks: tuple[int, ...], progress: Progress, *, is_fetched: bool = False
    ) -> ev.Command:
        progress.pending.append((step, "evaluated", set(ranks)))
        tags = {"tag": self._next_tag(), "averaged_tag": self._next_tag() if self._has_averages(step) else None}
        return ev.Order(ranks, {"do": "evaluate", **tags, "is_fetched": is_fetched})

    def _has_averages(self, step: int) -> bool:
        """Whether weights were averaged by then."""
        return self._averages is not None and self._averages.count(step, self._per_epoch) > 0

    def _waits_for_best(self, progress: Progress) -> bool:
        """Whether ranks must not go on: an evaluation may turn out to be the best, and its model is to be kept."""
        kinds = {kind for _, kind, _ in progress.pending} if self._best.keep is not None else set()
        return bool(kinds & {"evaluated", "model"})

    def _best_of(self, news: list[ev.Command], ranks: tuple[int, ...], progress: Progress) -> list[ev.Command]:
        """Order the model of an evaluation that is the best so far."""
        commands: list[ev.Command] = []
        for done in news:
            facts = self._best.take(done.step, done.metrics) if isinstance(done, ev.Evaluated) else None
            if facts is not None:
                progress.pending.append((facts["step"], "model", set(ranks)))
                wanted = {"facts": facts, "is_averaged": self._averages is not None and is_averaged(facts["metric"])}
                commands.append(ev.Order(ranks, {"do": "model", "tag": self._next_tag(), **wanted}))
        return commands

    def _next_tag(self) -> int:
        self._gathers += 1
        return self._gathers
