"""Reads off a loss of torch's own what makes it no mean over samples, which no example need show."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from nfold.capture.batches.tree import tensors_of
from nfold.capture.program.autocast import plain_loss
from nfold.capture.program.program_graph import Loss

_BY_CLASS: tuple[Any, ...] = (nn.CrossEntropyLoss, nn.NLLLoss, F.cross_entropy, F.nll_loss)
"""Divide by the weights of the targets that they are given. Other losses with weights divide by how many there are."""


def why_no_mean(loss: Loss, targets: Any) -> str:
    """Say what in the settings of a loss makes it no mean over samples; empty if nothing, or if it is the user's own.

    Args:
        loss: a module of torch.nn, or functools.partial of a function of torch.nn.functional.
        targets: of any batch: class probabilities are weighted otherwise than labels.
    """
    settings, kind = _settings(plain_loss(loss))
    name = getattr(kind, "__name__", "")
    if settings.get("reduction", "mean") == "sum":
        return f"{name}(reduction='sum') grows with their number. Use reduction='mean'"
    has_labels = not any(tensor.is_floating_point() for tensor in tensors_of(targets))
    if kind not in _BY_CLASS or not has_labels:
        return ""
    weight, ignored = settings.get("weight"), settings.get("ignore_index", -100)
    if isinstance(weight, torch.Tensor) and weight.numel() and not bool((weight == weight.flatten()[0]).all()):
        return f"{name} divides by the sum of the class weights (weight=) of the samples that it is given"
    if ignored >= 0:
        return f"{name}(ignore_index={ignored}) divides by the number of those that it does not leave out"
    return ""


def _settings(loss: Any) -> tuple[Mapping[str, Any], Any]:
    """Return the settings by name, and the class or function that they are of; None for the user's own."""
    if isinstance(loss, functools.partial):
        is_known = getattr(loss.func, "__module__", "") == F.__name__
        return (loss.keywords, loss.func) if is_known else ({}, None)
    is_known = isinstance(loss, nn.Module) and type(loss).__module__ == nn.modules.loss.__name__
    # Not vars(): weights are buffers.
    names = ("weight", "ignore_index", "reduction")
    return (
        ({each: getattr(loss, each) for each in names if hasattr(loss, each)}, type(loss)) if is_known else ({}, None)
    )
