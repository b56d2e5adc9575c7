"""Lets ranks wait that have no plan, until with others they have one, or nobody has come for long. Pure.

no plan for who is left ──> their state is in a checkpoint ──> wait ──> somebody comes, and there is a plan ──> train
                                                                ^ └── somebody is to leave: it is let go
                                                                └──────┘  └── the time is over, or all are to end: end
"""

from typing import TYPE_CHECKING

from nfold.core.job import Known
from nfold.core.members import Turnover
from nfold.core.text.units import count
from nfold.planning.choosing.node_counts import refusal_of
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import Ready
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.members.host_wait import NOBODY_COMES, HostWait
from nfold.runtime.coordinator.members.membership import Decision, Membership
from nfold.runtime.coordinator.members.regrouping import Regrouping
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.states.hand_over import HandOver

if TYPE_CHECKING:
    from nfold.errors import PlanError


class Standstill:
    """Ranks of one job while there is no plan for them."""

    def __init__(
        self,
        requests: RankRequests,
        membership: Membership,
        generations: Generations,
        regrouping: Regrouping,
        hand_over: HandOver,
        host_wait: HostWait,
    ) -> None:
        """Args:
        requests: to ranks.
        membership: who they are.
        generations: connects them.
        regrouping: connects them again, with others.
        hand_over: has the state, where that is in memory.
        host_wait: the time for which nobody trains for want of hosts.
        """
        self._requests, self._membership, self._generations = requests, membership, generations
        self._regrouping, self._lookahead = regrouping, regrouping.lookahead
        self._hand_over, self._host_wait = hand_over, host_wait
        self._end: cmd.Finished | None = None
        """How the run ends, once that is settled."""

    def tell(self, turnover: Turnover, next_step: int, why: "PlanError | None" = None) -> None:
        """Say who has gone, and why those who are left do not train: what the model needs, and what they have."""
        told = self._membership.histories.told(turnover)
        gone, left = (*turnover.lost, *turnover.left), self._regrouping.hosts
        if turnover:
            self._requests.say(cmd.Departed(told, next_step))
        if why is not None:
            who = f"{', '.join(gone)} gone: " if gone else ""
            there = f"the {count(len(left), 'host')} left ({', '.join(left)})"
            self._requests.say(cmd.Noted(f"{who}there is no plan for {there}, so nobody trains: {refusal_of(why)}"))

    def tell_left(self, before: tuple[int, ...], next_step: int, why: "PlanError | None" = None) -> None:
        """Say which members have left of those who had ranks before; as `tell`."""
        left = tuple(number for number in before if number not in self._membership.ranks)
        self.tell(Turnover(left=tuple(map(self._regrouping.host, left))), next_step, why)

    def wait(self, known: Known, ready: Ready, step: int, wished: cmd.Finished | None) -> Flow:
        """Wait for others; return what all go on with, and what they build; or the last commands where none come.

        Args:
            known: what the generation before rested on, with its plan.
            ready: what ranks told of the program.
            step: counts from 0.
            wished: how the run ends, where the user wanted that while it trained.
        """
        self._end = self._end or wished
        while self._end is None:
            for wish in self._requests.take_postponed():
                self._requests.say(*self._hear(wish))
            self._see_leavers()
            ahead = yield from self._look_out(known, ready)
            if ahead is not None:
                begun = yield from self._regrouping.resume(ahead, step)
                if begun is not None:
                    return begun
            elif self._end is None:
                yield from self._let_leavers_go(step)
        return (yield from self._finish())

    def _look_out(self, known: Known, ready: Ready) -> Flow:
        """Wait until there is a plan, and return it; return None where somebody leaves, or the run ends."""
        known = self._lookahead.with_hosts(known)
        commands = [*self._requests.take_unsaid(), *self._lookahead.begin(known, ready, is_stranded=True)]
        while self._end is None and not self._membership.leavers and not self._lookahead.is_ready:
            event = yield commands
            commands = self._hear(event)
        self._requests.say(*commands)
        return self._lookahead.take()

    def _hear(self, event: ev.Event) -> list[cmd.Command]:
        """Take in what happens; return what to tell."""
        if isinstance(event, ev.Interrupted):
            self._end = cmd.Finished(interrupted=True, is_terminated=event.by_manager)
        elif isinstance(event, ev.TimeUp):
            self._end = cmd.Finished(interrupted=True, is_time_up=True)
        elif isinstance(event, ev.CheckpointWanted):
            self._requests.postpone(event)  # of the step from which ranks go on
        elif isinstance(event, ev.ClockTick):
            news = self._host_wait.begin(event.now_s, "another host", self._membership.returning)
            told = [cmd.Noted(text) for text in news]
            if self._host_wait.is_over(event.now_s):
                self._end = cmd.Finished(interrupted=True, is_terminated=True)
                told.append(cmd.Noted(self._host_wait.in_vain))
            return list(told)
        self._see_leavers()
        return []

    def _see_leavers(self) -> None:
        """Let the run end where all who wait are to leave, or nobody can come: who is left has no plan."""
        if self._end is None and not self._membership.others_can_come:
            self._requests.say(cmd.Noted(NOBODY_COMES))
            self._end = cmd.Finished(interrupted=True, is_terminated=True)
        are_all = set(self._membership.ranks) <= {*self._membership.leavers}
        if self._end is None and (are_all or self._membership.decision is Decision.STOP):
            self._end = cmd.Finished(interrupted=True, is_terminated=True)

    def _let_leavers_go(self, step: int) -> Flow:
        """Let those go who are to leave: what they have alone is in the checkpoint."""
        leaving = tuple(map(self._membership.ranks.index, self._membership.leavers))
        if self._hand_over.needs(leaving):
            self._hand_over.forget()
        before = self._membership.ranks
        yield from self._generations.let_go(leaving)
        self.tell_left(before, step)

    def _finish(self) -> Flow:
        assert self._end is not None, "nobody waits any more"
        ranks = tuple(range(len(self._membership.ranks)))
        yield from self._requests.ask(ranks, {"do": "finish", "tag": 0}, "finished")
        return [self._end]
