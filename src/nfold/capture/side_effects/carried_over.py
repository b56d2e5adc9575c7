"""Finds what a forward pass takes over from those before it, once weights have moved: a teacher that follows, say.

It often begins as a copy of the weights. At the first weights its update then changes nothing that could be seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

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
    """What a pass took over from another one."""

    changed: list[tuple[str, str]] = field(default_factory=list)
    """(module path, attribute) of what the model was seen to keep otherwise."""
    shows: bool = False
    """Whether the loss differs."""


def carried_over(fresh: Callable[[], nn.Module], loss: Loss, example: Example) -> CarriedOver:
    """Compare the same pass at the same weights with and without another pass before it, at others. Three passes.

    A model that does not equal itself without one tells nothing. It takes two more passes to find that out, where
    there is a difference. One copy of the model lives at a time.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
    """

    def passed(*calls: int) -> tuple[torch.Tensor, State]:
        return _passed(fresh(), loss, example, calls)

    try:
        with_it, without = passed(0, 1), passed(1)
        found = _compared(with_it, without)
        if found != CarriedOver() and _compared(passed(1), without) == CarriedOver():
            return found
    except ProgramError:
        pass  # it does not compute at other weights
    return CarriedOver()


def _passed(model: nn.Module, loss: Loss, example: Example, calls: tuple[int, ...]) -> tuple[torch.Tensor, State]:
    """Return the last loss of passes at some of two sets of weights, and what they have changed of the model."""
    value, before = torch.zeros(()), snapshot(model)
    for call in range(2):
        _move(model)
        if call in calls:
            seed_all(0)
            inputs, target = example.batch(SIZES[0], call)
            value = try_loss(try_forward(model, inputs), target, loss).detach()
    after, weights = snapshot(model), {name for name, _ in model.named_parameters(remove_duplicate=False)}
    changed = {key: after[key] for key in changes(before, after) if dotted(key) not in weights}
    hidden = {key: [changed.get(key), each] for key, each in hidden_weights(model).items()}
    return value, changed | hidden


def _move(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.mul_(_GROWTH).add_(_SHIFT)


def _compared(one: tuple[torch.Tensor, State], other: tuple[torch.Tensor, State]) -> CarriedOver:
    found = dict.fromkeys((*changes(one[1], other[1]), *changes(other[1], one[1])))
    return CarriedOver(list(found), not alike(one[0], other[0]))
