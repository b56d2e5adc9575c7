"""Takes some items of the user's dataset as example batches, and says what is wrong with them if anything is."""

from collections import Counter
from typing import Any

import torch
from torch.utils.data import default_collate

from nfold.capture.example import Example
from nfold.capture.random import LOCK, RandomState, seed_all
from nfold.capture.tree import map_tensors, shapes_text, tensors_of
from nfold.errors import ProgramError
from nfold.program import describe

_MOST_NAMED = 4
_GOLDEN = 0.6180339887498949


def sample_batches(dataset: Any, device: torch.device | None = None) -> Example:
    """Return batches of a dataset's items, from all over it; they repeat when it has fewer than a batch needs.

    Items that draw random numbers (augmentation) draw the same ones each time, and leave the generators as they were:
    what is compared on a batch must not differ by the batch.

    Args:
        dataset: the user's.
        device: where to put them; left where they are if not given.

    Raises:
        ProgramError: it is empty, is no map-style dataset, or its first item is no (input, target).
    """
    length = dataset_length(dataset)
    _check_form(load_item(dataset, 0))

    def make(size: int, which: int) -> tuple[Any, Any]:
        indices = [_spread(which * size + offset, length) for offset in range(size)]
        inputs, target = _join(dataset, indices, _draw_again(dataset, indices))
        if device is None:
            return inputs, target
        return map_tensors(lambda t: t.to(device), inputs), map_tensors(lambda t: t.to(device), target)

    return Example(make=make)


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


def load_item(dataset: Any, index: int) -> Any:
    """Return one sample.

    Raises:
        ProgramError: reading it raised; the message names its index.
    """
    try:
        return dataset[index]
    except Exception as error:
        raise ProgramError(
            f"item {index} of {type(dataset).__name__} cannot be read: {describe(error)}. "
            "Repair or leave out that item."
        ) from error


def collate(dataset: Any, indices: list[int]) -> tuple[Any, Any]:
    """Return a batch of the given samples.

    Raises:
        ProgramError: an item cannot be read, or the items do not fit together.
    """
    return _join(dataset, indices, [load_item(dataset, index) for index in indices])


def _draw_again(dataset: Any, indices: list[int]) -> list[Any]:
    with LOCK:
        before = RandomState()
        try:
            items = []
            for index in indices:
                seed_all(index)
                items.append(load_item(dataset, index))
            return items
        finally:
            before.restore()


def _join(dataset: Any, indices: list[int], items: list[Any]) -> tuple[Any, Any]:
    try:
        inputs, target = default_collate(items)
    except Exception as error:
        raise ProgramError(
            f"items of {type(dataset).__name__} cannot be joined into a batch: {tell_unlike(indices, items, error)}. "
            f"{_SPARSE if _holds_sparse(items) else 'Give every item the same shape, as an (input, target) pair.'}"
        ) from error
    return inputs, target


_SPARSE = "Give dense rows (.to_dense()), and make them sparse in forward."


def _holds_sparse(items: list[Any]) -> bool:
    return any(tensor.layout is not torch.strided for tensor in tensors_of(items))


def tell_unlike(indices: list[int], items: list[Any], error: Exception) -> str:
    """Return which items cannot be joined with the others; what was raised where all look alike.

    Args:
        indices: of the items in their data set.
        items: that could not be joined.
        error: that was raised.
    """
    shapes = [shapes_text(item) for item in items]
    usual = Counter(shapes).most_common(1)[0][0]
    unlike = [f"item {index} is {shape}" for index, shape in zip(indices, shapes, strict=True) if shape != usual]
    if not unlike:
        return f"{describe(error)}. They are {usual}"
    more = f" and {len(unlike) - _MOST_NAMED} more are unlike" if len(unlike) > _MOST_NAMED else ""
    return f"{', '.join(unlike[:_MOST_NAMED])}{more}, the others are {usual}"


def _check_form(item: Any) -> None:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        what = f"{len(item)} parts, {shapes_text(item)}" if isinstance(item, (tuple, list)) else shapes_text(item)
        raise ProgramError(
            f"each item of train_data() must be a pair (input, target), item 0 is {what}. Put several inputs into one "
            "tuple or dict, ((a, b), target), and take them apart there: def forward(self, inputs): a, b = inputs."
        )
