"""Calls a model with the inputs of a batch: the one place that knows how a tuple or dict of them is handed over."""

import inspect
from typing import Any

from torch import nn

_KEYWORDS = "nfold_keywords"
"""Attribute of a model whose program says how it is called."""


def call(model: nn.Module, inputs: Any) -> Any:
    """Return `model(inputs)`, or `model(*inputs)` or `model(**inputs)` where it takes them so."""
    args, kwargs = arguments(model, inputs)
    return model(*args, **kwargs)


def arguments(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments with which a model is called."""
    if by_keyword(model, inputs):
        return (), inputs
    return (tuple(inputs), {}) if by_position(model, inputs) else ((inputs,), {})


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the module that torch.compile was given: its own modules can be looked at one by one."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def told_keywords(model: nn.Module, keywords: bool | None) -> None:
    """Remember how the program says that the model is called; None: its forward tells."""
    if keywords is not None:
        setattr(model, _KEYWORDS, keywords)


def by_keyword(model: nn.Module, inputs: Any) -> bool:
    """Return whether inputs are a dict that a model takes by keyword.

    Unless the program says so, they are where forward takes more than one argument, and the dict has those that it
    needs and no other. A forward of one argument takes the dict itself.
    """
    if not isinstance(inputs, dict) or not all(isinstance(key, str) for key in inputs):
        return False
    told: bool | None = getattr(model, _KEYWORDS, None)
    return _names_all(model, inputs) if told is None else told


def by_position(model: nn.Module, inputs: Any) -> bool:
    """Return whether inputs are a tuple or list that a model takes one by one: it needs more than one, and gets it."""
    if not isinstance(inputs, (tuple, list)):
        return False
    try:
        signature = inspect.signature(model.forward)
        signature.bind(*inputs)
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is each.empty for each in signature.parameters.values()) > 1


def _names_all(model: nn.Module, inputs: dict[str, Any]) -> bool:
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return False
    parameters = signature.parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    if inspect.Parameter.VAR_POSITIONAL in kinds or (len(parameters) < 2 and not takes_any):
        return False
    named = [each for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    if named and not any(each.name in inputs for each in named):
        return False  # forward(self, batch, **options)
    try:
        signature.bind(**inputs)
    except TypeError:
        return False
    return True
