"""Which samples a chunk holds where each rank trains on those that live on its node: chunk c has those of rank c."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nfold.core.residency import PlacedRun
from nfold.planning.residency.resident_order import (
    Numbers,
    check_runs,
    epoch_steps,
    placed_order,
    run_at,
    step_sizes,
)
from nfold.runtime.data.sample_reader import ReadPart

_KEPT_EPOCHS = 2
"""While the last steps of an epoch are trained, those of the next are read."""


class _Epoch(NamedTuple):
    numbers: Numbers
    """Of the samples, step after step, and in a step rank after rank."""
    sizes: Numbers
    """Of shape (steps, ranks)."""
    begins: Numbers
    """Where each chunk begins in `numbers`, of that shape."""


class ResidentSamples:
    """Maps (step, chunk) to the numbers of samples in the whole data. Steps count from 0 over all epochs."""

    is_shared = False

    def __init__(self, runs: Sequence[PlacedRun], batch_size: int, seed: int) -> None:
        """Args:
        runs: all placements that the run has had, ascending.
        batch_size: of a step.
        seed: of the program.

        Raises:
            InternalError: no order follows from these placements.
        """
        check_runs(runs, batch_size)
        self._runs, self._batch_size, self._seed = tuple(runs), batch_size, seed
        self.epoch_steps = epoch_steps(runs, batch_size)
        self._most_ranks = max(len(run.members) for run in runs)
        self._epochs: dict[int, _Epoch] = {}

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of the first epoch: only programs that do not count epochs have others of more steps."""
        return self.epoch_steps.steps(0)

    def sizes(self, step: int) -> tuple[int, ...]:
        """Return the number of samples of each chunk of a step: one chunk for each rank of that step's placement."""
        epoch, position = self._place(step)
        num_ranks = len(run_at(self._runs, step).members)
        return tuple(self._epoch(epoch).sizes[position, :num_ranks].tolist())

    def indices(self, step: int, chunk: int) -> list[int]:
        """Return the numbers of one chunk's samples in the whole data."""
        return self.part(step, chunk).indices

    def part(self, step: int, chunk: int) -> ReadPart:
        """Return the description by which a reader reads a chunk."""
        number, position = self._place(step)
        epoch = self._epoch(number)
        begin = int(epoch.begins[position, chunk])
        own = epoch.numbers[begin : begin + int(epoch.sizes[position, chunk])]
        return ReadPart(own.tolist(), number, step, chunk)

    def _place(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step, and which of its steps it is."""
        epoch = self.epoch_steps.epoch(step)
        return epoch, step - self.epoch_steps.first_step(epoch)

    def _epoch(self, epoch: int) -> _Epoch:
        if epoch not in self._epochs:
            for old in sorted(self._epochs)[: 1 - _KEPT_EPOCHS]:
                del self._epochs[old]
            self._epochs[epoch] = self._by_chunks(epoch)
        return self._epochs[epoch]

    def _by_chunks(self, epoch: int) -> _Epoch:
        order = placed_order(self._runs, self._seed, epoch, self._batch_size)
        steps = np.arange(len(order.rank)) // self._batch_size
        by_chunk = np.lexsort((order.rank, steps))  # stable: samples of a chunk stay in their order
        sizes = step_sizes(order, self._batch_size, self._most_ranks)
        begins = (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape)
        return _Epoch(order.number[by_chunk], sizes, begins)
