"""Whether a run goes on under another plan, now that links or speeds are not what it was planned for. Pure.

links or speeds changed ──> plan for them ──> faster by enough? ──> all stop at one step, keep a checkpoint,
                                                                    and the next generation goes on from it
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from nfold.core.job import Known
from nfold.core.members import SpeedShift
from nfold.core.plan import Plan
from nfold.errors import InternalError, PlanError
from nfold.planning.choosing.strategies import Ring
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready
from nfold.runtime.measuring import better_shares
from nfold.runtime.measuring.shifting_speeds import ShiftingSpeeds

LEAST_GAIN = 0.1
"""Of a step, by a plan of another kind; predictions of less are no better than a guess."""
AS_FAST = 1.05
"""Times the seconds of a step with fewer ranks, that one with all may take."""
TIMES_PRICE = 3.0
"""What the steps that are left must win, as a multiple of what it takes to change the plan."""


class Replanning:
    """The measurements that one generation rests on, and those for the next one if there is to be one.

    Attributes:
        known: with the plan of the generation, and links and speeds as they were last seen.
        next: the same with another plan that is to follow; None: none is.
        shifts: nodes whose speed has changed since the generation began, the last of each.
    """

    def __init__(
        self,
        planning: JobPlanning,
        known: Known,
        ready: Ready,
        *,
        price_s: float,
        shares_price_s: float,
        is_wanted: bool,
        speeds: ShiftingSpeeds,
        from_step: int = 0,
    ) -> None:
        """Args:
        planning: of the generation's ranks.
        known: with its plan.
        ready: what ranks told of the program.
        price_s: what it takes to stop, to keep the state, and to build again.
        shares_price_s: the same where ranks go on with the models that they have.
        is_wanted: False where no checkpoint may be written, so that there is nothing to go on from.
        speeds: of the run's nodes.
        from_step: the first one in which each rank has the share of samples that is planned with.
        """
        self._from_step = from_step
        self._planning, self.known, self._speeds = planning, known, speeds
        self._price_s, self._shares_price_s = price_s, shares_price_s
        self._ready = {**ready, "chunks": plan_of(known).chunks}  # the result depends on them
        self._is_wanted = is_wanted and plan_of(known).asynchrony is None  # asynchronous workers follow their links
        self.next: Known | None = None
        self._shifts: dict[str, SpeedShift] = {}
        speeds.begin(plan_of(known), known.cluster)

    @property
    def shifts(self) -> tuple[SpeedShift, ...]:
        """Nodes whose speed has changed since the generation began."""
        return tuple(self._shifts.values())

    def take(self, news: Iterable[cmd.Command], num_left: int) -> list[cmd.Command]:
        """Take in steps, and what was found of links; return what to tell if another plan is to follow.

        Args:
            news: commands, changes of links among them.
            num_left: steps that nobody was told to play yet.
        """
        commands: list[cmd.Command] = []
        for found in news:
            if isinstance(found, cmd.LinksChanged):
                self.known = replace(self.known, cluster=self._speeds.in_cluster(found.cluster))
                commands += self._follow("these links", num_left, self._planning.plan)
            elif isinstance(found, cmd.StepDone) and self._is_watched(found):
                shifts = self._speeds.look(found)
                commands += [*self._speeds.orders(shifts), *self._shifted(shifts, num_left)]
        return commands

    def _is_watched(self, done: cmd.StepDone) -> bool:
        return done.step >= self._from_step and self._is_wanted and self.next is None

    def hear(self, event: ev.Received, num_left: int) -> list[cmd.Command]:
        """Take in what a rank without work says of its speed; return as `take`."""
        if event.message["is"] != "gauged" or not self._is_wanted:
            return []
        return self._shifted(self._speeds.gauged(event.rank, event.message["bit_s"]), num_left)

    def give_up(self) -> None:
        """Keep the plan until the run ends: no checkpoint can carry it over to another plan."""
        self.next, self._is_wanted = None, False

    def _shifted(self, shifts: Sequence[SpeedShift], num_left: int) -> list[cmd.Command]:
        if not shifts:
            return []
        self.known = replace(self.known, cluster=self._speeds.in_cluster(self.known.cluster))
        followed = self._follow("these speeds", num_left, self._plan_for_all)
        lasting = [shift for shift in shifts if followed or not shift.is_waited_for]
        self._shifts |= {shift.node: shift for shift in lasting}
        if followed or not lasting:
            return followed
        told = "; ".join(f"{shift.node} {shift.told}" for shift in lasting)
        return [cmd.Noted(f"{told}: no other plan wins what changing to it would cost")]

    @property
    def _asked(self) -> Ready:
        return {**self._ready, "may_rest": self._speeds.seen}

    def _follow(self, what: str, num_left: int, plan: Callable[[Known, Ready], Plan]) -> list[cmd.Command]:
        """Plan again for what has changed, if that is wanted; let it follow if it pays."""
        return self._plan_again(what, num_left, plan) if self._is_wanted and self.next is None else []

    def _plan_for_all(self, now: Known, ready: Ready) -> Plan:
        """Return a plan that lets nobody go where one is as fast: who is slow may be fast again."""
        best, count = self._planning.plan(now, ready), plan_of(self.known).world_size
        if best.world_size == count:
            return best
        with contextlib.suppress(PlanError):
            staying = self._planning.plan(now, ready, Ring.name)
            if staying.world_size == count and staying.predicted.step_s <= AS_FAST * best.predicted.step_s:
                return staying
        return best

    def _plan_again(self, what: str, num_left: int, plan: Callable[[Known, Ready], Plan]) -> list[cmd.Command]:
        now, chosen = replace(self.known, plan=None), plan_of(self.known)
        try:
            other = plan(now, self._asked)
        except PlanError:
            return []  # a step would take longer than anybody waits: under the plan of now at least it is under way
        before_s, after_s = self._planning.predicted_s(now, chosen, self._asked), other.predicted.step_s
        is_other = (other.placement, other.reductions) != (chosen.placement, chosen.reductions)
        wins_s = num_left * (before_s - after_s)
        are_shares = _are_shares(chosen, other)
        least = better_shares.LEAST_GAIN if are_shares else LEAST_GAIN
        price_s = self._shares_price_s if are_shares and chosen.is_replicated else self._price_s
        if not is_other or after_s > (1 - least) * before_s or wins_s < TIMES_PRICE * price_s:
            return []
        self.next = replace(now, plan=other)
        return [
            cmd.Noted(
                f"planned again for {what}: {other.strategy} with {after_s * 1e3:.0f} ms a step follows "
                f"{chosen.strategy} with {before_s * 1e3:.0f}; it wins {wins_s:.0f} s in the {num_left} steps left"
            )
        ]


def _are_shares(chosen: Plan, other: Plan) -> bool:
    """Whether only the chunks of each rank differ: errors of both predictions are the same then."""
    same = (chosen.strategy, chosen.threads, chosen.reductions) == (other.strategy, other.threads, other.reductions)
    return same and not (chosen.placement.is_cut or other.placement.is_cut)


def plan_of(known: Known) -> Plan:
    """Return the plan that is known.

    Raises:
        InternalError: there is none yet.
    """
    if known.plan is None:
        raise InternalError("nothing is planned yet")
    return known.plan
