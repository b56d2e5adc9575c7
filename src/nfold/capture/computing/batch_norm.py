"""Batch-norm statistics chunk by chunk: taken out of each forward, and folded in later, in the order of the chunks.

A rank that computes chunk 3 before chunk 1 exists elsewhere must not update running statistics yet. So a forward in
training mode writes to scratch buffers with momentum 1, which leaves exactly this call's mean and unbiased variance.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Call = tuple[torch.Tensor, torch.Tensor]
"""Mean and unbiased variance of one call, one number per channel."""


def running_statistics(norm: Any) -> torch.Tensor:
    """Return a batch norm's running means, variances and number of calls, of shape [2 channels + 1], in float64."""
    count = norm.num_batches_tracked
    told = torch.zeros(1, device=norm.running_mean.device) if count is None else count.reshape(1)
    return torch.cat([each.detach().double() for each in (norm.running_mean, norm.running_var, told)])


def set_running_statistics(norm: Any, values: torch.Tensor) -> None:
    """Give a batch norm what `running_statistics` returned of the same one elsewhere."""
    mean, variance, count = values.split_with_sizes([norm.running_mean.numel(), norm.running_var.numel(), 1])
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.copy_(count[0])


@dataclass(slots=True)
class _True:
    """What a module holds while a call writes elsewhere."""

    buffers: dict[str, Any]
    momentum: float | None


class StatisticsRecorder:
    """Takes the statistics of batch-norm modules, by name. Works for the module itself and for segments of it.

    A copy of the model brings the hooks along, and is left alone: what is tried on it is no chunk.
    """

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
        """Return the calls of each batch norm since the last time, by module and in order of call."""
        calls, self._calls = dict(self._calls), defaultdict(list)
        return calls

    def folder(self, calls: Sequence[str]) -> "RowFolder":
        """Return a folder of rows of these modules' calls, in this order."""
        return RowFolder(self._modules, calls)

    def close(self) -> None:
        """Remove the hooks from the modules."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _before(self, name: str) -> Any:
        own = id(self._modules[name])  # a copy's hooks would mean the copy by a module

        def hook(module: Any, _args: Any) -> None:
            if id(module) != own or not module.training or module.running_mean is None:
                return
            self._held[name] = _True(dict(module._buffers), module.momentum)
            module._buffers["running_mean"] = torch.zeros_like(module.running_mean)
            module._buffers["running_var"] = torch.zeros_like(module.running_var)
            # One that synchronises insists on counting.
            counts = isinstance(module, nn.SyncBatchNorm) and module.num_batches_tracked is not None
            module._buffers["num_batches_tracked"] = torch.zeros_like(module.num_batches_tracked) if counts else None
            module.momentum = 1.0

        return hook

    def _after(self, name: str) -> Any:
        own = id(self._modules[name])

        def hook(module: Any, _args: Any, _result: Any) -> None:
            held = self._held.pop(name, None) if id(module) == own else None
            if held is None:
                return
            # Also a call that was broken off: recomputation stops in the middle once it has what it needs.
            self._calls[name].append((module._buffers["running_mean"], module._buffers["running_var"]))
            module._buffers.update(held.buffers)
            module.momentum = held.momentum

        return hook


@dataclass(frozen=True, slots=True)
class _Round:
    """The calls of norms that have been called equally often before in the same row."""

    num_norms: int
    """The first so many."""
    places: torch.Tensor | None
    """Of their statistics in the row; None: where the row begins, in the same order."""


class RowFolder:
    """Folds rows into running statistics: the means and variances of several calls of batch norms, in their order.

    All statistics are joined, updated row by row, and handed back: one by one, a net of many norms in many chunks would
    spend tens of milliseconds of each step on calls of tiny operations.
    """

    def __init__(self, norms: Mapping[str, Any], calls: Sequence[str]) -> None:
        often = Counter(calls)
        names = sorted(often, key=lambda name: -often[name])  # so that each round takes a head of them
        self._norms = [norms[name] for name in names]
        self._calls = [often[name] for name in names]
        widths = {name: 2 * norms[name].running_mean.numel() for name in names}
        self._borders = [0, *itertools.accumulate(widths.values())]
        self._rounds = _rounds(widths, calls)

    def fold(self, rows: Sequence[torch.Tensor]) -> None:
        """Update the running statistics as torch would have during the calls."""
        if not rows or not self._norms:
            return
        running = [each for norm in self._norms for each in (norm.running_mean, norm.running_var)]
        joined = torch.cat(running)
        # Only a norm without momentum asks how often it was called; to read that waits for a device.
        seen = [0 if norm.momentum is not None else int(norm.num_batches_tracked) for norm in self._norms]
        places = [None if each.places is None else each.places.to(joined.device) for each in self._rounds]
        for row in rows:
            self._fold_row(joined, row.to(joined.device), places, seen)
        torch._foreach_copy_(running, joined.split_with_sizes([each.numel() for each in running]))
        counted = zip([norm.num_batches_tracked for norm in self._norms], self._calls, strict=True)
        tracked = [(count, len(rows) * calls) for count, calls in counted if count is not None]
        if tracked:
            torch._foreach_add_([count for count, _ in tracked], [more for _, more in tracked])

    def _fold_row(
        self, joined: torch.Tensor, row: torch.Tensor, places: Sequence[torch.Tensor | None], seen: list[int]
    ) -> None:
        for each, taken in zip(self._rounds, places, strict=True):
            values = row if taken is None else row[taken]
            for norm in range(each.num_norms):
                seen[norm] += 1
            for start, stop, momentum in self._stretches(each.num_norms, seen):
                joined[start:stop].mul_(1.0 - momentum).add_(values[start:stop], alpha=momentum)

    def _stretches(self, num_norms: int, seen: list[int]) -> Iterator[tuple[int, int, float]]:
        """Yield elements [start, stop) of norms of one momentum, which is the same for all in most nets."""
        momenta = [norm.momentum for norm in self._norms[:num_norms]]
        each = (1.0 / count if momentum is None else momentum for momentum, count in zip(momenta, seen, strict=False))
        end = 0
        for momentum, alike in itertools.groupby(each):
            begin, end = end, end + sum(1 for _ in alike)
            yield self._borders[begin], self._borders[end], momentum


def _rounds(widths: Mapping[str, int], calls: Sequence[str]) -> list[_Round]:
    """Return the rounds of a row of these calls.

    Args:
        widths: numbers that each norm has in a call, means and variances; those that are called most often first.
        calls: norms in the order of their statistics in the row.
    """
    places: list[dict[str, range]] = []
    before, start = Counter[str](), 0
    for name in calls:
        if before[name] == len(places):
            places.append({})
        places[before[name]][name] = range(start, start + widths[name])
        before[name] += 1
        start += widths[name]
    return [_round(widths, found) for found in places]


def _round(widths: Mapping[str, int], places: Mapping[str, range]) -> _Round:
    taken = [place for name in widths if name in places for place in places[name]]
    return _Round(len(places), None if taken == list(range(len(taken))) else torch.tensor(taken))
