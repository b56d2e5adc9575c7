"""Says when training must stop so that a checkpoint is there when the time is over. Pure: no clock."""

from math import inf


class TimeLimit:
    """One run's limit, on the clock of whoever asks."""

    def __init__(self, end_s: float = inf) -> None:
        """Args:
        end_s: when the time is over; never unless it is given.
        """
        self._end_s = end_s
        self._checkpoint_s = 0.0
        self._since_s: float | None = None

    @property
    def due_s(self) -> float:
        """When to stop: earlier by what the longest checkpoint so far took to write."""
        return self._end_s - self._checkpoint_s

    def tell(self) -> None:
        """Note that it was told: it is due no more."""
        self._end_s = inf

    def worked(self, now_s: float) -> None:
        """Note that something ended after which a checkpoint may be written."""
        self._since_s = now_s

    def kept(self, now_s: float) -> None:
        """Note that a checkpoint is in its place."""
        if self._since_s is not None:
            self._checkpoint_s = max(self._checkpoint_s, now_s - self._since_s)
        self._since_s = now_s
