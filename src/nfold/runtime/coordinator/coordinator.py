"""Decides what the ranks of a job do next. Pure: events in, commands out; no clock, no sockets, no processes.

    load ─> profile ─> listen, connect ─> probe, pace ─> plan ─> build ─> until / evaluate / checkpoint .. ─> finish
      └──────────────── any rank fails ──> post-mortem: who was first? ──> Failed

The job is one generator that is sent events and yields commands, so it reads in the order in which things happen. Ranks
may run a little ahead of what they reported, a window of about a third of a second, so that reports never hold up a
step and a stop is never far away.

Outside there are members, whose numbers are given once. In the generator there are ranks: what a member says that has
one is `Received` from it, and an `Order` to ranks leaves as `Send` to members.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nfold.core.job import JobSettings, Known
from nfold.core.members import Member
from nfold.core.options.best_model import BestSoFar
from nfold.errors import NfoldError, PlanError
from nfold.planning.choosing.early_checks import check_last_batch
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, with_placed
from nfold.runtime.coordinator.members import membership as ms
from nfold.runtime.coordinator.members.admission import Admission, Standard
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.members.lookahead import Lookahead
from nfold.runtime.coordinator.members.membership import Decision, Membership
from nfold.runtime.coordinator.members.placed_regrouping import PlacedRegrouping
from nfold.runtime.coordinator.members.regrouping import Regrouping
from nfold.runtime.coordinator.members.succession import Succession
from nfold.runtime.coordinator.placing.inventories import check_begun
from nfold.runtime.coordinator.placing.living_data import LivingData, check_hosts_stay
from nfold.runtime.coordinator.placing.lost_samples import ask_for, pass_on
from nfold.runtime.coordinator.placing.placing import Placing
from nfold.runtime.coordinator.plan_trials import try_all
from nfold.runtime.coordinator.preparation import Preparation
from nfold.runtime.coordinator.rank_requests import OF_STEPS, Flow, RankRequests
from nfold.runtime.coordinator.same_on_all_ranks import Other, check_own_data, has_own_data
from nfold.runtime.coordinator.same_program import averages_of, check_wishes, recipe_of
from nfold.runtime.coordinator.states.hand_over import HandOver
from nfold.runtime.coordinator.states.protection import Protection
from nfold.runtime.coordinator.steering import Steering
from nfold.runtime.coordinator.training import Training
from nfold.runtime.failures.first_cause import Postmortem
from nfold.runtime.failures.network_cuts import QUIET_S, Cuts, NetworkCut
from nfold.runtime.failures.ranks_lost import RanksLost
from nfold.runtime.failures.silent_ranks import PATIENCE, FailureDetector, Patience

if TYPE_CHECKING:
    from nfold.core.residency import PlacedRun

POSTMORTEM_S = 0.4
"""How long the other ranks have to say what they saw, after the first bad news."""
MOST_LOOKS = 25
"""So often that is waited for again where all that was seen is an echo, and the others could go on without its cause:
how a process has ended its host may say late."""

BESIDE = frozenset({"beside", "warmed", "lent", "followed"})
"""What is done beside the steps of others for members without a rank, before they have one."""
NO_CHECKPOINTS = "the run keeps no checkpoints, so nobody can go on from its state with other members"
DATA_LIVE_HERE = "each rank trains on the samples that live on its node, and who leaves would take them along"


class Coordinator:
    """The state of one job, and the rules by which its ranks get orders."""

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
        self._placed: tuple[PlacedRun, ...] = ()
        self._living: LivingData | None = None
        self._postmortem = Postmortem()
        waits, returns = settings.waits_s > 0, settings.returns_s > 0
        self._membership = Membership(settings.hosts.least if settings.hosts else 1, waits=waits, returns=returns)
        self._patience, self._failure_detector, self._cuts = patience, FailureDetector(patience), Cuts(patience)
        self._requests = RankRequests(self._postmortem)
        self._admission = Admission(self._membership)
        self._lookahead = Lookahead(settings, self._membership, self._admission)
        self._hand_over = HandOver(self._requests, self._membership)
        self._generations = Generations(self._requests, self._membership, self._postmortem, self._hand_over)
        self._planning = JobPlanning(settings, first_step)
        self._preparation = Preparation(self._planning, cores, self._requests, self._generations)
        self._best = BestSoFar(settings.kept, best)
        self._steering = Steering(first_step, is_looped=settings.lockstep)
        self._flow = self._run()
        self._over, self._trains, self._looks_left = False, False, MOST_LOOKS
        self._late: list[ev.Received] = []
        """What ranks told of their training while all had their say about the generation's end."""
        self._hurt: set[int] = set()
        """Members that may still tell of a loss which is known already."""

    def start(self, places: Mapping[int, tuple[str, int]]) -> list[cmd.ToShell]:
        """Return the first commands; call it once, when every member that the job begins with has said hello.

        Args:
            places: host and process id of each, by its number. Ranks are in the order of numbers. A host is called as
                the plan calls its node, where there are several.
        """
        for rank, (number, (host, pid)) in enumerate(sorted(places.items())):
            name = self._settings.nodes[rank] if self._settings.nodes else host
            self._membership.take(ms.MemberCame(Member(number=number, host=name, pid=pid)))
        self._generations.enlist(tuple(sorted(places)))
        return self._advance(None)

    def handle(self, event: ev.Event) -> list[cmd.ToShell]:
        """Take in an event and return what to do about it."""
        if self._over:
            return []
        if isinstance(event, ev.ClockTick):
            self._membership.note_places(event.come_again)
            return [] if self._postmortem.open else self._tick(event)
        if isinstance(event, ev.Said):
            return self._hear(event)
        if isinstance(event, ev.Left):
            return self._see_off(event)
        if isinstance(event, ev.MemberStarted):
            self._membership.settle(event.member, event.node, event.why, event.launched_at)
            return []
        if isinstance(event, ev.HostGone):
            self._membership.miss(event.host)
            return self._turn([]) if self._trains else []
        if isinstance(event, ev.ReleaseWanted):
            return self._turn(self._admission.release(event.member, event.why))
        if isinstance(event, ev.PlannedAside):
            return self._turn(self._lookahead.planned(event))
        if isinstance(event, ev.Continue):
            self._steering.ask()  # here, because it may come while the ranks are still getting ready
        if isinstance(event, ev.KillAnnounced):
            self._postmortem.sentenced(event.members, event.fault)
            return []
        if self._postmortem.open:
            self._requests.postpone(event)  # the run may go on
            return self._examine(event)
        return self._advance(event)

    def _hear(self, said: ev.Said) -> list[cmd.ToShell]:
        kind, rank = said.message["is"], self._membership.rank_of(said.member)
        if kind == "alive":
            self._cuts.hear(said.member, dict(said.message["silent_s"]))
            return [] if rank is None else [*map(cmd.Noted, self._postmortem.tell_stall(rank, said.message["stall"]))]
        if kind in BESIDE or (rank is None and kind == "paced"):
            return self._turn(self._lookahead.hear(said.member, said.message))
        if rank is None:
            return self._turn(self._admission.hear(said))
        if kind == "failed" and said.member in self._hurt and said.message["is_echo"]:
            return []  # it has seen the loss that the others go on from
        if kind == "abandoned":
            self._hurt.discard(said.member)
        if kind == "failed" and self._membership.take(ms.MemberFailed(said.member)) is Decision.FAIL:
            self._postmortem.failed(rank, said.message)
        elif kind == "delivered" and said.member not in self._hurt:  # else it does so again
            self._membership.take(ms.MemberDelivered(said.member))
        elif kind == "finished":
            self._membership.take(ms.MemberFinished(said.member))
            self._postmortem.excuse((rank,))  # it may leave before the others have finished
        if self._postmortem.open:
            self._late += [ev.Received(rank, said.message, said.file)] if kind in OF_STEPS else []
            return self._examine(said)
        if kind == "lacks":
            return ask_for(self._living, self._membership.ranks, said.member, said.message["number"])
        if kind == "gives":
            return [pass_on(said.message)]
        if kind == "wants":
            return [cmd.SendState(said.member, said.message["start"], said.message["stop"])]
        return self._advance(ev.Received(rank, said.message, said.file))

    def _see_off(self, left: ev.Left) -> list[cmd.ToShell]:
        rank = self._membership.rank_of(left.member)
        if rank is None:
            return self._turn(self._admission.see_off(left))
        if self._membership.take(ms.MemberLeft(left.member, left.comes_again)) is Decision.FAIL:
            self._postmortem.left(rank, left.status)
        if self._postmortem.open:
            return self._examine(left)
        return [cmd.LetGo(left.member), *self._advance(ev.Received(rank, {"is": "finished"}))]

    def _turn(self, commands: list[cmd.ToShell]) -> list[cmd.ToShell]:
        """Let what is under way notice that members have changed."""
        if self._postmortem.open:
            return commands
        return [*commands, *self._lookahead.advance(), *self._advance(ev.MembersChanged())]

    def _advance(self, event: ev.Event | None) -> list[cmd.ToShell]:
        return self._resume(lambda: self._flow.send(event))  # type: ignore[arg-type]

    def _resume(self, resume: Callable[[], list[cmd.Command]]) -> list[cmd.ToShell]:
        try:
            commands = resume()
        except StopIteration as end:
            self._over = True
            commands = [*self._admission.close(), *(end.value or [])]
        except (NfoldError, KeyboardInterrupt) as error:
            self._over = True
            commands = [cmd.Failed(error)]
        return [self._to_members(each) if isinstance(each, cmd.Order) else each for each in commands]

    def _to_members(self, order: cmd.Order) -> cmd.ToShell:
        members = self._membership.addressed(order.ranks, is_last=order.message["do"] == "finish")
        return cmd.Send(members, order.message, order.blob)

    def _ranks_of(self, members: Iterable[int]) -> tuple[int, ...]:
        return tuple(rank for number in members if (rank := self._membership.rank_of(number)) is not None)

    def _tick(self, tick: ev.ClockTick) -> list[cmd.ToShell]:
        commands = self._watch(tick) or self._watch_network(tick) or self._lookahead.tick(tick.now_s)
        return commands or (self._advance(tick) if self._membership.num_lacking or self._lookahead.is_stranded else [])

    def _watch(self, tick: ev.ClockTick) -> list[cmd.ToShell]:
        """Say which ranks have fallen silent, and give up those that stay so."""
        patience, postmortem, loading = self._patience, self._postmortem, self._postmortem.is_loading
        news = self._failure_detector.look(tick, self._membership.awaited, loading=loading)
        lost_s = patience.loading_s if loading else patience.lost_s
        silent, goes_on = self._ranks_of(news.silent), self._trains and self._membership.can_lose(news.silent)
        notes = [postmortem.tell_silence(rank, patience.noticed_s, lost_s, goes_on=goes_on) for rank in silent]
        notes += [postmortem.tell_return(rank) for rank in self._ranks_of(news.back)]
        for number in news.lost:
            if self._membership.take(ms.MemberFailed(number)) is Decision.FAIL:
                self._postmortem.silent(self._membership.ranks.index(number), lost_s)
            else:
                return self._advance(ev.Received(self._membership.ranks.index(number), {"is": "finished"}))
        return [*map(cmd.Noted, notes), *(self._examine(tick) if self._postmortem.open else [])]

    def _watch_network(self, tick: ev.ClockTick) -> list[cmd.ToShell]:
        """Say which ranks hear nothing from each other, and give up when that stays so."""
        awaited = self._membership.awaited
        heard = {number for number in awaited if tick.now_s - tick.heard_s.get(number, tick.now_s) < QUIET_S}
        news = self._cuts.look(heard, awaited - heard)
        begun = [(self._by_rank(cut), self._trains and self._membership.can_lose({cut.rank})) for cut in news.begun]
        notes = [self._postmortem.tell_cut(cut, self._patience.lost_s, goes_on=goes_on) for cut, goes_on in begun]
        notes += [self._postmortem.tell_healed(self._by_rank(cut)) for cut in news.healed]
        for cut in news.lost:
            if self._membership.take(ms.MemberFailed(cut.rank)) is Decision.FAIL:
                self._postmortem.cut_off(self._by_rank(cut))
        return [*map(cmd.Noted, notes), *(self._examine(tick) if self._postmortem.open else [])]

    def _by_rank(self, cut: NetworkCut) -> NetworkCut:
        return replace(cut, rank=self._membership.ranks.index(cut.rank), others=self._ranks_of(cut.others))

    def _examine(self, event: ev.Event) -> list[cmd.ToShell]:
        """Collect what every rank has to say, then name the first cause."""
        if not self._postmortem.complete and not isinstance(event, ev.TimedOut):
            return [cmd.SetTimer(POSTMORTEM_S)] if self._postmortem.take_first() else []
        if self._trains and self._postmortem.is_all_echo and not self._postmortem.complete and self._looks_left:
            self._looks_left -= 1
            return [cmd.SetTimer(POSTMORTEM_S)]
        lost = {*(self._membership.ranks[rank] for rank in self._postmortem.dead), *self._membership.departed}
        if self._trains and self._postmortem.dead and self._membership.can_lose(lost):
            return self._go_on_without(lost)
        self._over, error = True, self._postmortem.error()
        error.leaves_too_few = self._trains and not self._membership.fixed and bool(self._postmortem.dead)
        return [cmd.Failed(error, self._postmortem.details(), is_death=self._postmortem.is_death)]

    def _go_on_without(self, lost: set[int]) -> list[cmd.ToShell]:
        """Let the ranks that are left begin a generation from what was kept last."""
        before, hosts = self._membership.ranks, tuple(self._membership.member(each).host for each in sorted(lost))
        for number, host in zip(sorted(lost), hosts, strict=True):
            self._membership.histories.gone(host, self._postmortem.status(before.index(number)))
        self._membership.lose(lost)
        self._postmortem.forget()
        self._generations.enlist(self._membership.ranks)
        self._looks_left, self._hurt = MOST_LOOKS, set(self._membership.ranks)
        late, self._late = self._late, []
        gone = [each for each in before if each not in self._membership.ranks]
        left = tuple(self._membership.member(each).host for each in gone if self._membership.has_left(each))
        released: list[cmd.ToShell] = [cmd.LetGo(each, is_lost=each in lost) for each in gone]
        return released + self._resume(lambda: self._flow.throw(RanksLost(hosts, before, late, left)))

    # The job, in order

    def _run(self) -> Flow:
        everyone = tuple(range(self._settings.world_size))
        ready = yield from self._requests.collect(everyone, self._preparation.load_orders(everyone), "ready")
        placing = self._placing_of(ready)
        if placing is not None:
            ready = yield from placing.reside(ready)
        facts = self._preparation.check_ready(ready)
        recipe = recipe_of(facts)
        check_wishes(self._settings, facts, recipe)
        if self._settings.trials:
            return (yield from try_all(self._settings, self._cores, self._requests, self._generations, facts))
        if placing is not None:
            stay = yield from placing.leave_out(goes_on=self._known is not None)
            if stay is not None:
                self._go_on_with(stay)
                everyone = tuple(range(stay.world_size))
            self._preparation.on_data_of(placing.holders)
            yield from self._preparation.wire()
            yield from placing.lend()
        if self._known is None:
            known = yield from self._preparation.measure(facts)
        else:
            known = self._known
            check_last_batch(known.graph, self._planning.run_steps(facts))
            if placing is None:
                yield from self._preparation.wire()
        if placing is not None and not self._settings.measures_for:
            self._planning = placing.decide(known, facts, self._planning)
            self._placed = placing.runs
        facts = with_placed(facts, self._placed)
        run_steps = self._planning.run_steps(facts)
        if self._settings.plan_only:
            question = self._planning.facts(known.graph, known.profiles, known.cluster, facts)
            self._requests.say(cmd.Measured(question, run_steps))
        if self._settings.measures_for:
            yield from self._requests.ask(everyone, {"do": "finish", "tag": 0}, "finished")
            return [cmd.Finished()]
        chosen = known.plan or self._planning.plan(known, facts)
        known = replace(known, plan=chosen)
        foretold = self._planning.notes(facts, chosen, known.graph)
        total, epochs = run_steps.total_steps, run_steps.by_epoch
        planned = cmd.Planned(known, chosen, total, epochs, self._first_step, recipe, foretold)
        if self._settings.plan_only:
            self._requests.say(planned)
            yield from self._requests.ask(everyone, {"do": "finish", "tag": 0}, "finished")
            return [cmd.Finished()]
        idle = everyone[chosen.world_size :] if placing is None else ()
        if idle:
            yield from self._requests.ask(idle, {"do": "finish", "tag": 0}, "finished")
            self._membership.spare(len(idle))
            self._generations.enlist(self._membership.ranks[: chosen.world_size])
        self._requests.say(planned)
        if placing is not None:
            yield from placing.move(epochs)
        if self._settings.checkpoint_every == 0:
            self._membership.fix(NO_CHECKPOINTS)
        living = self._living = None if placing is None else self._let_live(placing)
        self._requests.say(*self._admission.open(Standard(self._preparation.load_order(), facts, recipe, living)))
        self._trains = self._settings.hosts is not None
        succession = self._succession(facts, living)
        return (yield from succession.play(known, facts, recipe, self._checkpoint, self._first_step))

    def _go_on_with(self, settings: JobSettings) -> None:
        """Go on with fewer ranks than were begun with."""
        self._settings, self._planning = settings, JobPlanning(settings, self._first_step)
        self._preparation = Preparation(self._planning, self._cores, self._requests, self._generations)

    def _placing_of(self, ready: dict[int, Ready]) -> Placing | None:
        """Return who decides where data live; None: every rank reads all of them.

        Raises:
            PlanError: it was asked for, and nobody knows what lives where.
        """
        settings = self._settings
        for rank, told in ready.items():
            check_own_data(ready[0], Other(rank), told)
        check_begun(settings.begun, has_own_data=has_own_data(ready[0]))
        if not has_own_data(ready[0]):
            if settings.place is not None:
                raise PlanError(
                    f"--place {settings.place}: nobody says which samples live where. Let the program give "
                    "train_data=nfold.local_data(...), or add `samples` to the nodes of --emulate."
                )
            return None
        check_hosts_stay(settings)
        if settings.trials:
            raise PlanError("plans are tried one after another on data that all ranks have, and these live on nodes.")
        nodes = settings.nodes or tuple(self._membership.member(number).host for number in self._membership.ranks)
        return Placing(settings, self._requests, self._generations, ready, nodes, self._first_step)

    def _let_live(self, placing: Placing) -> LivingData:
        """Return the data of the members that train; say whose leaving would end the run."""
        living = placing.living(self._membership.ranks)
        if self._settings.hosts is None:
            self._membership.fix(DATA_LIVE_HERE)
        else:
            self._hand_over.keep_in_files()
        for number, why in living.indispensable(self._membership.ranks).items():
            self._membership.need(number, why)
            if self._settings.hosts is not None:
                host = self._membership.member(number).host
                self._requests.say(cmd.Noted(f"note: if {host} leaves, {why}"))
        return living

    def _succession(self, facts: Ready, living: LivingData | None) -> Succession:
        protection = Protection(self._settings, self._hand_over.ledger, self._membership)
        training = Training(
            self._settings, self._planning.run_steps(facts), averages_of(facts), self._best, self._steering,
            self._requests, self._postmortem, self._hand_over, protection,
            evaluates=bool(facts["has_test"]) and self._settings.evaluate,
        )  # fmt: skip
        shared = (self._settings, self._requests, self._generations, self._membership)
        if living is None:
            regrouping: Regrouping | PlacedRegrouping = Regrouping(*shared, self._lookahead)
        else:
            regrouping = PlacedRegrouping(*shared, living, self._cores)
        given = (self._settings, self._planning, self._requests, self._membership)
        return Succession(*given, self._generations, regrouping, training, self._hand_over, protection, living)
