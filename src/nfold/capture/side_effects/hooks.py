"""Finds the user's hooks on modules: a tracer runs those of forward on stand-ins, and those of backward not at all."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as everywhere

_OWN = ("torch.", "nfold.")
"""Their hooks compute with a module's tensors alone, or only watch: weight norm, pruning."""


def hooked_modules(model: nn.Module, *, backward: bool = False) -> tuple[str, ...]:
    """Return the paths of modules with hooks; the model itself, as an empty path, if every module has one.

    Args:
        model: the user's.
        backward: count those hooks only that look at gradients.
    """
    forward = (everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks)
    if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks or (any(forward) and not backward):
        return ("",)
    return tuple(path for path, module in model.named_modules() if hooks_of(module, backward=backward))


def hooks_of(module: nn.Module, *, backward: bool = False) -> list[Callable[..., Any]]:
    """Return the user's hooks on calls of a module and on their gradients, or on these alone."""
    forward = (module._forward_pre_hooks, module._forward_hooks)
    kinds = (*(() if backward else forward), module._backward_pre_hooks, module._backward_hooks)
    return [hook for hooks in kinds for hook in hooks.values() if not _origin(hook).startswith(_OWN)]


def _origin(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__module__", None) or ""
