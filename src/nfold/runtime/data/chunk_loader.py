"""Which samples a chunk holds, and has them read ahead while the steps before are computed.

They are read and joined by `sample_reader.py`, or by `loaders.py` in processes of their own.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import torch

from nfold.capture.batches.joining import Batch
from nfold.capture.visited_samples import Order
from nfold.core.chunks import chunk_sizes
from nfold.planning.costs.read_ahead import steps_ahead
from nfold.runtime.data.loaders import LoadersReader
from nfold.runtime.data.sample_reader import ReadPart, SampleReader

_MOST_ELSEWHERE = 4
LOADS = "nfold-load"
"""Begins the names of threads that load."""


def sample_order(num_samples: int, epoch: int, seed: int) -> list[int]:
    """Return the order in which an epoch visits the samples: each index once, the same on every rank."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    order: list[int] = torch.randperm(num_samples, generator=generator).tolist()
    return order


class StepSamples(Protocol):
    """Says which samples each chunk of a step holds. Steps count from 0 over all epochs."""

    is_shared: bool
    """Whether a rank can read the samples of all chunks, and not its own alone."""

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of an epoch; the last one may have fewer samples."""
        ...

    def sizes(self, step: int, /) -> tuple[int, ...]:
        """Return the number of samples of each chunk of a step."""
        ...

    def indices(self, step: int, chunk: int, /) -> list[int]:
        """Return the indices of one chunk's samples."""
        ...

    def part(self, step: int, chunk: int, /) -> ReadPart:
        """Return the description by which a reader reads a chunk."""
        ...


class ChunkSamples:
    """Maps (step, chunk) to sample indices. Steps count from 0 over all epochs."""

    is_shared = True

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        num_chunks: int,
        seed: int,
        order: Order | None = None,
        *,
        least_chunk: int = 2,
    ) -> None:
        """Args:
        num_samples: of an epoch.
        batch_size: of a step.
        num_chunks: of a batch.
        seed: of the program.
        order: the program's own; None: each sample once, shuffled.
        least_chunk: of the program, see `ModelGraph`.
        """
        self._num_samples, self._batch_size = num_samples, batch_size
        self._num_chunks = num_chunks
        # Single samples only where full batches need them: an epoch's last one does better with fewer chunks.
        self._least = least_chunk if batch_size < 2 * num_chunks else 2
        self._order_of = order or (lambda epoch: sample_order(num_samples, epoch, seed))
        self._may_repeat = order is not None
        self._epoch = -1
        self._order: list[int] = []
        self._again: tuple[int, ...] = ()

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of an epoch; the last one may have fewer samples."""
        return -(-self._num_samples // self._batch_size)

    def sizes(self, step: int) -> tuple[int, ...]:
        """Return the number of samples of each chunk of a step."""
        begin = step % self.steps_per_epoch * self._batch_size
        return chunk_sizes(min(self._batch_size, self._num_samples - begin), self._num_chunks, self._least)

    def indices(self, step: int, chunk: int) -> list[int]:
        """Return the indices of one chunk's samples in the data set."""
        return self.part(step, chunk).indices

    def part(self, step: int, chunk: int) -> ReadPart:
        """Return the description by which a reader reads a chunk."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch != epoch:
            self._order = self._order_of(epoch)
            self._again, self._epoch = visited_before(self._order) if self._may_repeat else (), epoch
        sizes = self.sizes(step)
        begin = position * self._batch_size + sum(sizes[:chunk])
        own = slice(begin, begin + sizes[chunk])
        return ReadPart(self._order[own], epoch, step, chunk, self._again[own])


def visited_before(order: list[int]) -> tuple[int, ...]:
    """Return how often each place's sample occurs before it; empty if none occurs twice. O(order)."""
    if len(set(order)) == len(order):
        return ()
    counts: Counter[int] = Counter()
    found = []
    for index in order:
        found.append(counts[index])
        counts[index] += 1
    return tuple(found)


class ChunkLoader:
    """Loads the chunks of one rank ahead of their use."""

    def __init__(
        self, reader: SampleReader | LoadersReader, sampler: StepSamples, chunks: tuple[int, ...], last_step: int
    ) -> None:
        self._reader, self._sampler, self._chunks, self._last_step = reader, sampler, chunks, last_step
        self._ahead = steps_ahead(reader.num_loaders, max(1, len(chunks)))
        self._pool = ThreadPoolExecutor(max(1, reader.num_loaders), thread_name_prefix=LOADS)
        self._futures: dict[tuple[int, int], Future[Batch]] = {}
        self._begun = 0
        """Steps whose loading has begun, or is not wanted any more."""
        self._elsewhere: list[int] = []
        """Samples of several chunks of the first step that was loaded here."""

    def begin(self, step: int) -> None:
        """Start loading this step, if it is not loaded yet, and those after it."""
        for ahead in range(max(step, self._begun), min(step + 1 + self._ahead, self._last_step)):
            sizes = self._sampler.sizes(ahead)
            self.fetch(ahead, tuple(chunk for chunk in self._chunks if sizes[chunk]))
            self._begun = ahead + 1

    def fetch(self, step: int, chunks: tuple[int, ...]) -> None:
        """Start loading chunks of a step."""
        self._elsewhere = self._elsewhere or self._some_of_all(step)
        for chunk in chunks:
            self._futures[step, chunk] = self._pool.submit(self._reader.read, self._sampler.part(step, chunk))

    def get(self, step: int, chunk: int) -> Batch:
        """Wait for a chunk and return it.

        Raises:
            ProgramError: the dataset raised for one of its samples.
        """
        return self._futures.pop((step, chunk)).result()

    def read_again(self, step: int, chunk: int) -> tuple[list[int], Batch]:
        """Return which samples a chunk holds, and the chunk as `get` returned it."""
        part = self._sampler.part(step, chunk)
        return part.indices, self._pool.submit(self._reader.read, part).result()

    @property
    def num_elsewhere(self) -> int:
        """The number of samples of other chunks that `read_apart` reads too; their places follow those of a chunk."""
        return len(self._elsewhere)

    def read_apart(
        self, step: int, chunk: int, samples: Sequence[int], sizes: Sequence[int]
    ) -> tuple[Batch, list[Batch]]:
        """Read samples of a chunk again.

        Args:
            step: of the chunk.
            chunk: its number in the step.
            samples: places in the chunk, and behind them in other chunks; see `num_elsewhere`.
            sizes: samples of each part.

        Returns:
            The samples joined together, and joined in parts of these sizes.
        """
        part = self._sampler.part(step, chunk)
        indices = [*part.indices, *self._elsewhere]
        counts = (*part.again, *[0] * len(self._elsewhere))
        again = tuple(counts[sample] for sample in samples) if part.again else ()
        some = replace(part, indices=[indices[sample] for sample in samples], again=again)
        return self._pool.submit(self._reader.read_apart, some, sizes).result()

    def _some_of_all(self, step: int) -> list[int]:
        """Return the first sample of each chunk, or of some, as far as they can be read here; none if none can."""
        readable = range(len(self._sampler.sizes(step))) if self._sampler.is_shared else self._chunks
        chunks = [chunk for chunk in readable if self._sampler.sizes(step)[chunk]]
        some = chunks[:: max(1, -(-len(chunks) // _MOST_ELSEWHERE))]
        return [self._sampler.indices(step, chunk)[0] for chunk in some]

    def close(self) -> None:
        """Stop loading."""
        self._pool.shutdown(wait=True, cancel_futures=True)
