"""Takes samples out of a chunk's outputs and targets, wherever in an output they lie."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from nfold.capture.batches.tree import map_tensors, may_list_samples, paths_of, tensors_of
from nfold.capture.independence.sample_axes import SampleAxis

_MOST_PARTS = 8
_MOST_READINGS = 8


def num_samples(targets: Any) -> int:
    """Return the number of samples of a chunk, by the first dimension of its targets; 0: targets do not tell."""
    lengths = {tensor.shape[0] if tensor.ndim else 0 for tensor in tensors_of(targets)}
    found = lengths.pop() if len(lengths) == 1 else 0
    return 0 if may_list_samples(targets, found) else found


def readings(outputs: Any, size: int) -> Iterator[tuple[SampleAxis, ...]]:
    """Yield what the outputs of a model may mean, one reading for each tensor, the likeliest first."""
    found = [_readings(tensor, size) for tensor in tensors_of(outputs)]
    if any(each.dimension is not None for tensor in found for each in tensor):
        yield from itertools.islice(itertools.product(*found), _MOST_READINGS)


def _readings(tensor: torch.Tensor, size: int) -> list[SampleAxis]:
    exact = [SampleAxis(dimension=dimension) for dimension, length in enumerate(tensor.shape) if length == size]
    if exact:
        return exact
    count, rest = divmod(tensor.shape[0] if tensor.ndim else 0, size)
    ways = (True, False) if count and not rest else ()
    rows = [SampleAxis(dimension=0, count=count, is_outer=is_outer) for is_outer in ways]
    return [*rows, SampleAxis(dimension=None)]


def take_outputs(outputs: Any, meaning: tuple[SampleAxis, ...], samples: list[int]) -> Any:
    """Copy the outputs of some samples."""
    following = iter(meaning)
    return map_tensors(lambda tensor: next(following).take(tensor, samples), outputs)


def take_targets(targets: Any, samples: list[int]) -> Any:
    """Copy the targets of some samples."""
    return map_tensors(lambda tensor: tensor[samples], targets)


def joined(targets: Any, others: Any) -> Any:
    """Return two structures of targets joined along the samples; None: they do not fit together."""
    shapes = [[(path, tensor.dtype, tensor.shape[1:]) for path, tensor in paths_of(each)] for each in (targets, others)]
    if shapes[0] != shapes[1]:
        return None
    following = iter(list(tensors_of(others)))
    return map_tensors(lambda tensor: torch.cat([tensor, next(following)]), targets)


def uneven_parts(targets: Any, samples: list[int]) -> list[list[int]]:
    """Share samples out so that parts differ in their targets: to each label, or to rows with as many marks, its own.

    Where all are alike, two parts of different sizes show a sum or an unweighted mean.
    """
    keys = _sums(targets)
    ordered = sorted(samples, key=lambda sample: keys[sample])
    groups = [list(group) for _, group in itertools.groupby(ordered, key=lambda sample: keys[sample])]
    if len(groups) == 1:
        cut = -(-2 * len(samples) // 3)
        return [part for part in (samples[:cut], samples[cut:]) if part]
    step = -(-len(groups) // _MOST_PARTS)
    return [list(itertools.chain(*groups[start : start + step])) for start in range(0, len(groups), step)]


def _sums(targets: Any) -> list[list[float]]:
    """Return what samples are told apart by: the sums of their targets, and how many of these are no numbers."""
    columns = [torch.zeros(num_samples(targets), dtype=torch.float64)]
    for tensor in tensors_of(targets):
        if tensor.numel() and not tensor.is_complex():
            rows = tensor.reshape(len(tensor), -1).to("cpu", torch.float64)
            columns += [rows.nansum(1), rows.isnan().sum(1).double()]
    table: list[list[float]] = torch.stack(columns, 1).tolist()
    return table
