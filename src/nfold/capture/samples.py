"""Takes some items of the user's dataset as example batches, and says what is wrong with them if anything is."""

from collections.abc import Callable
from typing import Any

import torch

from nfold.capture.apart import Apart, why_joined_unlike
from nfold.capture.example import LONGEST, SECOND_LONGEST, Example
from nfold.capture.joining import Batch, Collate, check_form, join, read_item
from nfold.capture.random import LOCK, RandomState, seed_all
from nfold.capture.tree import map_tensors, shapes_text, tensors_of
from nfold.errors import ProgramError
from nfold.program import describe

_GOLDEN = 0.6180339887498949
_LOOKED_AT = 24
"""Items that are joined alone, to see whether batches differ in more than their samples."""


def sample_batches(dataset: Any, device: torch.device | None = None, *, collate: Collate | None = None) -> Example:
    """Return batches of a dataset's items, from all over it; they repeat when it has fewer than a batch needs.

    Items that draw random numbers (augmentation) draw the same ones each time, and leave the generators as they were:
    what is compared on a batch must not differ by the batch.

    Args:
        dataset: the user's.
        device: where to put them; left where they are if not given.
        collate: the program's; None: torch's.

    Raises:
        ProgramError: it is empty, is no map-style dataset, or its first item is no (input, target).
    """
    length = dataset_length(dataset)
    first = read_item(dataset, 0)
    if collate is None:
        check_form(first)

    def joined(indices: list[int]) -> Batch:
        batch = _draw_again(dataset, indices, collate)
        return batch if device is None else _moved(batch, device)

    def make(size: int, which: int) -> Batch:
        if which in unlike:
            return joined([unlike[which]] * size)
        return joined([_spread(max(0, which) * size + offset, length) for offset in range(size)])

    def apart(sizes: tuple[int, ...], which: int) -> Apart:
        size = sum(sizes)
        indices = [_spread(which * size + offset, length) for offset in range(size)]
        if unlike:  # the longest first, so that parts are padded to other lengths than the whole is
            indices[0], last = unlike[LONGEST], sizes[-1]
            indices[-last:] = [unlike[SECOND_LONGEST]] * last
            indices.sort(key=lambda index: -_elements(joined([index])))
        return Apart(
            lambda start, stop: [_read_alike(dataset, index) for index in indices[start:stop]],
            lambda items, start, stop: join(items, indices[start:stop], "train_data", collate),
            lambda: seed_all(0),
        )

    def make_parts(sizes: tuple[int, ...], which: int) -> tuple[Batch, list[Batch]]:
        whole, parts = apart(sizes, which).joined(sizes)
        return (whole, parts) if device is None else (_moved(whole, device), [_moved(part, device) for part in parts])

    def why_unlike(sizes: tuple[int, ...], which: int) -> str:
        found = apart(sizes, which)
        return why_joined_unlike(*found.joined(sizes), sizes, draws=found.draws)

    looked_at = list(dict.fromkeys(_spread(number, length) for number in range(_LOOKED_AT)))
    varying, unlike = _tell_varying(looked_at, joined) if collate is not None else ("", {})
    has_rows_alone = collate is None and not _holds_text(first)
    return Example(
        make=make,
        make_parts=None if has_rows_alone else make_parts,
        why_unlike_parts=None if has_rows_alone else why_unlike,
        is_joined_by_program=collate is not None,
        varying=varying,
    )


def _holds_text(item: Any) -> bool:
    """Whether an item holds text, such as the name of a file: of a batch that is a list, which has no rows to cut."""
    if isinstance(item, (tuple, list)):
        return any(map(_holds_text, item))
    return any(map(_holds_text, item.values())) if isinstance(item, dict) else isinstance(item, str | bytes)


def _moved(batch: Batch, device: torch.device) -> Batch:
    inputs, targets = (map_tensors(lambda tensor: tensor.to(device), each) for each in batch)
    return inputs, targets


def _elements(batch: Batch) -> int:
    return sum(tensor.numel() for tensor in tensors_of(batch))


def _tell_varying(indices: list[int], joined: Callable[[list[int]], Batch]) -> tuple[str, dict[int, int]]:
    """Say how batches of one item differ in shape, if they do: then lengths are padded, and differ between batches.

    Returns:
        That, and the items that LONGEST and SECOND_LONGEST name.
    """
    elements: dict[int, int] = {}
    shapes: dict[str, int] = {}
    for index in indices:
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
