"""Whether a run goes on under another plan, now that links are not what it was planned for. Pure.

links changed ──> plan for them ──> faster by enough? ──> all stop at one step, keep a checkpoint,
                                                          and the next generation goes on from it
"""

from collections.abc import Iterable
from dataclasses import replace

from nfold.core.cluster import Cluster
from nfold.core.job import Known
from nfold.core.plan import Plan
from nfold.errors import InternalError, PlanError
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready

LEAST_GAIN = 0.1
"""Of a step; predictions of less are no better than a guess."""
TIMES_PRICE = 3.0
"""What the steps that are left must win, as a multiple of what it takes to change the plan."""


class Replanning:
    """The measurements that one generation rests on, and those for the next one if there is to be one."""

    def __init__(self, planning: JobPlanning, known: Known, ready: Ready, *, price_s: float, is_wanted: bool) -> None:
        """Args:
        planning: of the generation's ranks.
        known: with its plan.
        ready: what ranks told of the program.
        price_s: what it takes to stop, to keep the state, and to build again.
        is_wanted: False where no checkpoint may be written, so that there is nothing to go on from.
        """
        self._planning, self._known, self._price_s = planning, known, price_s
        self._ready = {**ready, "chunks": plan_of(known).chunks}  # the result depends on them
        self._is_wanted = is_wanted and plan_of(known).asynchrony is None  # asynchronous workers follow their links
        self.next: Known | None = None

    def take(self, news: Iterable[cmd.Command], num_left: int) -> list[cmd.Command]:
        """Take in what was found of links; return what to tell if another plan is to follow.

        Args:
            news: commands, changes of links among them.
            num_left: steps that nobody was told to play yet.
        """
        for found in news:
            if isinstance(found, cmd.LinksChanged) and self._is_wanted and self.next is None:
                return self._plan_again(found.cluster, num_left)
        return []

    def give_up(self) -> None:
        """Keep the plan until the run ends: no checkpoint can carry it over to another plan."""
        self.next, self._is_wanted = None, False

    def _plan_again(self, cluster: Cluster, num_left: int) -> list[cmd.Command]:
        now, chosen = replace(self._known, cluster=cluster, plan=None), plan_of(self._known)
        try:
            other = self._planning.plan(now, self._ready)
        except PlanError:
            return []  # a step would take longer than anybody waits: under the plan of now at least it is under way
        before_s, after_s = self._planning.predicted_s(now, chosen, self._ready), other.predicted.step_s
        is_other = (other.placement, other.reductions) != (chosen.placement, chosen.reductions)
        wins_s = num_left * (before_s - after_s)
        if not is_other or after_s > (1 - LEAST_GAIN) * before_s or wins_s < TIMES_PRICE * self._price_s:
            return []
        self.next = replace(now, plan=other)
        return [
            cmd.Noted(
                f"planned again for these links: {other.strategy} with {after_s * 1e3:.0f} ms a step follows "
                f"{chosen.strategy} with {before_s * 1e3:.0f}; it wins {wins_s:.0f} s in the {num_left} steps left"
            )
        ]


def plan_of(known: Known) -> Plan:
    """Return the plan that is known.

    Raises:
        InternalError: there is none yet.
    """
    if known.plan is None:
        raise InternalError("nothing is planned yet")
    return known.plan
