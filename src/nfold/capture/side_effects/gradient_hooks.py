"""Finds what hooks on the gradients of weights keep from one backward pass to the next; refuses those that step.

Copies of a model do not have these hooks, so a model that is built anew is tried.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn

from nfold.capture.computing.random import seed_all
from nfold.capture.program.program_graph import Loss, dotted
from nfold.capture.program.trial import try_backward, try_forward, try_loss
from nfold.capture.program.weight_writes import WeightWrites
from nfold.capture.side_effects.held_values import alike
from nfold.capture.side_effects.module_states import changes, snapshot
from nfold.capture.side_effects.refusals import refuse_in_backward
from nfold.capture.side_effects.shared_state import Places, Watch, places_named_by
from nfold.errors import ProgramError


def told_kept_by_hooks(rebuild: Callable[[], nn.Module], loss: Loss, batch: tuple[Any, Any]) -> str:
    """Say what hooks change that no gradient was seen to follow from; empty if they change nothing.

    Args:
        rebuild: builds the module anew, with its hooks.
        loss: the user's.
        batch: inputs and targets.

    Raises:
        ProgramError: gradients follow from what hooks change, or hooks change weights or drop their gradients.
    """
    model = rebuild()
    _backward(model, loss, batch)  # may build what later ones use
    (changed, one), (others, other) = (_backward(model, loss, batch) for _ in range(2))
    changed = list(dict.fromkeys((*changed, *others)))
    if not changed:
        return ""
    told = f"a hook on a gradient changes {', '.join(changed[:3])}, which no checkpoint holds, and it is called"
    if one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one):
        return f"{told} for each chunk on each rank: no gradient may follow from it"
    raise ProgramError(
        f"{told} for each chunk, on each rank for itself, and the gradients follow from it. Do it in the optimizer's "
        "step(), and keep it in self.state."
    )


def has_gradient_hooks(model: nn.Module) -> bool:
    """Whether something is called with the gradients of weights, hooks of torch's optimizers in backward included."""
    return bool(gradient_hooks(model)) or any(hasattr(each, "_in_backward_optimizers") for each in model.parameters())


def gradient_hooks(model: nn.Module) -> list[Callable[..., Any]]:
    """Return the hooks on the gradients of weights, also those that run once these are accumulated."""
    kinds = [each for weight in model.parameters() for each in (weight._backward_hooks, _accumulated(weight))]
    return [hook for hooks in kinds for hook in (hooks or {}).values()]


def _accumulated(weight: nn.Parameter) -> dict[int, Callable[..., Any]] | None:
    return weight._post_accumulate_grad_hooks


def _backward(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> tuple[list[str], dict[str, torch.Tensor]]:
    """Return the names of what a backward pass changes besides weights, and the gradients."""
    seed_all(0)
    model.zero_grad()
    value = try_loss(try_forward(model, batch[0]), batch[1], loss)
    before, watch = snapshot(model), Watch(partial(_places, gradient_hooks(model)))
    watch.look()
    with WeightWrites(model) as writes, _noting_dropped(model) as dropped:
        try_backward(model, value)
    watch.look()
    if written := [dotted(weight) for weight in writes.weights()]:
        refuse_in_backward(f"a hook on a gradient changes {_first_of(written)}, as an optimizer does")
    if dropped:
        refuse_in_backward(f"a hook on a gradient drops the gradient of {_first_of(dropped)}")
    weights = dict(model.named_parameters(remove_duplicate=False))
    own = [dotted(key) for key in changes(before, snapshot(model)) if dotted(key) not in weights]
    gradients = {name: each.grad for name, each in weights.items() if each.grad is not None}
    return [*own, *watch.moved], gradients


@contextlib.contextmanager
def _noting_dropped(model: nn.Module) -> Iterator[list[str]]:
    """Note which weights get a gradient that is gone when all of their hooks have been called."""
    names: list[str] = []

    def note(name: str, weight: torch.Tensor) -> None:
        if weight.grad is None:
            names.append(name)

    with contextlib.ExitStack() as hooks:
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                hook: Any = weight.register_post_accumulate_grad_hook(partial(note, name))  # type: ignore[no-untyped-call]
                hooks.enter_context(hook)
        yield names


def _first_of(names: list[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def _places(hooks: list[Callable[..., Any]]) -> Places:
    """Return what the code of hooks can reach, and the objects that are hooks or whose methods are."""
    owners = [hook.__self__ if inspect.ismethod(hook) else hook for hook in hooks]
    held = [each for each in owners if not isinstance(each, (FunctionType, nn.Module))]
    return [*places_named_by(hooks), *((type(each).__name__, partial(_itself, each)) for each in held)]


def _itself(value: Any) -> Any:
    return value
