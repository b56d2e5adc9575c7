"""Reads items of the user's data and joins them into batches: the one place where either happens.

While training, `runtime/data/sample_reader.py` calls it, under lock and seeds; `runtime/step/cells.py` takes the batch.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import default_collate

from nfold.capture.batches.tree import map_tensors, shapes_text, tensors_of
from nfold.errors import ProgramError
from nfold.program import describe

Batch = tuple[Any, Any]
"""Inputs and targets."""
Collate = Callable[[list[Any]], Any]
"""Joins items into inputs and targets."""
_MOST_NAMED = 4


def read_item(dataset: Any, index: int, what: str = "train_data") -> Any:
    """Return one item.

    Raises:
        ProgramError: reading it raised; the message names its index and the user's line.
    """
    try:
        return dataset[index]
    except Exception as error:
        raise ProgramError(
            f"item {index} of {what}() raised {describe(error)}. Repair or leave out that item."
        ) from error


def join(items: list[Any], indices: list[int], what: str, collate: Collate | None = None) -> Batch:
    """Join items into one batch.

    Args:
        items: to join.
        indices: of the items in their data set, for messages.
        what: the function that gave the data set.
        collate: the program's; None: torch's, part by part.

    Raises:
        ProgramError: they do not fit together, or what they become is no pair.
    """
    if collate is not None:
        return _joined_by(collate, items, indices, what)
    try:
        joined = default_collate(items)
    except Exception as error:
        unlike = _tell_unlike(indices, items)
        advice = _SPARSE if _holds_sparse(items) else _ALIKE if unlike else _KNOWN
        why = "they hold sparse tensors" if _holds_sparse(items) else describe(error).rstrip(".")
        found = unlike or f"{why}. They are {shapes_text(items[0])}"
        raise ProgramError(f"items of {what}() do not fit into one batch: {found}. {advice}") from error
    if not isinstance(joined, (list, tuple)) or len(joined) != 2:
        parts = f" of {len(items[0])}" if hasattr(items[0], "__len__") else ""
        raise ProgramError(
            f"an item of {what}() must be a pair (input, target), got {type(items[0]).__name__}{parts}. Put several "
            "inputs into one tuple or dict: ((a, b), target)."
        )
    return joined[0], joined[1]


def _joined_by(collate: Collate, items: list[Any], indices: list[int], what: str) -> Batch:
    named = f"items {', '.join(map(str, indices[:_MOST_NAMED]))}{' ..' if len(indices) > _MOST_NAMED else ''}"
    try:
        joined = collate(items)
    except Exception as error:
        unlike = _tell_unlike(indices, items)
        found = f": {unlike}" if unlike else f", the first of which is {shapes_text(items[0])}"
        advice = f" It may pad them, or {_BUCKETS}." if unlike else ""
        raise ProgramError(
            f"Program(collate=...) raised {describe(error)} for {named} of {what}(){found}. It is given a list of "
            f"items, and must return (inputs, targets).{advice}"
        ) from error
    if not isinstance(joined, (list, tuple)) or len(joined) != 2:
        raise ProgramError(
            f"Program(collate=...) must return a pair (inputs, targets), for {named} of {what}() it returned "
            f"{shapes_text(joined)}. Put several inputs into one tuple or dict: return {{'a': a, 'b': b}}, targets."
        )
    return _plain(joined[0]), _plain(joined[1])


def _plain(value: Any) -> Any:
    """Return a mapping of a library's own, as tokenizers give, as the dict that everything here knows."""
    return dict(value) if isinstance(value, Mapping) and not isinstance(value, dict) else value


def moved(batch: Batch, device: torch.device) -> Batch:
    """Return a batch with all of its tensors on a device."""
    inputs, targets = (map_tensors(lambda tensor: tensor.to(device), each) for each in batch)
    return inputs, targets


def check_form(item: Any) -> None:
    """Refuse an item from which no batch can be made.

    Raises:
        ProgramError: it is no pair of input and target.
    """
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        what = f"{len(item)} parts, {shapes_text(item)}" if isinstance(item, (tuple, list)) else shapes_text(item)
        raise ProgramError(
            f"each item of train_data() must be a pair (input, target), item 0 is {what}. Put several inputs into one "
            "tuple or dict, ((a, b), target): def forward(self, a, b). Or give a function that makes the pair of a "
            "list of items: Program(collate=...)."
        )


_BUCKETS = "give each batch items of one shape (Program(sampler=...))"
_ALIKE = f"Give every item the same shape, pad them in Program(collate=...), or {_BUCKETS}."
_KNOWN = "Give tensors, numbers, or tuples or dicts of them, or a function that joins yours: Program(collate=...)."
_SPARSE = "Give dense rows (.to_dense()), and make them sparse in forward."


def _holds_sparse(items: list[Any]) -> bool:
    return any(tensor.layout is not torch.strided for tensor in tensors_of(items))


def _tell_unlike(indices: list[int], items: list[Any]) -> str:
    """Return which items cannot be joined with the others; empty where all look alike."""
    shapes = [shapes_text(item) for item in items]
    usual = Counter(shapes).most_common(1)[0][0]
    unlike = [f"item {index} is {shape}" for index, shape in zip(indices, shapes, strict=True) if shape != usual]
    if not unlike:
        return ""
    more = f" and {len(unlike) - _MOST_NAMED} more are unlike" if len(unlike) > _MOST_NAMED else ""
    return f"{', '.join(unlike[:_MOST_NAMED])}{more}, the others are {usual}"
