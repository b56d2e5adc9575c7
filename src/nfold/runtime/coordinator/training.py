"""What the ranks of a generation do from its first step on, and what is due between steps. Pure.

until k ── evaluate, checkpoint, best model ── until .. ──> average, deliver ── all is here ──> finish
                                                    └─────> hold the state for the generation that follows
"""

from collections.abc import Sequence
from typing import Any

from nfold.core.job import JobSettings
from nfold.core.members import Turnover
from nfold.core.options.averages import Averages, is_averaged
from nfold.core.options.best_model import BestSoFar
from nfold.core.text.units import count
from nfold.planning.choosing.early_checks import RunSteps
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.control.halting import Halting
from nfold.runtime.coordinator.delivery import Delivery
from nfold.runtime.coordinator.members.generation_end import GenerationEnd
from nfold.runtime.coordinator.members.host_wait import NOBODY_COMES, HostWait
from nfold.runtime.coordinator.progress import Progress
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.replanning import plan_of
from nfold.runtime.coordinator.states.hand_over import HandOver
from nfold.runtime.coordinator.states.protection import Protection
from nfold.runtime.coordinator.steering import Steering
from nfold.runtime.failures.first_cause import Postmortem
from nfold.runtime.failures.ranks_lost import RanksLost
from nfold.runtime.measuring.reprobing import Reprobing

STOPPING = "stopping after the step under way; press Ctrl-C again to stop now"


class Training:
    """The steps of a run, whatever generations play them.

    Attributes:
        host_wait: the time for which nobody trains for want of hosts.
    """

    def __init__(
        self,
        settings: JobSettings,
        run_steps: RunSteps,
        averages: Averages | None,
        best: BestSoFar,
        steering: Steering,
        requests: RankRequests,
        postmortem: Postmortem,
        hand_over: HandOver,
        protection: Protection,
        *,
        evaluates: bool,
    ) -> None:
        """Args:
        settings: of the job.
        run_steps: its steps.
        averages: of the weights, that the program asks for.
        best: the best evaluation so far.
        steering: how far the caller's loop lets ranks go.
        requests: what was said to ranks while they got ready.
        postmortem: learns what ranks were told, and how far they came.
        hand_over: keeps the state for the generation that follows.
        protection: says when ranks keep snapshots.
        evaluates: whether there are test data and they are to be used.
        """
        self._settings, self._run_steps, self._averages = settings, run_steps, averages
        self._best, self._steering, self._requests, self._postmortem = best, steering, requests, postmortem
        self._hand_over, self._protection, self._evaluates = hand_over, protection, evaluates
        self._owed: int | None = None
        """Steps after which an evaluation was due that nobody has made, or whose result was lost."""
        self._owed_checkpoint: int | None = None
        self._owed_model: dict[str, Any] | None = None
        """Facts of the best model so far, of which no file is here."""
        self._ordered_model: dict[str, Any] = {}
        """Facts of the last best model that ranks were asked for."""
        self._wanted: int | None = None
        """The step that the caller's loop wants a checkpoint of."""
        self._gathers = 0
        self.host_wait = HostWait(settings.waits_s or settings.returns_s, settings.hosts)
        self._keeps_while_waiting = False
        self._interrupted = self._time_is_up = self._is_terminated = False

    @property
    def wished_end(self) -> cmd.Finished | None:
        """How the run ends where nobody can train; None: nobody wants it to end."""
        if not (self._interrupted or self._time_is_up):
            return None
        return cmd.Finished(interrupted=True, is_time_up=self._time_is_up, is_terminated=self._is_terminated)

    def lasts(self, run_steps: RunSteps) -> None:
        """Take in how many steps the run has from now on: hosts may have brought samples."""
        self._run_steps = run_steps

    def play(
        self,
        ranks: tuple[int, ...],
        progress: Progress,
        reprobing: Reprobing,
        generation_end: GenerationEnd,
        commands: list[cmd.Command],
    ) -> Flow:
        """Train to the end, or until another generation is to follow; return the last commands, or a state's header."""
        total, halting, granted = self._run_steps.total_steps, Halting(ranks), progress.done
        begun = self._settings.begun
        self._postmortem.ordered("until")
        is_owed = granted == self._run_steps.first_step and begun is not None and not begun.is_evaluated
        is_owed |= granted == self._owed
        keeps = granted == self._owed_checkpoint and self._may_keep(progress)
        self._owed = self._owed_checkpoint = None
        if keeps:
            commands = [*commands, self._keeping(granted, ranks, progress, evaluates=self._evaluates and is_owed)]
        if self._evaluates and is_owed:
            commands = [*commands, self._evaluation(granted, ranks, progress, is_fetched=keeps)]
        if self._owed_model is not None:
            commands = [*commands, self._best_model(self._owed_model, ranks, progress)]
            self._owed_model = None
        for wish in self._requests.take_postponed():
            commands = [*commands, *self._hear_wish(wish, granted, ranks, progress)]
        while progress.done < total or self._steering.is_held(progress.done) or self._waits_for_best(progress):
            allowed = self._steering.allowed(total)
            if (
                self._time_is_up and progress.done > self._run_steps.first_step
            ):  # who goes on gets somewhere, however often
                self._interrupted = True
            if generation_end.is_last and not self._interrupted:
                self._interrupted = self._is_terminated = True  # whoever starts it again goes on with other hosts
            stop = min(self._next_stop(granted), allowed, progress.done + progress.window())
            is_ending = self._interrupted or generation_end.is_due
            is_held = is_ending or halting.is_open or reprobing.is_open or self._waits_for_best(progress)
            is_held |= bool(generation_end.num_lacking)
            if stop > granted and not is_held:
                commands.append(cmd.Order(ranks, {"do": "until", "step": stop}))
                granted = stop
                self.host_wait.end()
                commands += self._orders_at(granted, ranks, progress)
                continue
            commands += self._steering.hand_out(progress.done, granted, is_waiting=bool(progress.pending))
            is_open = halting.is_open or reprobing.is_open
            if is_ending and progress.done == granted and not progress.pending and (self._interrupted or not is_open):
                break  # where ranks may go on after all, every answer is here
            is_any_behind = progress.pending or reprobing.is_open  # which is to find all ranks after that step
            if is_ending and not progress.is_asynchronous and not is_any_behind:
                commands += halting.ask()
            event = yield commands
            commands = []
            commands += self._hear_wish(event, granted, ranks, progress)
            if isinstance(event, ev.ClockTick):
                if generation_end.num_lacking:
                    commands += self._wait_for_others(event.now_s, generation_end)
                if self._keeps_while_waiting and not halting.is_open and self._may_keep(progress):
                    commands.append(self._keeping(granted, ranks, progress))  # nobody else has it
                    self._keeps_while_waiting = False
            if isinstance(event, ev.Received):
                news = [*progress.take(event), *reprobing.take(event, granted, goes_on=not is_ending)]
                commands += news
                commands += self._protection.take(event.rank, event.message, progress.step_s)
                commands += generation_end.take(news, total - granted)
                commands += generation_end.hear(event, total - granted)
                commands += self._best_of(news, ranks, progress)
                if (halted := halting.take(event)) is not None:
                    granted = max(progress.done, halted)
                    commands.append(cmd.Order(ranks, {"do": "until", "step": granted}))
                may_probe = granted < total and not (self._interrupted or halting.is_open or generation_end.is_near)
                for done in news:
                    if isinstance(done, cmd.StepDone) and may_probe:
                        commands += reprobing.look(done)
                commands += generation_end.see_probes(reprobing.is_open)
                self._postmortem.reached(progress.done)
        if generation_end.is_due and granted < total and not self._interrupted:
            kept = yield from self._keep_state(ranks, progress, generation_end, commands)
            if isinstance(kept, bytes):
                return kept
            commands = [*kept, *generation_end.give_up()]
            return (yield from self.play(ranks, progress, reprobing, generation_end, commands))
        if self._interrupted and granted < total and self._may_keep(progress):
            commands.append(self._keeping(granted, ranks, progress))
        if self._has_averages(granted):
            progress.pending.append((granted, "average", set(ranks)))
            commands.append(cmd.Order(ranks, {"do": "average", "tag": self._next_tag()}))
        commands += [*generation_end.end_following(), cmd.Order(ranks, {"do": "deliver", "tag": self._next_tag()})]
        self._postmortem.ordered("deliver")
        return (yield from self._finish(ranks, progress, generation_end, commands))

    def _hear_wish(
        self, event: ev.Event, granted: int, ranks: tuple[int, ...], progress: Progress
    ) -> list[cmd.Command]:
        """Take note of what the user wants of a run that trains."""
        if isinstance(event, ev.Interrupted):
            self._is_terminated |= event.by_manager
            self._interrupted = True
            return [cmd.Noted(STOPPING)] if event.by_key else []
        if isinstance(event, ev.TimeUp):
            self._time_is_up = not self._interrupted
        if not isinstance(event, ev.CheckpointWanted):
            return []
        self._wanted = max(granted, self._steering.handed)  # all may have gone back since
        return [self._keeping(granted, ranks, progress)] if self._wanted == granted else []

    def _wait_for_others(self, now_s: float, generation_end: GenerationEnd) -> list[cmd.Command]:
        """Say that too few ranks are left, and end the run in order when none has come for long, or none can."""
        can_come, lacking = generation_end.others_can_come, f"{count(generation_end.num_lacking, 'host')} more"
        if can_come and (told := self.host_wait.begin(now_s, lacking, generation_end.returning)):
            self._keeps_while_waiting = True
            return [cmd.Noted(text) for text in told]
        if (can_come and not self.host_wait.is_over(now_s)) or self._interrupted:
            return []
        self._interrupted = self._is_terminated = True
        return [cmd.Noted(self.host_wait.in_vain if can_come else NOBODY_COMES)]

    def _may_keep(self, progress: Progress) -> bool:
        return self._settings.checkpoint_every != 0 and not progress.unkept

    def _keep_state(
        self,
        ranks: tuple[int, ...],
        progress: Progress,
        generation_end: GenerationEnd,
        commands: list[cmd.Command],
    ) -> Flow:
        """Keep the state of the step at which all have stopped; return the header of what the next ranks read.

        It stays in the ranks' memory, and where that cannot be, in a checkpoint: in both where those who stay are to
        wait. Where nobody can go on from a checkpoint of this program, return commands that are still to be said.
        """
        has_room = not generation_end.has_no_room  # as they stopped for it, whatever comes of it meanwhile
        commands = yield from self._drained(progress, commands)
        if progress.unkept:
            return commands
        self._requests.say(*commands)
        known = generation_end.known
        header = yield from self._hand_over.take(ranks, progress.done, known.graph, plan_of(known))
        stay = set(generation_end.ranks) - set(generation_end.leaving)  # all may have been called back meanwhile
        if header and has_room and stay:
            return header
        commands = self._requests.take_unsaid()
        if progress.kept != progress.done:
            commands.append(self._keeping(progress.done, ranks, progress))
            commands = yield from self._drained(progress, commands)
        if progress.unkept:
            return commands
        if header and not self._hand_over.needs(generation_end.leaving):
            self._requests.say(*commands)
            return header
        self._hand_over.forget()  # those who stay may have no room for what the others have alone
        return (yield from self.take_state(commands))

    def _drained(self, progress: Progress, commands: list[cmd.Command]) -> Flow:
        """Wait for all that was ordered; return the commands that are still to be said."""
        while progress.pending:
            event = yield commands
            commands = progress.take(event) if isinstance(event, ev.Received) else []
            self._requests.postpone(event)
        return commands

    def go_back(self, step: int, progress: Progress) -> None:
        """Note what was due after a step that all go back to, and was not done."""
        lacked = {(at, kind) for at, kind, _ in progress.pending}
        if any(kind == "model" for _, kind in lacked):
            self._owed_model = self._ordered_model
        if (model := self._owed_model) is not None and model["step"] != step:
            self._best.forget_last()  # it is evaluated again, or its weights are gone
            self._owed_model = None
        self._owed = step if (step, "evaluated") in lacked else None
        gone = sorted(at for at, kind in lacked if kind == "evaluated" and at < step)
        self._requests.say(
            *(cmd.Noted(f"note: what was evaluated after step {at} is lost with the host") for at in gone)
        )
        self._owed_checkpoint = step if (step, "checkpoint") in lacked else None

    def drop_owed(self, step: int, progress: Progress) -> None:
        """Note that ranks which wait have kept the checkpoint of a step, so that it is not due again."""
        progress.pending[:] = [each for each in progress.pending if each[:2] != (step, "checkpoint")]
        self._owed_checkpoint = None

    def hear_late(self, news: Sequence[cmd.Command]) -> None:
        """Take in what ranks told at last of a generation that has ended."""
        for done in news:
            if isinstance(done, cmd.Evaluated):
                self._owed_model = self._best.take(done.step, done.metrics) or self._owed_model
            elif isinstance(done, cmd.KeepBest):
                self._owed_model = None

    def take_state(self, commands: Sequence[cmd.Command] = ()) -> Flow:
        """Let ranks be given the checkpoint that was kept last, from now on; return its header."""
        commands = [*commands, cmd.TakeState()]
        while not isinstance(event := (yield commands), ev.StateTaken):
            self._requests.postpone(event)
            commands = []
        return event.header

    def _finish(
        self,
        ranks: tuple[int, ...],
        progress: Progress,
        generation_end: GenerationEnd,
        commands: list[cmd.Command],
    ) -> Flow:
        """Wait for all that the run ends with, then let ranks go.

        Raises:
            RanksLost: those who are left have to deliver it.
        """
        delivery = Delivery()
        try:
            while delivery.missing(ranks):
                event = yield commands
                commands = []
                if isinstance(event, ev.Received):
                    delivery.take(event)
                    commands = progress.take(event)
                elif isinstance(event, ev.Interrupted | ev.TimeUp):  # for the case that steps are played again
                    commands = self._hear_wish(event, progress.done, ranks, progress)
        except RanksLost as error:
            for told in error.late:
                delivery.take(told)
            if delivery.model is None or progress.pending:
                delivery.drop()
                raise
            gone = generation_end.told(Turnover(lost=error.hosts, left=error.left))
            commands = [cmd.Departed(gone, progress.done)]
            ranks, delivery.gone = generation_end.ranks, set()
        self._requests.say(*commands)
        if staying := tuple(rank for rank in ranks if rank not in delivery.gone):
            yield from self._requests.ask(staying, {"do": "finish", "tag": 0}, "finished")
        is_early = progress.done < self._run_steps.total_steps
        ended = cmd.Finished(
            delivery.usage,
            delivery.model,
            interrupted=is_early,
            is_time_up=is_early and self._time_is_up,
            is_terminated=is_early and self._is_terminated,
            staleness=delivery.staleness,
        )
        return [*self._requests.take_unsaid(), ended]

    def _next_stop(self, granted: int) -> int:
        """The next step after which something else than a step is due."""
        stops = [self._run_steps.total_steps, self._run_steps.by_epoch.next_end(granted)]
        if self._settings.checkpoint_every:
            stops.append((granted // self._settings.checkpoint_every + 1) * self._settings.checkpoint_every)
        return min(stops)

    def _orders_at(self, step: int, ranks: tuple[int, ...], progress: Progress) -> list[cmd.Command]:
        commands: list[cmd.Command] = []
        ends_epoch, total = self._run_steps.by_epoch.is_end(step), self._run_steps.total_steps
        every = 0 if progress.unkept else self._settings.checkpoint_every
        keeps = ends_epoch if every is None else bool(every) and step % every == 0
        keeps = keeps or (step == total and every != 0) or (step == self._wanted and not progress.unkept)
        evaluates = self._evaluates and (ends_epoch or step == total)
        # A run that goes on must not find a best model that is ahead of it.
        keeps = keeps or (evaluates and self._best.keep is not None and every != 0)
        if keeps:
            commands.append(self._keeping(step, ranks, progress, evaluates=evaluates))
        if evaluates:  # after what was learnt is safe: a metric may raise
            commands.append(self._evaluation(step, ranks, progress, is_fetched=keeps))
        return commands

    def _keeping(
        self, step: int, ranks: tuple[int, ...], progress: Progress, *, evaluates: bool = False
    ) -> cmd.Command:
        """Order a checkpoint; who evaluates right after it takes the weights that it fetches."""
        progress.pending.append((step, "checkpoint", set(ranks)))
        return cmd.Order(ranks, {"do": "checkpoint", "tag": self._next_tag(), "evaluates": evaluates})

    def _evaluation(
        self, step: int, ranks: tuple[int, ...], progress: Progress, *, is_fetched: bool = False
    ) -> cmd.Command:
        progress.pending.append((step, "evaluated", set(ranks)))
        tags = {"tag": self._next_tag(), "averaged_tag": self._next_tag() if self._has_averages(step) else None}
        return cmd.Order(ranks, {"do": "evaluate", **tags, "is_fetched": is_fetched})

    def _has_averages(self, step: int) -> bool:
        """Whether weights were averaged by then."""
        return self._averages is not None and self._averages.count(step, self._run_steps.steps_per_epoch) > 0

    def _waits_for_best(self, progress: Progress) -> bool:
        """Whether ranks must not go on: an evaluation may turn out to be the best, and its model is to be kept."""
        kinds = {kind for _, kind, _ in progress.pending} if self._best.keep is not None else set()
        return bool(kinds & {"evaluated", "model"})

    def _best_of(self, news: list[cmd.Command], ranks: tuple[int, ...], progress: Progress) -> list[cmd.Command]:
        """Order the model of an evaluation that is the best so far."""
        commands: list[cmd.Command] = []
        for done in news:
            facts = self._best.take(done.step, done.metrics) if isinstance(done, cmd.Evaluated) else None
            if facts is not None:
                commands.append(self._best_model(facts, ranks, progress))
        return commands

    def _best_model(self, facts: dict[str, Any], ranks: tuple[int, ...], progress: Progress) -> cmd.Command:
        self._ordered_model = facts
        progress.pending.append((facts["step"], "model", set(ranks)))
        wanted = {"facts": facts, "is_averaged": self._averages is not None and is_averaged(facts["metric"])}
        return cmd.Order(ranks, {"do": "model", "tag": self._next_tag(), **wanted})

    def _next_tag(self) -> int:
        self._gathers += 1
        return self._gathers
