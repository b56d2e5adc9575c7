"""The ledger of hosts that come, go and change their speed: who, when, and how long nobody trained for that."""

import time
from collections.abc import Callable
from typing import Any

from nfold.core.members import NOBODY, SpeedShift
from nfold.core.plan import Plan
from nfold.core.report import MemberEvent
from nfold.core.text.units import count, percent
from nfold.runtime.control import commands as cmd


class MemberLedger:
    """Makes a row of each host that came, went or changed its speed, once the next step shows how long that took."""

    def __init__(self, clock: Callable[[], float], now: Callable[[], float] = time.time) -> None:
        """Args:
        clock: gives seconds.
        now: gives seconds since 1970.
        """
        self._clock, self._now = clock, now
        self._stepped_s = clock()
        self._turnover, self._ranks, self._step = NOBODY, 0, 0
        self._shares: tuple[tuple[SpeedShift, str], ...] = ()

    def begun(self) -> None:
        """Take in that training begins."""
        self._stepped_s = self._clock()

    def changed(self, other: cmd.Replanned) -> None:
        """Take in that a generation follows with other members, or the same ones."""
        if other.turnover or other.shifts:
            self._turnover, self._ranks, self._step = other.turnover, other.plan.world_size, other.next_step + 1
            self._shares = tuple(
                (shift, share_of(shift.node, other.plan)) for shift in other.shifts if shift.node in other.plan.nodes
            )

    def stepped(self, step_s: float) -> list[MemberEvent]:
        """Take in that a step of so many seconds is done; return the rows of what happened before it."""
        now_s, turnover, shares = self._clock(), self._turnover, self._shares
        pause_s = max(0.0, now_s - self._stepped_s - step_s)
        self._stepped_s, self._turnover, self._shares = now_s, NOBODY, ()
        shared: dict[str, Any] = {"at": self._now(), "step": self._step, "ranks": self._ranks, "pause_s": pause_s}
        return [
            *(MemberEvent(kind="loss", who=name, steps_again=turnover.steps_again, **shared) for name in turnover.lost),
            *(MemberEvent(kind="leave", who=name, **shared) for name in turnover.left),
            *(MemberEvent(kind="join", who=name, **shared) for name in turnover.joined),
            *(_of_speed(shift, share, shared) for shift, share in shares),
        ]


def share_of(node: str, plan: Plan) -> str:
    """Say what the ranks of a node compute of a step: its chunks, or of a cut model its part of the work."""
    own = [rank for rank, name in enumerate(plan.nodes) if name == node]
    if not plan.placement.is_cut:
        owners = next(iter(plan.placement.owners.values()))
        got = sum(owner in own for owner in owners)
        return f"{got or 'none'} of {count(len(owners), 'chunk')}"
    cells = [owner for owners in plan.placement.owners.values() for owner in owners]
    return f"{percent(sum(owner in own for owner in cells) / len(cells))} of the cells"


def _of_speed(shift: SpeedShift, share: str, shared: dict[str, Any]) -> MemberEvent:
    slower = round(shift.times_slower, 2)
    return MemberEvent(kind="speed", who=shift.node, changed=shift.told, times_slower=slower, share=share, **shared)
