"""Finds out whether a batch may be cut into chunks: what each sample adds to outputs, loss and gradients is its own.

Batch norm is excused: its statistics are per chunk under every plan.
"""

import functools
import itertools
from typing import Any

import torch
from torch import nn

from nfold.capture.compare import Outcome, close, difference, outcome
from nfold.capture.declared_loss import why_no_mean
from nfold.capture.example import Example
from nfold.capture.hooks import hooked_modules
from nfold.capture.observe import BatchNorm
from nfold.capture.precision import PrecisionWatch
from nfold.capture.program_graph import Loss
from nfold.capture.random import RandomState
from nfold.capture.steady import SteadyDraws
from nfold.capture.tree import map_tensors, paths_of, tensors_of
from nfold.capture.trial import try_forward
from nfold.program import describe

_PARTS = (5, 4, 3)
"""Uneven, so that a sum or an unweighted mean shows."""
_SIZE = sum(_PARTS)
_NO_MEAN = "the loss is not a mean over samples"
_SCALES = (1e-3, 1e6)
"""Of the loss: a hook on a module that clips gradients shows at one of them, whatever its limit is."""
_ROUNDINGS = 8
"""By how many last bits of their type the gradients of chunks may differ that are added in another order."""


def why_indivisible(model: nn.Module, loss: Loss, example: Example) -> str:
    """Compare a batch with its chunks, twice.

    Args:
        model: a throw-away copy in training mode.
        loss: the user's.
        example: where batches come from.

    Returns:
        Why the batch cannot be cut, in the user's words; empty if it can.
    """
    declared = why_no_mean(loss, example.batch(1)[1])
    if declared:
        return f"{_NO_MEAN}: {declared}"
    _quiet(model)
    # Other samples may show what the first ones did not.
    reason = _compare(model, loss, example.batch(_SIZE, 2)) or _compare(model, loss, example.batch(_SIZE, 3))
    for scale in _SCALES if hooked_modules(model, backward=True) else ():
        reason = reason or _compare(model, functools.partial(_scaled, loss, scale), example.batch(_SIZE, 2))
    return reason


def _scaled(loss: Loss, scale: float, outputs: Any, targets: Any) -> torch.Tensor:
    return loss(outputs, targets) * scale


def _compare(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> str:
    with PrecisionWatch() as watch:
        full, drew = _forward(model, batch[0])
    try:
        # Where Python's or numpy's generator draws there are no two outputs to compare; the loss can still be checked.
        pieces = split(full, _PARTS) if drew else [_forward(model, piece)[0] for piece in split(batch[0], _PARTS)]
        if not _same_outputs(full, pieces):
            return "an output of the model depends on the other samples of its batch, not only on its own"
        # Parts first: while they are added up, a weight's gradient is there twice.
        parts = _backward(model, loss, pieces, split(batch[1], _PARTS))
        whole = _backward(model, loss, [full], [batch[1]])
    except Exception as error:
        return f"the program cannot be tried on parts of a batch: {describe(error)}"
    if whole is None or parts is None:
        return ""
    rounding = _coarsest([whole.loss, *tensors_of(full), *model.parameters()])
    if not close(whole.loss, parts.loss, rounding):
        return not_a_mean(whole.loss, parts.loss, _SIZE)
    return _explained(whole, parts, max(_ROUNDINGS * rounding, watch.coarsest))


def _coarsest(tensors: list[torch.Tensor]) -> float:
    """Return the relative rounding of the coarsest type: a loss of fine targets is as exact as the outputs are."""
    return max(torch.finfo(each.dtype).eps for each in tensors if each.is_floating_point() or each.is_complex())


def _explained(whole: Outcome, parts: Outcome, precision: float) -> str:
    text = difference(whole, parts, precision)
    if not text:
        return ""
    return (
        f"added up over chunks, {text}: a hook or a backward function of the program looks at the gradient of a whole "
        "batch, or at how many times it is called"
    )


def not_a_mean(whole: torch.Tensor, mean: torch.Tensor, size: int) -> str:
    """Say that a loss is no mean over samples."""
    texts = next(
        (one, other)
        for digits in (6, 9, 17)
        if (one := f"{whole.item():.{digits}g}") != (other := f"{mean.item():.{digits}g}") or digits == 17
    )
    return (
        f"{_NO_MEAN}: for {size} samples it is {texts[0]}, but the mean over their chunks is {texts[1]} (a sum, class "
        "weights, ignored targets or contrasts between samples do that)"
    )


def _forward(model: nn.Module, inputs: Any) -> tuple[Any, bool]:
    """Return the outputs, and whether random numbers went into them that cannot be held still."""
    before = RandomState()
    with SteadyDraws():
        outputs = try_forward(model, map_tensors(torch.clone, inputs))
    return outputs, before.others_moved()


def _backward(model: nn.Module, loss: Loss, outputs: list[Any], targets: list[Any]) -> Outcome | None:
    """Add up the loss and gradients of chunks, each by its share of the samples.

    None if the loss draws from Python's or numpy's generator.
    """
    sizes = (_SIZE,) if len(outputs) == 1 else _PARTS
    before = RandomState()
    with SteadyDraws():
        losses = [loss(output, target) for output, target in zip(outputs, targets, strict=True)]
    if before.others_moved():
        return None
    value = torch.zeros_like(losses[0], requires_grad=False)
    for part, size in zip(losses, sizes, strict=True):
        share = part * (size / _SIZE)
        # One after another, as chunks are; those of outputs that were computed together share their history.
        share.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        value += share.detach()
    return outcome(value, model)


def _same_outputs(full: Any, pieces: list[Any]) -> bool:
    """Compare the parts of the outputs that have one row per sample."""
    parts = [dict(paths_of(piece)) for piece in pieces]
    for path, tensor in paths_of(full):
        found = [part[path].detach() for part in parts if path in part]
        rows = [piece.shape[0] if piece.ndim else -1 for piece in found]
        if tensor.ndim and tensor.shape[0] == _SIZE and rows == list(_PARTS):
            alike = all(piece.shape[1:] == tensor.shape[1:] for piece in found)
            if not alike or not close(tensor.detach(), torch.cat(found)):
                return False
    return True


def split(value: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Cut copies of every tensor that has one row per sample; other tensors stay whole."""
    stops = list(itertools.accumulate(sizes))
    return [
        map_tensors(functools.partial(_rows, size=sum(sizes), start=stop - count, stop=stop), value)
        for count, stop in zip(sizes, stops, strict=True)
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
