"""Which samples a chunk holds, and how they get there while the previous step is computed."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from nfold.capture.joining import Batch, Collate, join, read_item
from nfold.capture.random import LOCK, CellRandom, RandomState
from nfold.core.placement import chunk_sizes
from nfold.errors import ProgramError
from nfold.program import describe

_JOINING = -(1 << 61)
"""Steps of what joining draws, below those of samples, which come before those of the model."""


def sample_order(num_samples: int, epoch: int, seed: int) -> list[int]:
    """Return the order in which an epoch visits the samples: each index once, the same on every rank."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    order: list[int] = torch.randperm(num_samples, generator=generator).tolist()
    return order


Order = Callable[[int], list[int]]
"""epoch -> the samples that it visits, one after another."""


class Sampler:
    """Maps (step, chunk) to sample indices. Steps count from 0 over all epochs."""

    def __init__(
        self, num_samples: int, batch_size: int, num_chunks: int, seed: int, order: Order | None = None
    ) -> None:
        """Args:
        num_samples: of an epoch.
        batch_size: of a step.
        num_chunks: of a batch.
        seed: of the program.
        order: the program's own; None: each sample once, shuffled.
        """
        self._num_samples, self._batch_size = num_samples, batch_size
        self._num_chunks = num_chunks
        self._order_of = order or (lambda epoch: sample_order(num_samples, epoch, seed))
        self._order: tuple[int, list[int]] = (-1, [])

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last one may be smaller."""
        return -(-self._num_samples // self._batch_size)

    def sizes(self, step: int) -> tuple[int, ...]:
        """Return the samples of each chunk of a step."""
        begin = step % self.steps_per_epoch * self._batch_size
        return chunk_sizes(min(self._batch_size, self._num_samples - begin), self._num_chunks)

    def indices(self, step: int, chunk: int) -> list[int]:
        """Return the samples of one chunk."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = (epoch, self._order_of(epoch))
        sizes = self.sizes(step)
        begin = position * self._batch_size + sum(sizes[:chunk])
        return self._order[1][begin : begin + sizes[chunk]]


class ChunkLoader:
    """Loads the chunks of one rank, a step ahead of their use."""

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler,
        chunks: tuple[int, ...],
        last_step: int,
        seed: int,
        collate: Collate | None = None,
    ) -> None:
        self._dataset, self._sampler, self._chunks, self._last_step = dataset, sampler, chunks, last_step
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nfold-load")
        self._futures: dict[tuple[int, int], Future[Batch]] = {}
        self._random, self._collate = CellRandom(seed), collate
        self._draws = False

    def begin(self, step: int) -> None:
        """Start loading this step, if it is not loaded yet, and the next one."""
        for ahead in (step, step + 1):
            if ahead >= self._last_step or not self._chunks or (ahead, self._chunks[0]) in self._futures:
                continue
            sizes = self._sampler.sizes(ahead)
            self.fetch(ahead, tuple(chunk for chunk in self._chunks if sizes[chunk]))

    def fetch(self, step: int, chunks: tuple[int, ...]) -> None:
        """Start loading chunks of a step."""
        for chunk in chunks:
            indices = self._sampler.indices(step, chunk)
            self._futures[step, chunk] = self._pool.submit(self._load, indices, step, chunk)

    def get(self, step: int, chunk: int) -> Batch:
        """Return a chunk, once it is there.

        Raises:
            ProgramError: the dataset raised for one of its samples.
        """
        return self._futures.pop((step, chunk)).result()

    def read_again(self, step: int, chunk: int) -> tuple[list[int], Batch]:
        """Return which samples a chunk holds, and the chunk as `get` returned it."""
        indices = self._sampler.indices(step, chunk)
        return indices, self._pool.submit(self._load, indices, step, chunk).result()

    def read_some(self, step: int, chunk: int, samples: Sequence[int]) -> Batch:
        """Read samples of a chunk again by their places in it, and join them by themselves."""
        indices = self._sampler.indices(step, chunk)
        return self._pool.submit(self._load, [indices[sample] for sample in samples], step, chunk).result()

    def _load(self, indices: list[int], step: int, chunk: int) -> Batch:
        """Read samples. From the first that draws on, each is seeded by epoch and sample, which changes no other."""
        samples = None if self._draws else read_undrawn(self._dataset, indices)
        if samples is None:
            self._draws = True
            epoch = step // self._sampler.steps_per_epoch
            samples = [read_seeded(self._random, self._dataset, epoch, index) for index in indices]
        if self._collate is None:
            return join(samples, indices, "train_data")
        return join_seeded(self._random, samples, indices, self._collate, step=step, chunk=chunk)

    def close(self) -> None:
        """Stop loading."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def read_seeded(random: CellRandom, dataset: Any, epoch: int, index: int) -> Any:
    """Read a sample that draws as every rank does in an epoch.

    Raises:
        ProgramError: it raised.
    """
    with LOCK:
        random.enter(-1 - epoch, index)
        random.seed_everything(0)
        return read_item(dataset, index)


def read_undrawn(dataset: Any, indices: list[int]) -> list[Any] | None:
    """Read samples that draw no random numbers; None if one does, and then the generators are as they were.

    What draws is known only once it has drawn, and that must not be between a seed of the model's and what the model
    draws from it. So reading holds LOCK, and lets those have it between two parts who wait for it.

    Raises:
        ProgramError: a sample raised.
    """
    parts, samples, is_done = _read_parts(dataset, indices, "train_data"), list[Any](), False
    while not is_done:
        with LOCK:
            before = RandomState()
            try:
                is_done = _read_on(parts, samples)
            except ProgramError:
                if not before.moved():
                    raise
            if before.moved():
                before.restore()
                return None
    return samples


def _read_on(parts: Iterator[list[Any]], samples: list[Any]) -> bool:
    """Add parts to what was read until somebody waits for LOCK; say whether all are read."""
    for part in parts:
        samples += part
        if LOCK.is_wanted:
            return False
    return True


def read_batch(dataset: Any, indices: list[int], what: str, collate: Collate | None = None) -> Batch:
    """Read samples and join them into one batch.

    Raises:
        ProgramError: a sample raised (its index is named), or the samples do not fit together.
    """
    return join(list(itertools.chain(*_read_parts(dataset, indices, what))), indices, what, collate)


def join_seeded(
    random: CellRandom, items: list[Any], indices: list[int], collate: Collate | None, *, step: int, chunk: int
) -> Batch:
    """Join the samples of a chunk as the program says; what that draws, as masks do, is the same on every rank.

    It is seeded at once, and not when it has drawn: to join again would change what was changed in place before.
    """
    with LOCK:
        random.enter(_JOINING - step, chunk)
        random.seed_everything(0)
        return join(items, indices, "train_data", collate)


def _read_parts(dataset: Any, indices: list[int], what: str) -> Iterator[list[Any]]:
    """Read samples one by one, or all at once, if the dataset offers that."""
    if hasattr(dataset, "__getitems__"):
        yield _fetch(dataset, indices, what)
        return
    for index in indices:
        yield [read_item(dataset, index, what)]


def _fetch(dataset: Any, indices: list[int], what: str) -> list[Any]:
    """Read samples together, as the dataset offers; if that raises, find out which one it is."""
    try:
        samples: list[Any] = dataset.__getitems__(indices)
    except Exception as error:
        for index in indices:
            read_item(dataset, index, what)
        raise ProgramError(f"items {indices[:3]}.. of {what}() raised {describe(error)}") from error
    return samples
