"""Says which samples were in a chunk that could not be computed, and where a loss that is no number comes from."""

import torch

from nfold.capture.batches.joining import Batch
from nfold.capture.batches.tree import tensors_of

_MOST_NAMED = 5


def tell_loss(chunk: int, loss: float, indices: list[int], batch: Batch) -> str:
    """Return a sentence about a loss that is NaN or infinite.

    Args:
        chunk: whose loss it is.
        loss: its value.
        indices: of the chunk's samples.
        batch: the samples.
    """
    bad = sorted(samples_with_nan(indices, batch))
    if not bad:
        return f"the loss of chunk {chunk} is {loss}. A smaller learning rate or gradient clipping often helps."
    named = ", ".join(map(str, bad[:_MOST_NAMED])) + (f", .. {bad[-1]}" if len(bad) > _MOST_NAMED else "")
    items = f"item {named}" if len(bad) == 1 else f"items {named}"
    return (
        f"the loss of chunk {chunk} is {loss}, since the data are: {items} of train_data() "
        f"({len(bad)} of the chunk's {len(indices)}) {'holds' if len(bad) == 1 else 'hold'} NaN. "
        "Repair them, or leave them out."
    )


def tell_chunk(chunk: int, indices: list[int], batch: Batch) -> str:
    """Return a sentence about a chunk for which the program raised.

    Args:
        chunk: its number.
        indices: of its samples.
        batch: the samples.
    """
    if len(indices) == 1:
        return (
            f"Chunk {chunk} was of one sample, item {indices[0]} of train_data(): if that is too few, use a batch_size "
            "with which the last batch of an epoch has more."
        )
    named = ", ".join(map(str, indices[:_MOST_NAMED])) + (f", .. {indices[-1]}" if len(indices) > _MOST_NAMED else "")
    return f"Chunk {chunk} was of items {named} of train_data(){_tell_range(indices, batch[1])}."


def _tell_range(indices: list[int], target: object) -> str:
    """Return between what a chunk's targets lie, where they are one whole number a sample."""
    if not isinstance(target, torch.Tensor) or target.shape != (len(indices),) or _has_fractions(target):
        return ""
    found = list(zip(map(int, target.tolist()), indices, strict=True))
    (least, where), (most, elsewhere) = min(found), max(found)
    return f"; their targets go from {least} (item {where}) to {most} (item {elsewhere})"


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def samples_with_nan(indices: list[int], batch: Batch) -> set[int]:
    """Return the indices of samples of which a number, in input or target, is NaN."""
    bad: set[int] = set()
    for tensor in tensors_of(batch):
        if tensor.is_floating_point() and tensor.dim() and len(tensor) == len(indices):
            rows = torch.isnan(tensor).reshape(len(tensor), -1).any(dim=1).tolist()
            bad |= {index for index, is_bad in zip(indices, rows, strict=True) if is_bad}
    return bad
