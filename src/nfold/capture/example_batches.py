"""Takes some items of the user's dataset as example batches, and says what is wrong with them if anything is."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from nfold.capture.batches.example import LONGEST, SECOND_LONGEST, Example
from nfold.capture.batches.joining import Batch, Collate, check_form, join, moved, read_item
from nfold.capture.batches.tree import shapes_text, tensors_of
from nfold.capture.computing.random import LOCK, RandomState, seed_all
from nfold.capture.computing.whole_and_parts import Apart, why_joined_unlike
from nfold.capture.visited_samples import Batches, batches_of
from nfold.errors import ProgramError
from nfold.program import Program, describe

T = TypeVar("T")

_GOLDEN = 0.6180339887498949
_LOOKED_AT = 24
"""Items that are joined alone, to see whether batches differ in more than their samples."""


def program_batches(program: Program, dataset: Any, device: torch.device | None = None) -> Example:
    """Return example batches of a program. See `sample_batches`."""
    own = batches_of(program, dataset)
    return sample_batches(dataset, device, collate=program.collate, batches=own, whole=program.batch_size)


def sample_batches(
    dataset: Any,
    device: torch.device | None = None,
    *,
    collate: Collate | None = None,
    batches: Batches | None = None,
    whole: int = 0,
) -> Example:
    """Return batches of a dataset's items, from all over it; they repeat when it has fewer than a batch needs.

    Items that draw random numbers (augmentation) draw the same ones each time, and leave the generators as they were:
    what is compared on a batch must not differ by the batch.

    Args:
        dataset: the user's.
        device: where to put them; left where they are if not given.
        collate: the program's; None: torch's.
        batches: those of the program's sampler. Where items from all over do not fit together, as in buckets of one
            length, a batch is of items of one of these. None: it has no sampler.
        whole: samples of a batch that is trained on: one of so many is as the sampler makes it.

    Raises:
        ProgramError: it is empty, is no map-style dataset, or its first item is no (input, target).
    """
    length = dataset_length(dataset)
    first = read_item(dataset, 0)
    if collate is None:
        check_form(first)
    choice = _Choice(length, batches, whole)

    def joined(indices: list[int]) -> Batch:
        batch = _draw_again(dataset, indices, collate)
        return batch if device is None else moved(batch, device)

    def make(size: int, which: int) -> Batch:
        if which in unlike:
            return joined([unlike[which]] * size)
        return choice.first_fitting(size, max(0, which), joined)

    def with_longest(indices: list[int], last: int) -> list[int]:
        """Put the longest first, so that parts are padded to other lengths than the whole is."""
        indices = [unlike[LONGEST], *indices[1:-last], *[unlike[SECOND_LONGEST]] * last]
        return sorted(indices, key=lambda index: -_elements(joined([index])))

    def apart(indices: list[int]) -> Apart:
        return Apart(
            lambda start, stop: [_read_alike(dataset, index) for index in indices[start:stop]],
            lambda items, start, stop: join(items, indices[start:stop], "train_data", collate),
            lambda: seed_all(0),
        )

    def joined_apart(sizes: tuple[int, ...], which: int) -> tuple[Batch, list[Batch], bool]:
        def tried(indices: list[int]) -> tuple[Batch, list[Batch], bool]:
            found = apart(indices)
            return (*found.joined(sizes), found.draws)

        size, last = sum(sizes), sizes[-1]
        change = (lambda indices: with_longest(indices, last)) if unlike else None
        return choice.first_fitting(size, which, tried, change)

    def make_parts(sizes: tuple[int, ...], which: int) -> tuple[Batch, list[Batch]]:
        whole, parts, _ = joined_apart(sizes, which)
        return (whole, parts) if device is None else (moved(whole, device), [moved(part, device) for part in parts])

    def why_unlike(sizes: tuple[int, ...], which: int) -> str:
        whole, parts, draws = joined_apart(sizes, which)
        return why_joined_unlike(whole, parts, sizes, draws=draws)

    may_vary = collate is not None or batches is not None
    look = functools.partial(_tell_varying, joined=joined)
    varying, unlike = choice.first_fitting(_LOOKED_AT, 0, look) if may_vary else ("", {})
    has_rows_alone = collate is None and not _holds_text(first)
    return Example(
        make=make,
        make_parts=None if has_rows_alone else make_parts,
        why_unlike_parts=None if has_rows_alone else why_unlike,
        is_joined_by_program=collate is not None,
        varying=varying,
    )


class _Choice:
    """Chooses items: from all over the data, or where those do not fit together, of one batch of the sampler.

    A whole batch is one of the sampler's: an episode of a few classes, say, which a loss may count on.
    """

    def __init__(self, length: int, batches: Batches | None, whole: int) -> None:
        self._length, self._batches, self._whole = length, batches, whole

    def first_fitting(
        self,
        size: int,
        which: int,
        join: Callable[[list[int]], T],
        change: Callable[[list[int]], list[int]] | None = None,
    ) -> T:
        """Return what is made of items.

        Args:
            size: how many.
            which: others for each.
            join: makes it.
            change: of items from all over, before.

        Raises:
            ProgramError: they do not fit together, even if the sampler puts them into one batch.
        """
        if self._batches is not None and size == self._whole and change is None:
            own = self._batches()
            if len(own[0]) == size:
                return join(own[_spread(which, len(own))])
        indices = [_spread(which * size + offset, self._length) for offset in range(size)]
        try:
            return join(change(indices) if change else indices)
        except ProgramError:
            if self._batches is None:
                raise
        found = self._batches()
        batch = found[_spread(which, len(found))]
        try:
            return join([batch[_spread(which * size + offset, len(batch))] for offset in range(size)])
        except ProgramError as error:
            raise ProgramError(f"{error} Program(sampler=...) puts these into one batch of {len(batch)}.") from error


def _holds_text(item: Any) -> bool:
    """Whether an item holds text, such as the name of a file: of a batch that is a list, which has no rows to cut."""
    if isinstance(item, (tuple, list)):
        return any(map(_holds_text, item))
    return any(map(_holds_text, item.values())) if isinstance(item, dict) else isinstance(item, str | bytes)


def _elements(batch: Batch) -> int:
    return sum(tensor.numel() for tensor in tensors_of(batch))


def _tell_varying(indices: list[int], joined: Callable[[list[int]], Batch]) -> tuple[str, dict[int, int]]:
    """Say how batches of one item differ in shape, if they do: then lengths are padded, and differ between batches.

    Returns:
        That, and the items that LONGEST and SECOND_LONGEST name.
    """
    elements: dict[int, int] = {}
    shapes: dict[str, int] = {}
    for index in dict.fromkeys(indices):
        batch = joined([index])
        elements[index] = sum(tensor.numel() for tensor in tensors_of(batch))
        shapes.setdefault(shapes_text(batch), index)
    if len(shapes) < 2:
        return "", {}
    (one, first), (other, second), *_ = shapes.items()
    longest, next_longest, *_ = sorted(shapes.values(), key=lambda index: -elements[index])
    told = f"item {first} alone becomes {one}, item {second} {other}"
    return told, {LONGEST: longest, SECOND_LONGEST: next_longest}


def _spread(number: int, length: int) -> int:
    """Return the item at a position of a walk over the data: sorted data would show one class at its beginning.

    Steps of the golden ratio come to all parts of a range early, and to the first item first.
    """
    return int(number * _GOLDEN % 1.0 * length)


def dataset_length(dataset: Any) -> int:
    """Return how many samples a dataset has.

    Raises:
        ProgramError: none, or it cannot tell.
    """
    try:
        length = len(dataset)
    except Exception as error:
        raise ProgramError(
            f"train_data() must return a map-style dataset with len() and items, it returned "
            f"{type(dataset).__name__}: {describe(error)}. An iterable can be wrapped: list(iterable)."
        ) from error
    if length < 1:
        raise ProgramError(
            f"train_data() returned an empty dataset: {type(dataset).__name__} with 0 samples. "
            "Check its path and filters."
        )
    return int(length)


def _draw_again(dataset: Any, indices: list[int], collate: Collate | None) -> Batch:
    with LOCK:
        before = RandomState()
        try:
            items = [_read_alike(dataset, index) for index in indices]
            seed_all(indices[0])
            return join(items, indices, "train_data", collate)
        finally:
            before.restore()


def _read_alike(dataset: Any, index: int) -> Any:
    """Read an item that draws the same each time."""
    seed_all(index)
    return read_item(dataset, index)
