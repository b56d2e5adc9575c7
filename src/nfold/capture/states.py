"""Fresh copies of the user's model, and what a forward pass leaves changed in one."""

import copy
import inspect
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from nfold.capture.autocast import plain_loss
from nfold.capture.observe import BatchNorm
from nfold.errors import ProgramError

_OWN = frozenset(vars(nn.Module())) - {"_buffers"}
_RUNNING = {"running_mean", "running_var", "num_batches_tracked"}

_DEEPEST, _LONGEST = 3, 10_000
"""Nested values, and items of one, that are looked at."""

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
            return copy.deepcopy(model, _lazily_copied(model) if lazy else {}).train()
        except Exception as error:
            if rebuild is None:
                raise ProgramError(
                    f"nfold checks a program on copies of its model, and {type(model).__name__} cannot be copied: "
                    f"copy.deepcopy raised {type(error).__name__}: {error}. Keep what cannot be copied out of it."
                ) from error
        other = rebuild()
        other.load_state_dict(model.state_dict())
        return other.train()

    return fresh


def _lazily_copied(model: nn.Module) -> dict[int, Any]:
    """Return what `deepcopy` shall take for copied: weights that are copied when they are first written to."""
    return {
        id(each): nn.Parameter(_copied_on_write(each.detach()), requires_grad=each.requires_grad)
        for each in model.parameters()
        if type(each) is nn.Parameter and each.layout is torch.strided
    }


def _copied_on_write(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that takes memory once it is written to; at once where the memory is a mapped file's or numpy's."""
    try:
        return torch._lazy_clone(tensor)
    except (AttributeError, RuntimeError):
        return tensor.clone()


def snapshot(model: nn.Module) -> State:
    """Write down everything but batch-norm statistics that a forward pass could change. O(buffers)."""
    state: State = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _OWN and name != "_buffers":
                state[path, name] = _freeze(value)
        for name, buffer in module.named_buffers(recurse=False):
            if not (isinstance(module, BatchNorm) and name in _RUNNING):
                state[path, name] = _freeze(buffer)
        for name, parameter in module.named_parameters(recurse=False):
            state[path, name] = (id(parameter), parameter._version)
    return state


def loss_snapshot(loss: Callable[..., Any]) -> State:
    """Write down what a loss could keep from one call to the next: in its object or in its closure."""
    loss = plain_loss(loss)
    owner = loss.__self__ if inspect.ismethod(loss) else loss
    if isinstance(owner, nn.Module):
        state = snapshot(owner)
    else:
        state = {("", name): _freeze(value) for name, value in getattr(owner, "__dict__", {}).items()}
    names = getattr(getattr(loss, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(loss, "__closure__", None) or (), strict=True):
        state["", name] = _freeze(cell.cell_contents)
    return state


def changes(before: State, after: State) -> list[tuple[str, str]]:
    """Return what differs between two snapshots, in the order of the model."""
    return [key for key in after if key not in before or not _same(before[key], after[key])]


def _freeze(value: Any, depth: int = 0) -> Any:
    """Copy what can change inside a value; what is too deep, too large or not Python's own counts as never changing."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return value
    if depth == _DEEPEST:
        return type(value)
    if isinstance(value, (list, tuple, deque)) and len(value) <= _LONGEST:
        return [_freeze(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)) and len(value) <= _LONGEST:
        return sorted(map(repr, value))
    if isinstance(value, dict) and len(value) <= _LONGEST:
        return {str(key): _freeze(item, depth + 1) for key, item in value.items()}
    if _is_helper(value):
        return {name: _freeze(item, depth + 1) for name, item in vars(value).items()}
    return type(value)


def _is_helper(value: Any) -> bool:
    """Tell whether an object may keep something of its own for a module: a counter, a schedule."""
    owner = type(value).__module__.partition(".")[0]
    plain = hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module))
    return plain and not callable(value) and owner != "torch" and owner not in sys.stdlib_module_names - {"__main__"}


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return bool(one.tolist() == other.tolist() if one.dtype.hasobject else one.tobytes() == other.tobytes())
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one, other))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)
