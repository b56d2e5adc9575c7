"""From one generation to the next: who leaves is let go, newcomers get ranks, and all begin under a plan for them.

The plan was made while the others trained, and newcomers were measured then (see `lookahead`). Where a plan for all
gives some of those who stay nothing to do, they are let go.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfold.core.job import JobSettings, Known
from nfold.core.members import SpeedShift, Turnover
from nfold.errors import RunError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import Ready
from nfold.runtime.coordinator.members.generation_end import GenerationEnd
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.members.lookahead import Lookahead
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.members.planned_aside import plan_for, settings_for
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.replanning import plan_of


class Regrouping:
    """Lets the generations of one job follow each other.

    Attributes:
        lookahead: what makes the next one ready.
    """

    def __init__(
        self,
        settings: JobSettings,
        requests: RankRequests,
        generations: Generations,
        membership: Membership,
        lookahead: Lookahead,
    ) -> None:
        self._settings, self._requests = settings, requests
        self._generations, self._membership, self.lookahead = generations, membership, lookahead

    def follow(self, generation_end: GenerationEnd, ready: Ready, next_step: int) -> Flow:
        """Connect the ranks of the next generation; return what it rests on, with its plan, and what ranks build.

        Args:
            generation_end: why the one before has ended.
            ready: what ranks told of the program.
            next_step: counts from 0.

        Raises:
            PlanError: those who stay cannot go on.
            RunError: nobody stays.
        """
        before, ahead = self.hosts, self.lookahead.take()
        builds: tuple[dict[str, Any], ...] = ()
        known = generation_end.planned
        if ahead is not None or known is None:
            yield from self._let_leavers_go()
            known = None if ahead is None else self._enlisted(ahead)
            if ahead is not None and known is not None:
                builds = ahead.builds
            else:
                known = self._for_who_stays(generation_end.known, ready, planned=len(before))
        yield from self._begin(known, next_step, self._turned(before, known), generation_end.shifts)
        return known, builds

    def resume(self, ahead: ev.PlannedAside, next_step: int) -> Flow:
        """Connect ranks that had no plan, and those who have come; return as `follow`, None: one of them has gone.

        Args:
            ahead: the plan for all of them.
            next_step: counts from 0.
        """
        before, known = self.hosts, self._enlisted(ahead)
        if known is None:
            return None
        yield from self._begin(known, next_step, self._turned(before, known))
        return known, ahead.builds

    def without(self, turnover: Turnover, known: Known, ready: Ready, next_step: int, note: Callable[[], None]) -> Flow:
        """Connect the ranks that are left when others were lost; return what they go on with, and what ranks build.

        Args:
            turnover: who was lost.
            known: what the generation before rested on.
            ready: what ranks told of the program.
            next_step: counts from 0.
            note: is called once it is told who was lost.

        Raises:
            PlanError: those who are left cannot go on.
        """
        ahead, before = self.lookahead.take_loss(), plan_of(known).nodes
        builds: tuple[dict[str, Any], ...] = ()
        if ahead is not None and ahead.known is not None:
            known, builds = ahead.known, ahead.builds
            self._requests.say(*map(cmd.Noted, ahead.notes))
        else:
            known = self._planned(self.lookahead.with_hosts(known), ready)
        if self._settings.nodes:  # somebody may have been let in just then
            turnover = replace(turnover, joined=tuple(name for name in plan_of(known).nodes if name not in before))
        self._tell(known, next_step, turnover)
        note()
        yield from self._connect(known)
        return known, builds

    def _begin(self, known: Known, next_step: int, turnover: Turnover, shifts: tuple[SpeedShift, ...] = ()) -> Flow:
        self._tell(known, next_step, turnover, shifts)
        yield from self._connect(known)

    def _tell(self, known: Known, next_step: int, turnover: Turnover, shifts: tuple[SpeedShift, ...] = ()) -> None:
        chosen, told = plan_of(known), self._membership.histories.told(turnover)
        lacking = self._membership.num_lacking
        self._requests.say(cmd.Replanned(known, chosen, next_step, told, shifts=shifts, num_lacking=lacking))

    def _connect(self, known: Known) -> Flow:
        chosen = plan_of(known)
        unused = tuple(range(chosen.world_size, len(self._membership.ranks)))
        self._membership.spare(len(unused))
        yield from self._generations.let_go(unused)
        yield from self._generations.call(chosen.world_size)

    def _let_leavers_go(self) -> Flow:
        membership = self._membership
        yield from self._generations.let_go(tuple(map(membership.ranks.index, membership.leavers)))

    def _enlisted(self, ahead: ev.PlannedAside) -> Known | None:
        """Give ranks to those newcomers that have something to do; None: one of them has gone by now."""
        ranks, known = self._membership.ranks, ahead.known
        assert known is not None, "it is ready"
        members = ahead.members[: max(len(ranks), plan_of(known).world_size)]
        if not set(members) <= {*ranks, *self._membership.newcomers}:
            return None
        self._generations.enlist(members)
        self._requests.say(*map(cmd.Noted, ahead.notes))
        return known

    def _for_who_stays(self, known: Known, ready: Ready, *, planned: int) -> Known:
        """Return the plan of now, or another where some have left."""
        if not self._membership.ranks:
            error = RunError(
                "nobody is left to go on with: all ranks were to leave, and who came in their place ended or could not "
                "be used"
            )
            error.leaves_too_few = True
            raise error
        known = self.lookahead.with_hosts(known)
        return known if len(self._membership.ranks) == planned else self._planned(known, ready)

    def _planned(self, known: Known, ready: Ready) -> Known:
        """Return a plan for all ranks."""
        ready = {**ready, "chunks": plan_of(known).chunks}  # the result depends on them
        hosts: tuple[str, ...] = self.hosts if self._settings.nodes else ()
        settings = settings_for(self._settings, hosts, len(self._membership.ranks), known.cluster)
        chosen, notes = plan_for(settings, known, ready)
        self._requests.say(*map(cmd.Noted, notes))
        return replace(known, plan=chosen)

    def _turned(self, before: tuple[str, ...], known: Known) -> Turnover:
        """Return who has come and gone."""
        now = self.hosts[: plan_of(known).world_size]
        return Turnover(
            joined=tuple(name for name in now if name not in before),
            left=tuple(name for name in before if name not in now),
        )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank; where all share one, what members are called instead."""
        return tuple(map(self.host, self._membership.ranks))

    def host(self, number: int) -> str:
        """Return the host of a member; where all share one, what it is called instead."""
        return self._membership.member(number).host if self._settings.nodes else f"member {number}"
