"""Says when training must stop so that a checkpoint is there when the time is over. Pure: no clock.

`--stop-after` becomes a point on the clock where the run begins: in `verbs/running/run_job.py` and `session.py`.
"""

from math import inf


class TimeLimit:
    """The time limit of one run, in seconds on the caller's clock."""

    def __init__(self, end_s: float = inf) -> None:
        """Args:
        end_s: when the time is over; never unless it is given.
        """
        self._end_s = end_s
        self._checkpoint_s = 0.0
        self._since_s: float | None = None
        self._allowed = self._done = 0
        self._steps_s = (0.0, 0.0)
        """Of the last two: one that something held up shall not count."""

    @property
    def due_s(self) -> float:
        """When training must stop: before the limit by the steps under way and by the longest checkpoint so far."""
        return self._end_s - self._checkpoint_s - max(0, self._allowed - self._done) * min(self._steps_s)

    def allowed(self, steps: int) -> None:
        """Note that the steps before this one will be played in any case."""
        self._allowed = steps

    def played(self, steps: int, step_s: float) -> None:
        """Note how many steps are done, and the seconds of the last one."""
        self._done, self._steps_s = steps, (self._steps_s[1], step_s)

    def tell(self) -> None:
        """Note that ranks were told to stop, so that the limit is due only once."""
        self._end_s = inf

    def worked(self, now_s: float) -> None:
        """Note when something ended after which a checkpoint may be written."""
        self._since_s = now_s

    def kept(self, now_s: float) -> None:
        """Note when a checkpoint was in its place."""
        if self._since_s is not None:
            self._checkpoint_s = max(self._checkpoint_s, now_s - self._since_s)
        self._since_s = now_s
