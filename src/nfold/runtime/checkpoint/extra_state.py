"""What modules say of themselves beside their tensors (`get_extra_state`), as a checkpoint keeps it.

Random numbers need no such state: every draw of a model, an optimizer or a data set is seeded by its step, chunk or
sample, so a run that goes on draws what it would have drawn.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from nfold.errors import ProgramError

Extras = dict[str, Any]
"""By name in the state dict: whatever JSON gives back as it was."""


class ExtraStates:
    """Finds the modules whose extra state a rank has changed: where a model is cut, no other rank has it."""

    def __init__(self, model: nn.Module) -> None:
        """Look at a model that is ready to train.

        Raises:
            ProgramError: a module has an extra state that no checkpoint can hold.
        """
        self._model = model
        self._before = {name: _frozen(name, value) for name, value in _found(model.state_dict(keep_vars=True)).items()}

    @property
    def are_any(self) -> bool:
        """Whether a module has an extra state."""
        return bool(self._before)

    def changed(self) -> dict[str, Any]:
        """Return the extra states that differ from those at the beginning, by name.

        Raises:
            ProgramError: a module has an extra state that no checkpoint can hold.
        """
        now = _found(self._model.state_dict(keep_vars=True))
        return {name: value for name, value in now.items() if not _same(self._before.get(name), _frozen(name, value))}


def plain_extras(state: Mapping[str, Any]) -> Extras:
    """Return the entries of a state dict that are no tensors.

    Raises:
        ProgramError: one is something that no checkpoint can hold.
    """
    extras = {name: value for name, value in state.items() if not isinstance(value, torch.Tensor)}
    for name, value in extras.items():
        _frozen(name, value)
    return extras


def _found(state: Mapping[str, Any]) -> dict[str, Any]:
    suffix = torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX
    return {name: value for name, value in state.items() if name.rpartition(".")[2] == suffix}


def _frozen(name: str, value: Any) -> Any:
    """Copy a value: a tensor, or JSON."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    try:
        text = json.dumps(value, allow_nan=False)
        if _is_as_json(value):
            return text
    except (TypeError, ValueError):
        pass
    raise ProgramError(
        f"get_extra_state() of {name.rpartition('.')[0] or 'the model'} returns {_told(value)}, which a checkpoint "
        "cannot hold. Return a tensor, or numbers, texts, lists and dicts with texts as keys, with no tensors inside."
    )


def _is_as_json(value: Any) -> bool:
    """Whether JSON gives it back as it was: no tuples, no keys that are numbers."""
    if type(value) is dict:
        return all(type(key) is str and _is_as_json(item) for key, item in value.items())
    if type(value) is list:
        return all(map(_is_as_json, value))
    return value is None or type(value) in (bool, int, float, str)


def _told(value: Any) -> str:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    kinds = sorted({type(item).__name__ for item in inside if not _is_as_json(item)})
    return f"a {type(value).__name__}" + (f" with {', '.join(kinds)}" if kinds else "")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one, other))
    return type(one) is type(other) and not isinstance(one, torch.Tensor) and bool(one == other)
