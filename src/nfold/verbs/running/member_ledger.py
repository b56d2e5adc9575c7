"""The ledger of what changes who trains: who, when, why, how long nobody trained for that, and what else it cost."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from statistics import median

from nfold.core.member_event import MemberEvent
from nfold.core.plan import Plan
from nfold.core.text.units import count, percent
from nfold.runtime.control import commands as cmd

SETTLING_STEPS = 8
"""After so many steps a row is complete: in the first ones caches, threads and connections are still cold."""
_PACE_STEPS = 20
"""The last ones, of which the median is the pace."""
_SLOWER = 1.1
"""Times the pace: from there on a step counts as slower."""


class MemberLedger:
    """Makes rows of what began each generation but the first, once its next steps show what that took."""

    def __init__(self, clock: Callable[[], float], now: Callable[[], float] = time.time) -> None:
        """Args:
        clock: gives seconds.
        now: gives seconds since 1970.
        """
        self._clock, self._now = clock, now
        self._stepped_s = clock()
        self._batch_size = self._moved_bytes = 0
        self._steps_s: deque[float] = deque(maxlen=_PACE_STEPS)
        """Of the generation under way."""
        self._before_s: float | None = None
        """The pace before what has changed, in seconds a step; None: no step was done."""
        self._changes: list[cmd.Replanned | cmd.Departed] = []
        """That no step has followed yet."""
        self._rows: list[MemberEvent] = []
        """That are not complete."""

    def begun(self, batch_size: int) -> None:
        """Take in that training begins."""
        self._stepped_s, self._batch_size = self._clock(), batch_size

    def changed(self, other: cmd.Replanned | cmd.Departed) -> list[MemberEvent]:
        """Take in that a generation follows, or that nobody trains; return the rows that are complete with that."""
        complete = self.settled()
        if not self._changes:
            self._before_s, self._moved_bytes = median(self._steps_s) if self._steps_s else None, 0
            self._steps_s.clear()
        self._changes.append(other)
        return complete

    def moved(self, num_bytes: int) -> None:
        """Take in that ranks were given state."""
        self._moved_bytes += num_bytes

    def stepped(self, step_s: float) -> tuple[list[MemberEvent], list[MemberEvent]]:
        """Take in that a step of so many seconds is done; return the rows that begin with it, and complete ones."""
        now_s = self._clock()
        pause_s, self._stepped_s = max(0.0, now_s - self._stepped_s - step_s), now_s
        self._steps_s.append(step_s)
        begun = self._begin(pause_s) if self._changes else []
        return begun, self.settled() if len(self._steps_s) >= SETTLING_STEPS else []

    def settled(self) -> list[MemberEvent]:
        """Return the rows that were not complete, with what is known of them by now."""
        rows, self._rows = self._rows, []
        more = self._slow_samples() / len(rows) if rows else 0.0
        return [row if row.samples_lost is None else replace(row, samples_lost=row.samples_lost + more) for row in rows]

    def unfollowed(self) -> list[MemberEvent]:
        """Return the rows of what no step has followed: the run is over."""
        if not self._changes:
            return []
        complete, self._rows = self._rows, []
        rows = self._begin(max(0.0, self._clock() - self._stepped_s))
        self._rows = complete
        return rows

    def _begin(self, pause_s: float) -> list[MemberEvent]:
        """Make a row of each host that came or went since the step before."""
        now, changes, self._changes = self._now(), self._changes, []
        named = [(change, kind, who) for change in changes for kind, who in _named(change)]
        again = sum(change.turnover.steps_again for change in changes)
        lost = None if self._before_s is None else (pause_s / self._before_s + again) * self._batch_size / len(named)
        for change, kind, who in named:
            turnover, is_loss = change.turnover, kind == "loss"
            launched_at, steps_again = turnover.launched_at.get(who), turnover.steps_again if is_loss else 0
            row = MemberEvent(
                at=now,
                kind=kind,
                who=who,
                step=changes[-1].next_step + 1,
                ranks=0 if isinstance(changes[-1], cmd.Departed) else changes[-1].plan.world_size,
                pause_s=pause_s,
                steps_again=steps_again,
                again_from=turnover.again_from if is_loss else "",
                reason=_reason(change, kind, who),
                share=share_of(who, change.plan) if kind == "speed" and isinstance(change, cmd.Replanned) else "",
                boot_s=None if launched_at is None else now - launched_at,
                moved_bytes=self._moved_bytes // len(named),
                samples_at_stake=steps_again * self._batch_size // len(turnover.lost) if is_loss else 0,
                samples_lost=lost,
            )
            self._rows.append(row)
        return [*self._rows]

    def _slow_samples(self) -> float:
        """Samples that the first steps of the generation would have had time for at the pace that followed."""
        if not self._steps_s:
            return 0.0
        pace_s = median(self._steps_s)
        slow = takewhile(lambda step_s: step_s > _SLOWER * pace_s, self._steps_s)
        return sum(step_s / pace_s - 1 for step_s in slow) * self._batch_size


def _named(change: cmd.Replanned | cmd.Departed) -> list[tuple[str, str]]:
    """Return the kinds of rows of a change, and whom each is about."""
    turnover = change.turnover
    who = [
        *(("loss", name) for name in turnover.lost),
        *(("leave", name) for name in turnover.left),
        *(("join", name) for name in turnover.joined),
    ]
    if isinstance(change, cmd.Departed):
        return who
    who += [("speed", shift.node) for shift in change.shifts if shift.node in change.plan.nodes]
    return who or [(change.kind, "")]


def _reason(change: cmd.Replanned | cmd.Departed, kind: str, who: str) -> str:
    if who and kind != "speed":
        return change.turnover.why.get(who, "")
    assert isinstance(change, cmd.Replanned), "other rows are about hosts"
    return change.reason if not who else next(shift.told for shift in change.shifts if shift.node == who)


def share_of(node: str, plan: Plan) -> str:
    """Say what the ranks of a node compute of a step: its chunks, or of a cut model its cells."""
    own = [rank for rank, name in enumerate(plan.nodes) if name == node]
    if not plan.placement.is_cut:
        owners = next(iter(plan.placement.owners.values()))
        got = sum(owner in own for owner in owners)
        return f"{got or 'none'} of {count(len(owners), 'chunk')}"
    cells = [owner for owners in plan.placement.owners.values() for owner in owners]
    return f"{percent(sum(owner in own for owner in cells) / len(cells))} of the cells"
