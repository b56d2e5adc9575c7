"""Fresh copies of the user's model, and what a forward pass leaves changed in one."""

import copy
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from nfold.capture.batches.tree import tensors_of
from nfold.capture.side_effects.closures import rebind_closures
from nfold.capture.side_effects.freezing import attributes, freeze, same
from nfold.capture.side_effects.hooks import hooks_of
from nfold.capture.tracing.observe import BatchNorm
from nfold.errors import ProgramError

_DEEPEST = 2
"""Containers and helpers around a module that the model holds unregistered."""
_OWN = frozenset(vars(nn.Module())) - {"_buffers"}
_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
_RUNNING = {"running_mean", "running_var", "num_batches_tracked"}

State = dict[tuple[str, str], Any]
"""(module path, attribute) -> value."""


def fresh_copies(
    model: nn.Module, rebuild: Callable[[], nn.Module] | None, *, lazy: bool = False
) -> Callable[[], nn.Module]:
    """Return a function that makes copies of a model, with its weights and its hooks, in training mode.

    Args:
        model: is left as it is.
        rebuild: builds the same module anew, for models that cannot be copied.
        lazy: let copies share the memory of weights until somebody writes. Not where others hold their addresses.

    Raises:
        ProgramError: (when a copy is made) there is no way to copy it.
    """

    def fresh() -> nn.Module:
        try:
            known = _copied_empty(model) | _copied_otherwise(model) | (_lazily_copied(model) if lazy else {})
            other = copy.deepcopy(model, known)
            rebind_closures(other, known)
            return _in_training(other)
        except Exception as error:
            if rebuild is None:
                raise ProgramError(
                    f"nfold checks a program on copies of its model, and {type(model).__name__} cannot be copied: "
                    f"copy.deepcopy raised {type(error).__name__}: {error}. Keep what cannot be copied out of it."
                ) from error
        other = rebuild()
        other.load_state_dict(model.state_dict())
        return _in_training(other)

    return fresh


def _in_training(model: nn.Module) -> nn.Module:
    model.train()  # a user's own may return nothing
    return model


def is_freed(parameter: torch.Tensor) -> bool:
    """Whether a weight has been freed. Nothing may be written to it, since all of its elements are one."""
    return parameter.numel() > 1 and parameter.layout is torch.strided and not any(parameter.stride())


def _copied_otherwise(model: nn.Module) -> dict[int, Any]:
    """Return what `deepcopy` shall take for copied. A weight that is let go would get memory of its size."""
    gone = (each for each in model.parameters() if is_freed(each))
    return _copied_sparse(model) | {
        id(each): nn.Parameter(each.detach(), requires_grad=each.requires_grad) for each in gone
    }


def _lazily_copied(model: nn.Module) -> dict[int, Any]:
    """Return what `deepcopy` shall take for copied: weights that are copied when they are first written to."""
    return {
        id(each): nn.Parameter(copied_on_write(each.detach()), requires_grad=each.requires_grad)
        for each in model.parameters()
        if type(each) is nn.Parameter and each.layout is torch.strided
    }


def _copied_empty(model: nn.Module) -> dict[int, Any]:
    """Return what `deepcopy` shall take for copied: places for hooks in which none is, most of what a module holds."""
    held = (value for module in model.modules() for value in vars(module).values())
    return {id(each): OrderedDict() for each in held if type(each) is OrderedDict and not each}


def _copied_sparse(model: nn.Module) -> dict[int, Any]:
    """Return what `deepcopy` shall take for copied: sparse tensors that modules hold, of which torch copies few."""
    return {
        id(each): each.detach().clone()
        for each in tensors_of(list(map(vars, model.modules())))
        if each.layout in _COMPRESSED and each.is_leaf
    }


def copied_on_write(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that takes memory once it is written to; at once where the memory is a mapped file's or numpy's."""
    try:
        return torch._lazy_clone(tensor)
    except (AttributeError, RuntimeError):
        return tensor.clone()


def snapshot(model: nn.Module) -> State:
    """Write down everything but batch-norm statistics that a forward pass could change. O(buffers)."""
    state: State = {}
    for path, module in model.named_modules():
        state |= {(path, name): freeze(value) for name, value in _held(module).items()}
        for name, parameter in module.named_parameters(recurse=False):
            state[path, name] = (id(parameter), parameter._version)
    return state


def hidden_weights(model: nn.Module) -> State:
    """Return the weights, not copied, of modules that a model holds without registering them, as in a list."""
    known = {id(each) for each in model.modules()}
    state: State = {}
    for path, module in model.named_modules():
        for name, value in _held(module).items():
            hidden = [each for each in _modules_in(value) if id(each) not in known]
            if hidden:
                state[path, name] = [weight.detach() for each in hidden for weight in each.parameters()]
    return state


def _modules_in(value: Any, depth: int = 0) -> Iterator[nn.Module]:
    if isinstance(value, nn.Module):
        yield value
    elif depth < _DEEPEST:
        items = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
        for item in (*items, *attributes(value).values()):
            yield from _modules_in(item, depth + 1)


def _held(module: nn.Module) -> dict[str, Any]:
    """Return what a module holds besides weights and other modules; a method, as a hook, stands for its object."""
    statistics = _RUNNING if isinstance(module, BatchNorm) else set()
    found = {name: value for name, value in vars(module).items() if name not in _OWN and name != "_buffers"}
    found |= {name: buffer for name, buffer in module.named_buffers(recurse=False) if name not in statistics}
    found |= {f"hook {index}": hook for index, hook in enumerate(hooks_of(module))}
    return {name: value.__self__ if inspect.ismethod(value) else value for name, value in found.items()}


def loss_snapshot(loss: Callable[..., Any]) -> State:
    """Write down what the object of a loss can keep from one call to the next."""
    owner = loss.__self__ if inspect.ismethod(loss) else loss
    if isinstance(owner, nn.Module):
        return snapshot(owner)
    held = {"its arguments": owner} if isinstance(owner, functools.partial) else attributes(owner)
    return {("", name): freeze_shared(value) for name, value in held.items()}


def freeze_shared(value: Any) -> Any:
    """Copy what can change inside a value that is no part of the model; such a module keeps what a model would."""
    return snapshot(value) if isinstance(value, nn.Module) else freeze(value)


def changes(before: State, after: State) -> list[tuple[str, str]]:
    """Return (module path, attribute) of what differs between two snapshots, in the order of the model."""
    return [key for key in after if key not in before or not same(before[key], after[key])]


def held_by_several(model: nn.Module, changed: list[tuple[str, str]]) -> bool:
    """Whether what changes is kept by several modules together, so that on different ranks each would change a copy."""
    held = {path: _held(module) for path, module in model.named_modules()}
    values = [held[path].get(name) for path, name in changed]
    return any(
        sum(any(each is value for each in own.values()) for own in held.values()) > 1
        for value in values
        if not isinstance(value, (bool, int, float, str, tuple, np.generic, type(None)))
    )
