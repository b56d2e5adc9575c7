"""What forward computes and leaves in an attribute: an auxiliary loss, features, a norm to look at."""

from typing import Any

import torch
from torch import nn

from nfold.capture.program.program_graph import dotted


def is_result(model: nn.Module, path: str, name: str, *, carried: bool) -> bool:
    """Whether forward has left what it computed in a plain attribute: an auxiliary loss, features, a norm to look at.

    Args:
        model: after some passes.
        path: of the module.
        name: of the attribute.
        carried: whether it was seen to depend on passes before the last.
    """
    kept = _attribute(model, path, name)
    each = list(kept.values()) if isinstance(kept, dict) else kept if isinstance(kept, list) else [kept]
    if not carried and all(isinstance(one, (torch.Tensor, float)) for one in each):
        return bool(each)
    return bool(each) and all(isinstance(one, torch.Tensor) and one.requires_grad and not one.is_leaf for one in each)


def _attribute(model: nn.Module, path: str, name: str) -> Any:
    return getattr(model.get_submodule(path), "__dict__", {}).get(name)


def let_go(model: nn.Module, path: str, name: str) -> str:
    """Say how a forward pass lets go of what an attribute keeps."""
    kept = _attribute(model, path, name)
    return f"{dotted((path, name))}.clear()" if isinstance(kept, (dict, list)) else f"{dotted((path, name))} = None"
