"""Notices a task of a step that takes far longer than whole steps do, on the rank that does it. Pure: no clock.

A rank that hangs in the user's code (a network disk that is gone, an endless loop) still shows that it lives. Only what
a rank does itself is looked at, so one that waits for messages of others is never accused, and what comes between steps
(evaluations, checkpoints, a loop that rests) is no task.
"""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from nfold.runtime.failures.silent_ranks import OWN_GAP_S

LEAST_S = 30.0
"""A task that takes less is never told of."""
TIMES_STEP = 20
TIMES_LONGEST = 2
"""Of the longest task so far: some steps are always longer, as where every hundredth opens another file."""
FIRST_S = 300.0
"""The least until a step of the plan is over: the first one may warm up for long."""
_RECENT = 16
_BRIEF_S = 1.0
"""Tasks that are younger are not looked at."""


class RunningTask(NamedTuple):
    """A task that a rank does now."""

    kind: str
    """As `ComputeTask.kind`."""
    step: int
    thread: int
    """That does it."""
    begin_s: float


class Stall(NamedTuple):
    """A task that takes far too long."""

    task: RunningTask
    seconds: float
    """For how long."""
    step_s: float | None
    """What a whole step takes; None: none was over yet."""


class TaskWatch:
    """What one rank does now. The thread that plays steps tells it; another one may look."""

    def __init__(self) -> None:
        self._task: RunningTask | None = None
        self._told: RunningTask | None = None
        self._recent_s: tuple[float, ...] = ()
        """Of the last steps; replaced, never changed, as another thread reads it."""
        self._longest_s = self._predicted_s = 0.0
        self._looked_s = self._awake_s = float("-inf")

    def begin_plan(self, predicted_s: float) -> None:
        """Begin anew: another plan has other steps.

        Args:
            predicted_s: what each is to take.
        """
        self._recent_s, self._longest_s, self._predicted_s = (), 0.0, predicted_s

    def begin(self, task: RunningTask) -> None:
        """Note that a task has begun."""
        self._task = task

    def end(self, seconds: float) -> None:
        """Note that the task is over, after that time."""
        self._task, self._longest_s = None, max(self._longest_s, seconds)

    def step_done(self, seconds: float) -> None:
        """Note that a step is over."""
        self._recent_s = (*self._recent_s[1 - _RECENT :], seconds)

    def look(self, now_s: float, is_explained: Callable[[RunningTask], bool]) -> Stall | None:
        """Return the task that takes far too long; None: none does. Call it every few seconds.

        Args:
            now_s: by the clock of tasks.
            is_explained: says whether a task waits for another rank, and so is not to blame.
        """
        if now_s - self._looked_s > OWN_GAP_S:
            self._awake_s = now_s  # this process was stopped, or its machine slept
        self._looked_s = now_s
        task, recent_s = self._task, self._recent_s
        if task is None or now_s - task.begin_s < _BRIEF_S:
            return None
        step_s = median(recent_s) if recent_s else None
        if task is self._told:
            return Stall(task, now_s - task.begin_s, step_s)
        if is_explained(task):
            self._awake_s = now_s
        seconds = now_s - max(task.begin_s, self._awake_s)
        if seconds < self._limit_s(step_s):
            return None
        self._told = task
        return Stall(task, seconds, step_s)

    def _limit_s(self, step_s: float | None) -> float:
        if step_s is None:
            return max(FIRST_S, TIMES_STEP * self._predicted_s)
        return max(LEAST_S, TIMES_STEP * step_s, TIMES_LONGEST * self._longest_s)
