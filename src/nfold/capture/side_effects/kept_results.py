"""What forward computes and leaves in an attribute: an auxiliary loss, features, a norm to look at."""

from typing import Any

import torch
from torch import nn

from nfold.capture.program.program_graph import dotted


def only_looked_at(model: nn.Module, path: str, name: str) -> bool:
    """Whether an attribute holds detached figures of the last pass alone, which is known not to follow earlier ones.

    Nothing learns from them, and a pass that reads them has written them before: whoever computes a chunk has its own.
    """
    return all(map(_is_figure, _held(model, path, name)))


def is_result(model: nn.Module, path: str, name: str, *, carried: bool) -> bool:
    """Whether forward has left what it computed in a plain attribute: an auxiliary loss, features, a norm to look at.

    Args:
        model: after some passes.
        path: of the module.
        name: of the attribute.
        carried: whether it was seen to depend on passes before the last.
    """
    each = _held(model, path, name)
    if not carried and all(isinstance(one, (torch.Tensor, float)) for one in each):
        return bool(each)
    return bool(each) and all(isinstance(one, torch.Tensor) and one.requires_grad and not one.is_leaf for one in each)


def _is_figure(value: Any) -> bool:
    """Whether a value is a number, a text, a shape, or a tensor that nothing is learnt from."""
    if isinstance(value, tuple):
        return all(map(_is_figure, value))
    return isinstance(value, (int, float, str)) or (isinstance(value, torch.Tensor) and not value.requires_grad)


def _held(model: nn.Module, path: str, name: str) -> list[Any]:
    kept = _attribute(model, path, name)
    return list(kept.values()) if isinstance(kept, dict) else kept if isinstance(kept, list) else [kept]


def _attribute(model: nn.Module, path: str, name: str) -> Any:
    return getattr(model.get_submodule(path), "__dict__", {}).get(name)


def let_go(model: nn.Module, path: str, name: str) -> str:
    """Say how a forward pass lets go of what an attribute keeps."""
    kept = _attribute(model, path, name)
    return f"{dotted((path, name))}.clear()" if isinstance(kept, (dict, list)) else f"{dotted((path, name))} = None"
