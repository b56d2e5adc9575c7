"""Finds out whether what no checkpoint holds is computed anew in each forward, as torch's old spectral_norm does."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from nfold.capture.batches.example import SIZES, Example
from nfold.capture.batches.tree import tensors_of
from nfold.capture.computing.random import seed_all
from nfold.capture.program.program_graph import Loss, dotted
from nfold.capture.program.trial import try_forward, try_step
from nfold.capture.side_effects.held_values import alike
from nfold.capture.side_effects.module_states import changes, snapshot
from nfold.errors import ProgramError

_BEFORE, _AFTER = 2, 2
"""Steps of one model before another goes on from its state dict, and of both from there."""


def not_recomputed(fresh: Callable[[], nn.Module], loss: Loss, example: Example, names: Sequence[str]) -> list[str]:
    """Return which of what a model changes would be missing to one that goes on from its state dict alone.

    A copy takes some steps, another one takes over its state dict; both must then give the same losses and outputs to
    the last bit, in training and in evaluation, and hold the same. Weights change in between. Eight forward passes.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
        names: what changes and is in no state dict.
    """
    if not names:
        return []
    one, other = fresh(), fresh()
    try:
        for step in range(_BEFORE):
            _step(one, loss, example, step)
        other.load_state_dict(one.state_dict())
        results = [
            [_step(model, loss, example, step) for step in range(_BEFORE, _BEFORE + _AFTER)]
            + _evaluated(model, example)
            for model in (one, other)
        ]
    except (ProgramError, RuntimeError):
        return list(names)
    weights = {name for name, _ in one.named_parameters(remove_duplicate=False)}
    unlike = [key for key in changes(snapshot(one), snapshot(other)) if dotted(key) not in weights]
    if not unlike and all(map(alike, *results)):
        return []
    return [name for name in names if name in map(dotted, unlike)] or list(names)


def _step(model: nn.Module, loss: Loss, example: Example, step: int) -> torch.Tensor:
    """Return the loss of a batch, and move the weights."""
    seed_all(step)
    size = SIZES[(step + 1) // 2 % 2]  # the first after the state dict is as large as the last before
    value = try_step(model, loss, example.batch(size, step)).detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.grad = None
            if parameter.is_floating_point():
                parameter.mul_(1.0 + 0.01 * (step + 1))
    return value


def _evaluated(model: nn.Module, example: Example) -> list[torch.Tensor]:
    seed_all(0)
    model.eval()
    with torch.no_grad():
        return list(tensors_of(try_forward(model, example.batch(SIZES[0], 0)[0])))
