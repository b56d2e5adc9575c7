"""Why a generation ends before the run does: another plan pays, or members come and go. Pure."""

from collections.abc import Iterable, Sequence

from nfold.core.job import Known
from nfold.core.members import SpeedShift, Turnover
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.members.lookahead import Lookahead
from nfold.runtime.coordinator.members.membership import Decision, Membership
from nfold.runtime.coordinator.replanning import Replanning

NOT_KEPT = "nobody could go on from a checkpoint of this program"


class GenerationEnd:
    """Decides whether one generation is to end before the run does."""

    def __init__(self, replanning: Replanning, membership: Membership, lookahead: Lookahead | None) -> None:
        """Args:
        replanning: of what the generation rests on.
        membership: of the job.
        lookahead: what other members would begin; None: that is found out when all have stopped.
        """
        self._replanning, self._membership, self._lookahead = replanning, membership, lookahead
        self._seen = replanning.known.cluster

    @property
    def is_due(self) -> bool:
        """Whether all ranks are to stop after the same step, because another generation follows."""
        return self._replanning.next is not None or self.members_change

    @property
    def members_change(self) -> bool:
        """Whether the next generation has other members, and may begin."""
        if self._lookahead is not None:
            return self._lookahead.is_ready
        return self._membership.decision in (Decision.GROW, Decision.SHRINK)

    @property
    def is_near(self) -> bool:
        """Whether another generation is about to begin: what would stop all for the sake of links waits for that."""
        return self.is_due or (self._lookahead is not None and self._lookahead.is_under_way)

    @property
    def has_no_room(self) -> bool:
        """Whether those who stay are to have no plan, and wait for others."""
        return self._lookahead is not None and self._lookahead.has_no_room

    @property
    def leaving(self) -> tuple[int, ...]:
        """Ranks that are to leave."""
        return tuple(map(self._membership.ranks.index, self._membership.leavers))

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that there are by now."""
        return tuple(range(len(self._membership.ranks)))

    def told(self, turnover: Turnover) -> Turnover:
        """Return a turnover with what is known of its hosts."""
        return self._membership.histories.told(turnover)

    @property
    def num_lacking(self) -> int:
        """How many ranks more it takes to train."""
        return self._membership.num_lacking

    @property
    def returning(self) -> tuple[str, ...]:
        """Hosts that have lost their rank and come again."""
        return self._membership.returning

    @property
    def others_can_come(self) -> bool:
        """Whether ranks that are too few may wait for others."""
        return self._membership.others_can_come

    @property
    def is_last(self) -> bool:
        """Whether all members want to leave, so that the run is kept and ends."""
        return self._membership.decision is Decision.STOP

    @property
    def planned(self) -> Known | None:
        """The other plan that the same members go on with, since links or speeds have changed; None: none is."""
        return self._replanning.next

    @property
    def known(self) -> Known:
        """The measurements and the plan of the generation, with links and speeds as they were last seen."""
        return self._replanning.known

    @property
    def shifts(self) -> tuple[SpeedShift, ...]:
        """Nodes whose speed has changed since the generation began."""
        return self._replanning.shifts

    def take(self, news: Iterable[cmd.Command], num_left: int) -> list[cmd.Command]:
        """Take in steps, and what probing the links found; see `Replanning.take`. Steps with a shadow do not count."""
        telling = [each for each in news if not (isinstance(each, cmd.StepDone) and self._follow_step(each))]
        return self._foreseen(self._replanning.take(telling, num_left))

    def _follow_step(self, done: cmd.StepDone) -> bool:
        """Let a shadow know of a step; return whether there is one."""
        if self._lookahead is not None:
            self._lookahead.reach(done.step + 1, max(part.step_s for part in done.parts))
            return self._lookahead.has_shadow
        return False

    def see_probes(self, are_open: bool) -> Sequence[cmd.Command]:
        """Take in whether links are probed again: nobody begins to follow meanwhile, which would slow them down."""
        if self._lookahead is None or self._lookahead.are_links_probed == are_open:
            return []
        self._lookahead.are_links_probed = are_open
        return self._lookahead.advance()

    def hear(self, event: ev.Received, num_left: int) -> list[cmd.Command]:
        """Take in what a rank says of its speed; see `Replanning.hear`."""
        return self._foreseen(self._replanning.hear(event, num_left))

    def _foreseen(self, commands: list[cmd.Command]) -> list[cmd.Command]:
        """Let what is planned ahead rest on links and speeds as they were last seen."""
        if self._replanning.known.cluster is not self._seen:
            self._seen = self._replanning.known.cluster
            if self._lookahead is not None:
                self._lookahead.see(self._seen)
        return commands

    def end_following(self) -> Sequence[cmd.Command]:
        """Return the order that nobody follows any more, as ranks deliver what they have learnt."""
        return [] if self._lookahead is None else self._lookahead.end_following()

    def give_up(self) -> list[cmd.Command]:
        """Keep plan and members until the run ends: no checkpoint can carry it over to another generation."""
        waiting = [*self._membership.newcomers, *self._membership.leavers]
        self._replanning.give_up()
        self._membership.fix(NOT_KEPT)
        ended = [] if self._lookahead is None else self._lookahead.advance()
        return [*ended, *(cmd.Noted(f"note: member {number} waits until the end: {NOT_KEPT}") for number in waiting)]
