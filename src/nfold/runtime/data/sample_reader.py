"""Reads samples and joins them; what that draws follows from which samples they are, not from who reads them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nfold.capture.batches.joining import Batch, Collate, join, read_item
from nfold.capture.computing.random import LOCK, CellRandom, RandomState
from nfold.capture.computing.whole_and_parts import Apart
from nfold.capture.side_effects.moving import Moving
from nfold.errors import ProgramError
from nfold.program import describe
from nfold.runtime.data.steady_items import Kept, check_kept, check_moved

Which = Literal["train_data", "test_data"]
_JOINING = -(1 << 61)
"""Steps of what joining draws, below those of samples, which come before those of the model."""
_TRIES = 4
"""Parts whose items are read again since what they are parts of was written to, as a cache is."""
TESTING = 1 << 60
"""Epoch, and step, of test data: after all that are trained."""


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Samples that are read and joined by themselves: a chunk of a step, or a batch of test data."""

    indices: list[int]
    epoch: int
    step: int
    chunk: int
    again: tuple[int, ...] = ()
    """How often the epoch has visited each of them before; empty: never, as where each is visited once."""


def evaluation_parts(num_samples: int, batch_size: int) -> Iterator[ReadPart]:
    """Yield the batches of test data."""
    for number, begin in enumerate(range(0, num_samples, batch_size)):
        indices = list(range(begin, min(begin + batch_size, num_samples)))
        yield ReadPart(indices, epoch=TESTING, step=TESTING, chunk=number)


class SampleReader:
    """Reads parts of one dataset in one thread of this process."""

    num_loaders = 0
    """Of the processes that read for it."""

    def __init__(self, dataset: Any, seed: int, collate: Collate | None = None, what: Which = "train_data") -> None:
        """Args:
        dataset: of the user.
        seed: of the program.
        collate: the program's; None: torch's, part by part.
        what: the function that gave the dataset, for messages.
        """
        self._dataset, self._collate, self._what = dataset, collate, what
        self._random = CellRandom(seed)
        self._draws = False
        self._moving: dict[str, Moving] | None = None if what == "train_data" else {}
        """What may draw by itself, by who holds it; None: nobody has looked yet."""
        self._kept = Kept()
        self._tries = _TRIES

    def read(self, part: ReadPart) -> Batch:
        """Read a part, and look at what may draw by itself: a few items that were tried need not have shown it.

        Raises:
            ProgramError: a sample raised, they do not fit together, or they draw by themselves.
        """
        if self._moving is None:
            batch = self._read(part)
            owners = {f"{self._what}()": self._dataset, "Program(collate=...)": self._collate}
            found = {name: Moving([owner], counters=False) for name, owner in owners.items()}
            self._moving = {name: each for name, each in found.items() if each}
            return batch
        before = {name: each.state() for name, each in self._moving.items()}
        batch = self._read(part)
        if any(each.moved(before[name]) for name, each in self._moving.items()):
            self._check_moved(self._moving, part)
            self._moving = {}  # items seed what they draw from
        return batch

    def read_apart(self, part: ReadPart, sizes: Sequence[int]) -> tuple[Batch, list[Batch]]:
        """Read samples, joined as a part and as smaller ones, with what joining draws held still.

        Args:
            part: to read.
            sizes: samples of each smaller part.

        Raises:
            ProgramError: a sample raised, or they do not fit together.
        """
        await_samples(self._dataset, part.indices)
        again = part.again or (0,) * len(part.indices)

        def read(start: int, stop: int) -> list[Any]:
            return [
                read_seeded(self._random, self._dataset, part.epoch, part.indices[place], again[place], self._what)
                for place in range(start, stop)
            ]

        def joined(items: list[Any], start: int, stop: int) -> Batch:
            return join(items, part.indices[start:stop], self._what, self._collate)

        def seed() -> None:
            self._random.enter(_JOINING - part.step, part.chunk)
            self._random.seed_everything(0)

        return Apart(read, joined, seed).joined(sizes)

    def _check_moved(self, moving: Mapping[str, Moving], part: ReadPart) -> None:
        """Read item by item, until one is found that moves something each time it is read."""
        for index in part.indices:

            def read(index: int = index) -> None:
                items = [read_seeded(self._random, self._dataset, part.epoch, index)]
                if self._collate is not None:
                    join_seeded(self._random, items, [index], self._collate, step=part.step, chunk=part.chunk)

            with LOCK:
                check_moved(moving, read, index, self._what)

    def _read(self, part: ReadPart) -> Batch:
        """Read samples. From the first that draws on, each is seeded by epoch and sample, which changes no other."""
        await_samples(self._dataset, part.indices)
        samples = None if self._draws else read_undrawn(self._dataset, part.indices, self._what)
        if samples is None:
            self._draws = True
            again = part.again or (0,) * len(part.indices)
            samples = [
                read_seeded(self._random, self._dataset, part.epoch, index, count, self._what)
                for index, count in zip(part.indices, again, strict=True)
            ]
        if self._tries and self._kept.was_written(_kept_by(self._dataset, part.indices, samples)):
            self._tries -= 1
            for index in part.indices:
                check_item(self._random, self._dataset, self._collate, index, part, self._what)
        if self._collate is None:
            return join(samples, part.indices, self._what)
        place = {"step": part.step, "chunk": part.chunk}
        return join_seeded(self._random, samples, part.indices, self._collate, self._what, **place)

    def read_all(self, parts: Iterable[ReadPart]) -> Iterator[Batch]:
        """Read parts one after another."""
        return map(self.read, parts)


def await_samples(dataset: Any, indices: list[int]) -> None:
    """Wait for samples that are on their way to this node, if the data set knows of any.

    Not under LOCK, as items are read: this rank computes until they are here, and other ranks may be its threads.
    """
    if (wait := getattr(dataset, "wait_for_samples", None)) is not None:
        wait(indices)


def _kept_by(dataset: Any, indices: list[int], items: list[Any]) -> list[Any]:
    """Return the items that a data set may keep: all but those of which it says that it has made them anew."""
    if (makes := getattr(dataset, "makes_anew", None)) is None:
        return items
    return [item for index, item in zip(indices, items, strict=True) if not makes(index)]


def read_seeded(
    random: CellRandom, dataset: Any, epoch: int, index: int, again: int = 0, what: Which = "train_data"
) -> Any:
    """Read a sample that draws as every rank does in an epoch.

    Args:
        random: of the run.
        dataset: to read.
        epoch: whose order visits it.
        index: of the sample.
        again: how often that epoch has visited it before.
        what: the function that gave the dataset.

    Raises:
        ProgramError: it raised.
    """
    with LOCK:
        random.enter(-1 - epoch, index)
        random.seed_everything(again)
        return read_item(dataset, index, what)


def check_item(
    random: CellRandom, dataset: Any, collate: Collate | None, index: int, part: ReadPart, what: Which
) -> None:
    """Refuse an item if reading or joining it changes what the data set keeps; see `check_kept`."""

    def items() -> list[Any]:
        return [read_seeded(random, dataset, part.epoch, index, 0, what)]

    def joined(given: list[Any]) -> None:
        if collate is not None:
            join_seeded(random, given, [index], collate, what, step=part.step, chunk=part.chunk)

    check_kept(items, joined, index, what)


def read_undrawn(dataset: Any, indices: list[int], what: Which = "train_data") -> list[Any] | None:
    """Read samples that draw no random numbers; None if one does, and then the generators are as they were.

    What draws is known only once it has drawn, and that must not be between a seed of the model's and what the model
    draws from it. So reading holds LOCK, and lets those have it between two parts who wait for it.

    Raises:
        ProgramError: a sample raised.
    """
    parts, samples, is_done = _read_parts(dataset, indices, what), list[Any](), False
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


def join_seeded(
    random: CellRandom,
    items: list[Any],
    indices: list[int],
    collate: Collate | None,
    what: Which = "train_data",
    *,
    step: int,
    chunk: int,
) -> Batch:
    """Join the samples of a chunk as the program says; what that draws, as masks do, is the same on every rank.

    It is seeded at once, and not when it has drawn: to join again would change what was changed in place before.
    """
    with LOCK:
        random.enter(_JOINING - step, chunk)
        random.seed_everything(0)
        return join(items, indices, what, collate)


def _read_on(parts: Iterator[list[Any]], samples: list[Any]) -> bool:
    """Add parts to what was read until somebody waits for LOCK; say whether all are read."""
    for part in parts:
        samples += part
        if LOCK.is_wanted:
            return False
    return True


def _read_parts(dataset: Any, indices: list[int], what: Which) -> Iterator[list[Any]]:
    """Read samples one by one, or all at once, if the dataset offers that."""
    if hasattr(dataset, "__getitems__"):
        yield _fetch(dataset, indices, what)
        return
    for index in indices:
        yield [read_item(dataset, index, what)]


def _fetch(dataset: Any, indices: list[int], what: Which) -> list[Any]:
    """Read samples together, as the dataset offers; if that raises, find out which one it is."""
    try:
        samples: list[Any] = dataset.__getitems__(indices)
    except Exception as error:
        for index in indices:
            read_item(dataset, index, what)
        raise ProgramError(f"items {indices[:3]}.. of {what}() raised {describe(error)}") from error
    return samples
