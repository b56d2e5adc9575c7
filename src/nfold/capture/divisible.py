"""Finds out whether a batch may be cut into chunks: what each sample adds to outputs, loss and gradients is its own.

Batch norm is excused: its statistics are per chunk under every plan. A program that asks for autocast is compared
without it, if it can compute so: whether a batch can be cut does not depend on types, and coarse ones hide much.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nfold.capture.autocast import AutocastLoss, plain_loss, without_autocast
from nfold.capture.compare import Outcome, close, difference, outcome
from nfold.capture.example import Example
from nfold.capture.hooks import hooked_modules
from nfold.capture.observe import BatchNorm
from nfold.capture.precision import SINGLE, PrecisionWatch
from nfold.capture.program_graph import Loss
from nfold.capture.random import RandomState
from nfold.capture.sample_mean import not_a_mean, why_unlike_parts
from nfold.capture.steady import SteadyDraws
from nfold.capture.tree import map_tensors, paths_of, tensors_of
from nfold.capture.trial import try_forward, try_step
from nfold.errors import ProgramError
from nfold.program import describe

_PARTS = (5, 4, 3)
"""Uneven, so that a sum or an unweighted mean shows."""
_SIZE = sum(_PARTS)
_SCALES = (1e-3, 1e6)
"""Of the loss: a hook on a module that clips gradients shows at one of them, whatever its limit is."""
_SHIFT = 0.1
"""Of weights, for the trial at others, as a part of what they are in the mean."""
_ROUNDINGS = 8
"""By how many last bits of their type the gradients of chunks may differ that are added in another order."""


def why_indivisible(fresh: Callable[[], nn.Module], loss: Loss, example: Example) -> str:
    """Compare a batch with its chunks: twice at the first weights, once at others, in float64 if it computes so.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.

    Returns:
        Why the batch cannot be cut, in the user's words; empty if it can.
    """
    finest = fresh().double()
    doubled = _in_double(example)
    _quiet(finest)
    bare = plain_loss(loss)
    with without_autocast(finest):
        if _computes(finest, bare, doubled):
            return _compare_often(finest, bare, doubled)
    del finest
    model = fresh()
    _quiet(model)
    if isinstance(loss, AutocastLoss):
        with without_autocast(model):
            if _computes(model, loss.loss, example):
                return _compare_often(model, loss.loss, example)
    return _compare_often(model, loss, example)


def _in_double(example: Example) -> Example:
    parts = example.make_parts
    return replace(
        example,
        make=lambda size, which: map_tensors(_doubled, example.make(size, which)),
        make_parts=None if parts is None else lambda sizes, which: map_tensors(_doubled, parts(sizes, which)),
    )


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _computes(model: nn.Module, loss: Loss, example: Example) -> bool:
    """Tell whether a program that asks for autocast computes without it: some hold tensors of both types."""
    try:
        try_step(model, loss, example.batch(_SIZE, 2))
    except ProgramError:
        return False
    finally:
        model.zero_grad(set_to_none=True)
    return True


def _compare_often(model: nn.Module, loss: Loss, example: Example) -> str:
    # Other samples may show what the first ones did not, and other weights: some gradients are only rounding at first.
    reason = _compare(model, loss, example, 2) or _compare(model, loss, example, 3)
    for scale in _SCALES if hooked_modules(model, backward=True) else ():
        reason = reason or _compare(model, functools.partial(_scaled, loss, scale), example, 2)
    _shift(model)
    return reason or _compare(model, loss, example, 2)


def _shift(model: nn.Module) -> None:
    """Move all trained weights by a part of their size, the same way each time."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_floating_point() and parameter.layout is torch.strided:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter)
                parameter.add_(_SHIFT * noise * (parameter.abs().mean() + _SHIFT))


def _scaled(loss: Loss, scale: float, outputs: Any, targets: Any) -> torch.Tensor:
    return loss(outputs, targets) * scale


def _compare(model: nn.Module, loss: Loss, example: Example, which: int) -> str:
    batch, chunks = _whole_and_parts(example, which)
    inputs, targets = ([chunk[side] for chunk in chunks] for side in (0, 1))
    with PrecisionWatch() as watch:
        full, drew = _forward(model, batch[0])
    try:
        # Where Python's or numpy's generator draws there are no two outputs to compare; the loss can still be checked.
        pieces = split(full, _PARTS) if drew else [_forward(model, piece)[0] for piece in inputs]
        if not example.varying and not _same_outputs(full, pieces):
            return "an output of the model depends on the other samples of its batch, not only on its own"
        # Parts first: while they are added up, a weight's gradient is there twice.
        parts = _backward(model, loss, pieces, split(batch[1], _PARTS) if drew else targets)
        whole = _backward(model, loss, [full], [batch[1]])
    except Exception as error:
        return f"the program cannot be tried on parts of a batch: {describe(error)}"
    if whole is None or parts is None:
        return ""
    rounding = _coarsest([whole.loss, *tensors_of(full), *model.parameters()])
    if not close(whole.loss, parts.loss, rounding):
        return not_a_mean(whole.loss, parts.loss, _SIZE)
    if rounding > SINGLE and (text := _compare_rows(loss, full, pieces, batch[1])):
        return text
    return _explained(whole, parts, max(_ROUNDINGS * rounding, watch.coarsest))


def _whole_and_parts(example: Example, which: int) -> tuple[tuple[Any, Any], list[tuple[Any, Any]]]:
    """Return a batch and its chunks, which are padded by themselves where the program joins items itself."""
    if joined := example.parts(_PARTS, which):
        return joined
    batch = example.batch(_SIZE, which)
    return batch, list(zip(split(batch[0], _PARTS), split(batch[1], _PARTS), strict=True))


def _compare_rows(loss: Loss, outputs: Any, pieces: list[Any], targets: Any) -> str:
    """Compare the loss of coarse outputs with that of their own rows: equal ones, so single precision tells more."""
    if not all(_has_rows(tensor, found) for tensor, found in _paired(outputs, pieces) if tensor.ndim):
        return ""  # only while it trains are outputs taken apart along other dimensions

    def take(samples: list[int]) -> tuple[Any, Any]:
        rows = functools.partial(_rows, size=_SIZE, start=samples[0], stop=samples[-1] + 1)
        return map_tensors(rows, outputs), map_tensors(rows, targets)

    with contextlib.suppress(Exception):  # it needs the gradients of outputs, and was compared with those
        return why_unlike_parts(loss, take, [part.tolist() for part in split(torch.arange(_SIZE), _PARTS)])
    return ""


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
    for tensor, found in _paired(full, pieces):
        if _has_rows(tensor, found):
            alike = all(piece.shape[1:] == tensor.shape[1:] for piece in found)
            if not alike or not close(tensor, torch.cat(found)):
                return False
    return True


def _paired(full: Any, pieces: list[Any]) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Yield each tensor of the outputs with those in its place of the pieces' outputs."""
    parts = [dict(paths_of(piece)) for piece in pieces]
    for path, tensor in paths_of(full):
        yield tensor.detach(), [part[path].detach() for part in parts if path in part]


def _has_rows(tensor: torch.Tensor, pieces: list[torch.Tensor]) -> bool:
    """Tell whether a tensor has one row per sample."""
    rows = [piece.shape[0] if piece.ndim else -1 for piece in pieces]
    return bool(tensor.ndim) and tensor.shape[0] == _SIZE and rows == list(_PARTS)


def split(value: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Cut copies of every tensor that has one row per sample; other tensors stay whole."""
    stops = list(itertools.accumulate(sizes))
    return [
        map_tensors(functools.partial(_rows, size=sum(sizes), start=stop - count, stop=stop), value)
        for count, stop in zip(sizes, stops, strict=True)
    ]


def _rows(tensor: torch.Tensor, *, size: int, start: int, stop: int) -> torch.Tensor:
    if not tensor.ndim or tensor.shape[0] != size:
        return tensor.clone()
    if tensor.layout is torch.sparse_coo:  # of which torch takes no slices
        return tensor.index_select(0, torch.arange(start, stop, device=tensor.device))
    return tensor[start:stop].clone()


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
