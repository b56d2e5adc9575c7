"""The ledger of hosts that come and go: who, when, and how long nobody trained for that."""

import time
from collections.abc import Callable
from typing import Any

from nfold.core.members import NOBODY
from nfold.core.report import MemberEvent
from nfold.runtime.control import commands as cmd


class MemberLedger:
    """Makes a row of each host that came or went, once the next step shows how long that took."""

    def __init__(self, clock: Callable[[], float], now: Callable[[], float] = time.time) -> None:
        """Args:
        clock: gives seconds.
        now: gives seconds since 1970.
        """
        self._clock, self._now = clock, now
        self._stepped_s = clock()
        self._turnover, self._ranks, self._step = NOBODY, 0, 0

    def begun(self) -> None:
        """Take in that training begins."""
        self._stepped_s = self._clock()

    def changed(self, other: cmd.Replanned) -> None:
        """Take in that a generation follows with other members, or the same ones."""
        if other.turnover:
            self._turnover, self._ranks, self._step = other.turnover, other.plan.world_size, other.next_step + 1

    def stepped(self, step_s: float) -> list[MemberEvent]:
        """Take in that a step of so many seconds is done; return the rows of what happened before it."""
        now_s, turnover = self._clock(), self._turnover
        pause_s = max(0.0, now_s - self._stepped_s - step_s)
        self._stepped_s, self._turnover = now_s, NOBODY
        shared: dict[str, Any] = {"at": self._now(), "step": self._step, "ranks": self._ranks, "pause_s": pause_s}
        again: dict[str, Any] = {"steps_again": turnover.steps_again, "again_from": turnover.again_from}
        return [
            *(MemberEvent(kind="loss", who=name, **again, **shared) for name in turnover.lost),
            *(MemberEvent(kind="leave", who=name, **shared) for name in turnover.left),
            *(MemberEvent(kind="join", who=name, **shared) for name in turnover.joined),
        ]
