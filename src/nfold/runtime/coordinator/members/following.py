"""Says which newcomer follows as a shadow while others train, and which ones wait for their turn. Pure.

    one can be planned with ────> it follows, where that is worth its bytes; else all wait while it reads the state
    several can ────> those that would not follow come in first, all at once
                 └──> then the others, one after another: the next one once the one before trains

Where there is no plan with one of them, or it lets nobody follow, all come in at once.
"""

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from nfold.core.cluster import Node
from nfold.core.job import Known
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.members.shadow import Shadow, following_rate, longest_follow_s
from nfold.runtime.coordinator.replanning import plan_of

NUM_STEPS = 8
"""Of which the median says how long a step is: one after a checkpoint finds its samples loaded."""


class Following:
    """Who follows the ranks of a generation.

    Attributes:
        shadow: the newcomer that follows; None: nobody does.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.shadow: Shadow | None = None
        self._next: tuple[int, float] | None = None
        """The newcomer that follows once it has built, and how fast it reads the state; None: nobody is to."""
        self._turn: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        """Who stays, and those newcomers that come in before the others; None: all come in at once."""
        self._is_to_follow = False
        """Whether the one whose turn it is comes in alone because it would follow."""
        self._all_with: tuple[int, ...] = ()
        """Ranks that newcomers come to all at once, since those whose turn it was did not do alone."""
        self._steps_s: deque[float] = deque(maxlen=NUM_STEPS)
        """Seconds of the last steps of the generation without a shadow."""

    def begin(self) -> None:
        """Take in that a generation begins."""
        self._steps_s.clear()

    def forget(self) -> None:
        """Let nobody follow, and nobody wait: the next generation begins."""
        self.shadow = self._next = self._turn = None
        self._all_with = ()

    def reach(self, step: int, step_s: float) -> None:
        """Take in that so many steps are done, and how long the last one took."""
        if self.shadow is not None:
            self.shadow.reach(step)
        else:
            self._steps_s.append(step_s)

    @property
    def next(self) -> int | None:
        """The newcomer that is to follow once it has built; None: nobody is."""
        return None if self._next is None else self._next[0]

    @property
    def is_next(self) -> bool:
        """Whether a newcomer is to follow once it has built."""
        return self._next is not None

    @property
    def may_begin(self) -> bool:
        """Whether nobody is to follow first, or who follows is as far as the others."""
        return self._next is None and (self.shadow is None or self.shadow.is_ready)

    @property
    def awaited(self) -> Shadow | None:
        """The newcomer that follows and was never as far as the others; None: there is none."""
        return self.shadow if self.shadow is not None and self.shadow.is_awaited else None

    def in_turn(self, stayers: tuple[int, ...], newcomers: tuple[int, ...]) -> tuple[int, ...]:
        """Return which newcomers come in next, of those that can be planned with."""
        if self._turn is None or self._turn[0] != stayers or not set(self._turn[1]) <= set(newcomers):
            return newcomers
        return self._turn[1]

    def take(self, found: ev.PlannedAside, known: Known, nodes: Mapping[str, Node]) -> bool:
        """Take in a plan with newcomers, or why there is none; return whether it counts: else others have their turn.

        Args:
            found: the answer.
            known: what trains.
            nodes: that were measured, by name.
        """
        rates, self._next = self._rates(found, known, nodes), None
        following = [(number, rate) for number, rate in rates.items() if rate is not None]
        if (found.stayers, found.newcomers) == self._turn:
            if found.known is None or (self._is_to_follow and not following):
                self._turn, self._all_with = None, found.stayers
                return False
        elif following and len(rates) > 1 and found.stayers != self._all_with:
            quick = tuple(number for number, rate in rates.items() if rate is None)
            self._turn, self._is_to_follow = (found.stayers, quick or (following[0][0],)), not quick
            return False
        if len(rates) == 1 and following:
            (self._next,) = following
        return True

    def _rates(self, found: ev.PlannedAside, known: Known, nodes: Mapping[str, Node]) -> dict[int, float | None]:
        """Return how fast each newcomer that a plan has work for reads the state as a shadow; None: it does not.

        Where nobody trains for want of others, nobody follows.
        """
        if found.known is None or found.stayers != self._membership.ranks or self._membership.num_lacking:
            return {}
        step_s = median(self._steps_s or [plan_of(known).predicted.step_s])
        return {
            number: following_rate(known, found.known, rank, nodes.get(self._host(number)), step_s)
            for rank, number in enumerate(found.members[: len(found.builds)])
            if number not in found.stayers
        }

    def follow(self, now: Known, then: Known, nodes: Mapping[str, Node]) -> list[cmd.ToShell]:
        """Let the newcomer follow that is to, which has built.

        Args:
            now: what trains.
            then: what is to follow.
            nodes: that were measured, by name.
        """
        if self._next is None:
            return []
        (number, rate), self._next = self._next, None
        longest_s = longest_follow_s(now, nodes.get(self._host(number)))
        self.shadow = Shadow(number, self._membership, now, then, rate, longest_s)
        later = [each for each in self._membership.newcomers if each not in (number, *self._membership.spares)]
        after = f"; after it {', '.join(map(self._host, later))}" if later else ""
        told = f"{self._host(number)} follows as a shadow: it reads the state beside the steps{after}"
        return [cmd.Noted(told), *self.shadow.begin()]

    def hear(self, number: int, message: dict[str, Any]) -> list[cmd.ToShell]:
        """Take in what a rank has lent, or how far the newcomer is; return the order that follows."""
        return [] if self.shadow is None else self.shadow.hear(number, message)

    @property
    def failure(self) -> str:
        """Why the newcomer follows no more; empty: nothing speaks against it, or there is none."""
        return "" if self.shadow is None else self.shadow.failure

    def give_up(self, why: str) -> list[cmd.ToShell]:
        """Let the newcomer follow no more, for the reason `why`."""
        assert self.shadow is not None, "somebody follows"
        name = self._host(self.shadow.number)
        return [cmd.Noted(f"note: {name} follows no more: {why.rstrip('.')}."), *self.end()]

    def end(self) -> list[cmd.ToShell]:
        """Return the order that nobody is given anything more."""
        shadow, self.shadow, self._next = self.shadow, None, None
        return [] if shadow is None else shadow.end()

    def _host(self, number: int) -> str:
        return self._membership.member(number).host
