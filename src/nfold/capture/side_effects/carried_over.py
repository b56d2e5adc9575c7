"""Finds what a forward pass takes over from those before it, once weights have moved: a teacher that follows, say.

It often begins as a copy of the weights. At the first weights its update then changes nothing that could be seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.example import SIZES, Example
from nfold.capture.computing.random import seed_all
from nfold.capture.program.program_graph import Loss, dotted
from nfold.capture.program.trial import try_forward, try_loss
from nfold.capture.side_effects.held_values import alike
from nfold.capture.side_effects.module_states import State, changes, hidden_weights, snapshot
from nfold.errors import ProgramError

_GROWTH, _SHIFT = 1.01, 1e-3
"""Of a weight from one pass to the next."""


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """The differences that an earlier pass makes to a later one."""

    changed: list[tuple[str, str]] = field(default_factory=list)
    """(module path, attribute) of what the model was seen to keep otherwise."""
    is_known: bool = True
    """False: it could not be compared, since the program does not compute at other weights."""
    shows: bool = False
    """Whether the loss differs."""
    evaluation_shows: bool = False
    """Whether it does after a pass in eval mode."""
    by_evaluation: list[tuple[str, str]] = field(default_factory=list)
    """What such a pass then left otherwise, as in `changed`."""


def carried_over(
    fresh: Callable[[], nn.Module], loss: Loss, example: Example, *, evaluates: bool = False
) -> CarriedOver:
    """Compare the same pass at the same weights with and without another pass before it, at others. Three passes.

    A model that does not equal itself without one tells nothing. It takes one more pass to find that out, where
    there is a difference. One copy of the model lives at a time.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
        evaluates: whether one in eval mode may come before it, too: two more passes.
    """

    def passed(before: str) -> tuple[torch.Tensor, State]:
        return _passed(fresh(), loss, example, before)

    try:
        alone = passed("")
        found = _compared(passed("training"), alone)
        evaluated = _compared(passed("evaluation"), alone) if evaluates else CarriedOver()
        if (found != CarriedOver() or evaluated.shows) and _compared(passed(""), alone) == CarriedOver():
            left = evaluated.changed if evaluated.shows else []
            return replace(found, evaluation_shows=evaluated.shows, by_evaluation=left)
    except ProgramError:
        return CarriedOver(is_known=False)
    return CarriedOver()


def _passed(model: nn.Module, loss: Loss, example: Example, before: str) -> tuple[torch.Tensor, State]:
    """Return the loss of a pass that may come after another, and what they have changed of the model."""
    begun = snapshot(model)
    _move(model)
    if before == "training":
        _loss_of(model, loss, example.batch(SIZES[0], 0))
    elif before:
        model.eval()
        with torch.no_grad():
            try_forward(model, example.batch(SIZES[0], 0)[0])
        model.train()
    _move(model)
    value = _loss_of(model, loss, example.batch(SIZES[0], 1))
    after, weights = snapshot(model), {name for name, _ in model.named_parameters(remove_duplicate=False)}
    changed = {key: after[key] for key in changes(begun, after) if dotted(key) not in weights}
    hidden = {key: [changed.get(key), each] for key, each in hidden_weights(model).items()}
    return value, changed | hidden


def _loss_of(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> torch.Tensor:
    seed_all(0)
    return try_loss(try_forward(model, batch[0]), batch[1], loss).detach()


def _move(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.mul_(_GROWTH).add_(_SHIFT)


def _compared(one: tuple[torch.Tensor, State], other: tuple[torch.Tensor, State]) -> CarriedOver:
    found = dict.fromkeys((*changes(one[1], other[1]), *changes(other[1], one[1])))
    return CarriedOver(list(found), shows=not alike(one[0], other[0]))
