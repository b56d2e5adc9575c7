"""Finds out whether a batch may be cut into chunks: each output must depend on its own sample, the loss be a mean."""

import functools
import itertools
from typing import Any

import torch
from torch import nn

from nfold.capture.compare import close
from nfold.capture.example import Example
from nfold.capture.observe import BatchNorm
from nfold.capture.program_graph import Loss
from nfold.capture.random import RandomState
from nfold.capture.tree import map_tensors, paths_of
from nfold.capture.trial import try_forward

_PARTS = (5, 4, 3)
"""Uneven, so that a sum or an unweighted mean shows."""


def why_indivisible(model: nn.Module, loss: Loss, example: Example) -> str:
    """Compare a batch with its chunks; batch norm is excused, its statistics are per chunk under every plan.

    Args:
        model: a throw-away copy in training mode.
        loss: the user's.
        example: where batches come from.

    Returns:
        Why the batch cannot be cut, in the user's words; empty if it can.
    """
    _quiet(model)
    size = sum(_PARTS)
    return _compare(model, loss, *example.batch(size, 2)) or _compare(
        # Other targets may show what these did not; the outputs have been compared.
        model,
        loss,
        *example.batch(size, 3),
        loss_only=True,
    )


def _compare(model: nn.Module, loss: Loss, inputs: Any, target: Any, *, loss_only: bool = False) -> str:
    size = sum(_PARTS)
    full, drew = _forward(model, inputs)
    if drew:
        model.eval()
        full, drew = _forward(model, inputs)
    # A model that draws even in evaluation gives no two outputs to compare; its loss can still be checked.
    pieces = _split(full, size) if drew or loss_only else [_forward(model, piece)[0] for piece in _split(inputs, size)]
    if not _same_outputs(full, pieces, size):
        return "an output of the model depends on the other samples of its batch, not only on its own"
    before = RandomState()
    whole = loss(full, target)
    parts = [loss(piece, part) for piece, part in zip(pieces, _split(target, size), strict=True)]
    mean = sum((part * (count / size) for part, count in zip(parts, _PARTS, strict=True)), torch.zeros_like(whole))
    if close(whole, mean) or before.torch_moved():
        return ""
    return (
        f"the loss is not a mean over samples: for {size} samples it is {whole.item():.6g}, but the mean over their "
        f"chunks is {mean.item():.6g} (a sum, class weights, ignored targets or contrasts between samples do that)"
    )


def _forward(model: nn.Module, inputs: Any) -> tuple[Any, bool]:
    """Return the outputs, and whether random numbers went into them."""
    before = RandomState()
    outputs = map_tensors(torch.Tensor.detach, try_forward(model, map_tensors(torch.clone, inputs)))
    return outputs, before.torch_moved() or before.others_moved()


def _same_outputs(full: Any, pieces: list[Any], size: int) -> bool:
    """Compare the parts of the outputs that have one row per sample."""
    parts = [dict(paths_of(piece)) for piece in pieces]
    for path, tensor in paths_of(full):
        found = [part.get(path) for part in parts]
        rows = [piece.shape[0] if piece is not None and piece.ndim else -1 for piece in found]
        if tensor.ndim and tensor.shape[0] == size and rows == list(_PARTS):
            joined = torch.cat([piece for piece in found if piece is not None])
            if not close(tensor, joined):
                return False
    return True


def _split(value: Any, size: int) -> list[Any]:
    """Cut every tensor that has one row per sample."""
    stops = list(itertools.accumulate(_PARTS))
    return [
        map_tensors(functools.partial(_rows, size=size, start=stop - count, stop=stop), value)
        for count, stop in zip(_PARTS, stops, strict=True)
    ]


def _rows(tensor: torch.Tensor, *, size: int, start: int, stop: int) -> torch.Tensor:
    return (tensor[start:stop] if tensor.ndim and tensor.shape[0] == size else tensor).clone()


def _quiet(model: nn.Module) -> None:
    """Switch off torch's own dropout and batch statistics, and leave the user's code in training mode."""
    for module in model.modules():
        if isinstance(module, BatchNorm) and module.running_mean is None:
            weight = next(model.parameters())
            module.running_mean = weight.new_zeros(module.num_features)
            module.running_var = weight.new_ones(module.num_features)
            module.track_running_stats = True
        if type(module).__module__.startswith("torch.nn."):
            # Not eval(): that would reach the user's modules inside torch's containers.
            module.training = False
