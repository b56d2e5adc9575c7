"""Why a generation ends before the run does: another plan pays, or members come and go. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from nfold.core.job import Known
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.members.lookahead import Lookahead
from nfold.runtime.coordinator.members.membership import Decision, Membership
from nfold.runtime.coordinator.replanning import Replanning

NOT_KEPT = "nobody could go on from a checkpoint of this program"


class GenerationEnd:
    """Decides whether one generation is to end before the run does."""

    def __init__(self, known: Known, replanning: Replanning, membership: Membership, lookahead: Lookahead) -> None:
        """Args:
        known: what the generation rests on.
        replanning: of the same.
        membership: of the job.
        lookahead: what other members would begin.
        """
        self._known, self._replanning, self._membership = known, replanning, membership
        self._lookahead = lookahead

    @property
    def is_due(self) -> bool:
        """Whether all ranks are to stop after the same step, because another generation follows."""
        return self._replanning.next is not None or self._lookahead.is_ready

    @property
    def is_last(self) -> bool:
        """Whether all members want to leave, so that the run is kept and ends."""
        return self._membership.decision is Decision.STOP

    @property
    def planned(self) -> Known | None:
        """The other plan that the same members go on with, because links have changed; None: there is none."""
        return self._replanning.next

    @property
    def known(self) -> Known:
        """The measurements and the plan of the generation, with the links as they were last probed."""
        return self._known

    def take(self, news: Iterable[cmd.Command], num_left: int) -> list[cmd.Command]:
        """Take in what probing the links found; see `Replanning.take`."""
        news = list(news)
        for found in news:
            if isinstance(found, cmd.LinksChanged):
                self._known = replace(self._known, cluster=found.cluster)
                self._lookahead.links(found.cluster)
        return self._replanning.take(news, num_left)

    def give_up(self) -> list[cmd.Command]:
        """Keep plan and members until the run ends: no checkpoint can carry it over to another generation."""
        waiting = [*self._membership.newcomers, *self._membership.leavers]
        self._replanning.give_up()
        self._membership.fix(NOT_KEPT)
        return [cmd.Noted(f"note: member {number} waits until the end: {NOT_KEPT}") for number in waiting]
