"""Which steps belong to which epoch, where an epoch may have more samples than the one before it.

epoch    0         1         2               3
step     0 1 2 3   4 5 6 7   8 9 10 11 12    13 ..        a host has brought samples that count from epoch 2 on
"""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class EpochSteps:
    """The steps of all epochs. Epochs and steps count from 0, and epochs never end."""

    stretches: tuple[tuple[int, int], ...]
    """Ascending: (first epoch, steps of each epoch from that one on). The first one begins with epoch 0."""

    @classmethod
    def even(cls, steps: int) -> "EpochSteps":
        """Return epochs that all have as many steps."""
        return cls(((0, steps),))

    @property
    def latest(self) -> int:
        """The steps of the epochs that come last."""
        return self.stretches[-1][1]

    def steps(self, epoch: int) -> int:
        """Return how many steps an epoch has."""
        return next(steps for first, steps in reversed(self.stretches) if first <= epoch)

    def first_step(self, epoch: int) -> int:
        """Return the step that an epoch begins with: as many are done before it."""
        done = 0
        for (first, steps), (later, _) in pairwise(self.stretches):
            if epoch <= later:
                return done + (epoch - first) * steps
            done += (later - first) * steps
        first, steps = self.stretches[-1]
        return done + (epoch - first) * steps

    def epoch(self, step: int) -> int:
        """Return the epoch of a step."""
        for (_, steps), (later, _) in pairwise(self.stretches):
            end = self.first_step(later)
            if step < end:
                return later - 1 - (end - 1 - step) // steps
        first, steps = self.stretches[-1]
        return first + (step - self.first_step(first)) // steps

    def position(self, step: int) -> int:
        """Return how many steps of its epoch come before a step."""
        return step - self.first_step(self.epoch(step))

    def is_end(self, steps: int) -> bool:
        """Whether no epoch is under way once so many steps are done."""
        return self.position(steps) == 0

    def next_end(self, steps: int) -> int:
        """Return after how many steps the next epoch ends, once so many are done."""
        return self.first_step(self.epoch(steps) + 1)

    def begun(self, steps: int) -> int:
        """Return how many epochs so many steps take, the last of which may not be whole."""
        return self.epoch(steps - 1) + 1 if steps else 0
