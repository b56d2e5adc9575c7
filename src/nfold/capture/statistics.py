"""Batch-norm statistics chunk by chunk: taken out of each forward, and folded in later, in the order of the chunks.

A rank that computes chunk 3 before chunk 1 exists elsewhere must not update running statistics yet. So a forward in
training mode writes to scratch buffers with momentum 1, which leaves exactly this call's mean and unbiased variance.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Call = tuple[torch.Tensor, torch.Tensor]
"""Mean and unbiased variance of one call, one number per channel."""


@dataclass(slots=True)
class _True:
    """What a module holds while a call writes elsewhere."""

    buffers: dict[str, Any]
    momentum: float | None


class StatisticsRecorder:
    """Takes the statistics of batch-norm modules, by name. Works for the module itself and for segments of it."""

    def __init__(self, model: nn.Module, modules: tuple[str, ...]) -> None:
        self._modules: dict[str, Any] = {name: model.get_submodule(name) for name in modules}
        self._calls: dict[str, list[Call]] = defaultdict(list)
        self._held: dict[str, _True] = {}
        self._hooks: list[Any] = []
        for name, module in self._modules.items():
            # First before and last after the user's own hooks, which then see what they would see without nfold.
            self._hooks.append(module.register_forward_pre_hook(self._before(name)))
            self._hooks.append(module.register_forward_hook(self._after(name), always_call=True))

    def take(self) -> dict[str, list[Call]]:
        """Return the calls of each module since the last time, in order of call."""
        calls, self._calls = dict(self._calls), defaultdict(list)
        return calls

    def fold(self, module: str, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Update a module's running statistics by one call, as torch would have during it."""
        fold(self._modules[module], mean, variance)

    def close(self) -> None:
        """Leave the modules as they were."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _before(self, name: str) -> Any:
        def hook(module: Any, _args: Any) -> None:
            if not module.training or module.running_mean is None:
                return
            self._held[name] = _True(dict(module._buffers), module.momentum)
            module._buffers["running_mean"] = torch.zeros_like(module.running_mean)
            module._buffers["running_var"] = torch.zeros_like(module.running_var)
            module._buffers["num_batches_tracked"] = None
            module.momentum = 1.0

        return hook

    def _after(self, name: str) -> Any:
        def hook(module: Any, _args: Any, _result: Any) -> None:
            held = self._held.pop(name, None)
            if held is None:
                return
            # Also a call that was broken off: recomputation stops in the middle once it has what it needs.
            self._calls[name].append((module._buffers["running_mean"], module._buffers["running_var"]))
            module._buffers.update(held.buffers)
            module.momentum = held.momentum

        return hook


def fold(norm: Any, mean: torch.Tensor, variance: torch.Tensor) -> None:
    """Update the running statistics of a batch norm by one call."""
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    momentum = norm.momentum if norm.momentum is not None else 1.0 / float(norm.num_batches_tracked)
    for running, value in ((norm.running_mean, mean), (norm.running_var, variance)):
        running.mul_(1.0 - momentum).add_(value, alpha=momentum)
