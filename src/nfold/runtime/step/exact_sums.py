"""Sums of gradients that come out the same however chunks are spread (`--exact`), on one rank.

Each chunk's gradient of a parameter becomes whole numbers as soon as autograd has it, and is forgotten. Adding whole
numbers has no order. What the optimizer is given lies in memory of its own, as on one device: kernels may compute other
last bits where a tensor begins or lies otherwise.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from nfold.core.placement import Reduction
from nfold.core.tasks import Elements
from nfold.errors import RunError
from nfold.runtime.parameters.buffers import Buffers, pieces
from nfold.runtime.parameters.fixed_point import Adder, TooLarge, write

_ALIGNED_BYTES = 64
_TIMES = 4
"""That autograd may give a parameter a gradient in one chunk's backward: computing again makes it more than one."""


@dataclass(frozen=True, slots=True)
class _Summed:
    """A parameter whose gradients this rank computes."""

    name: str
    parameter: nn.Parameter
    addends: Elements
    fraction_bits: int


class ExactSums:
    """Turns the gradients of chunks into whole numbers, and their sums into what the optimizer is given."""

    def __init__(
        self,
        reductions: tuple[Reduction, ...],
        rank: int,
        num_chunks: int,
        parameters: Mapping[str, nn.Parameter],
        buffers: Buffers,
    ) -> None:
        self._buffers, self._most = buffers, _TIMES * num_chunks
        self._summed: dict[str, list[_Summed]] = {}
        """By bucket."""
        self._hooks: list[Any] = []
        self._local: set[str] = set()
        self._times: Counter[str] = Counter()
        """That each parameter got a gradient in the step."""
        sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        for each in reductions:
            if each.fraction_bits is not None and rank in each.members:
                adder = Adder(each.fraction_bits, self._most)
                self._summed[each.name] = self._watch(each, each.fraction_bits, adder, parameters, sizes)
                if each.route == "local":
                    self._local.add(each.name)
        self._by_name = {each.name: each for bucket in self._summed.values() for each in bucket}

    def begin(self) -> None:
        """Forget the gradients of the step before."""
        self._times.clear()
        for summed in self._summed.values():
            for each in summed:
                each.parameter.grad = None

    def close(self) -> None:
        """Watch no more: a parameter's hooks keep it, and all that they hold, for ever."""
        for hook in self._hooks:
            hook.remove()

    def give(self, gradients: Elements | None) -> None:
        """Give parameters the sums of their gradients before they are updated.

        Args:
            gradients: of the bucket that is updated; None: of all buckets.
        """
        for name in self._summed if gradients is None else {gradients.name} & self._summed.keys():
            if name in self._local:
                self._give_local(name)
            else:
                for each in self._summed[name]:
                    self._give(each, self._buffers.flat(_gradients(each.addends)))

    def gradient(self, name: str, start: int, stop: int) -> torch.Tensor | None:
        """Return elements of what a parameter is given where nothing travels; None: it is given nothing."""
        if not self._times[name]:
            return None
        each = self._by_name[name]
        values = torch.empty(stop - start, dtype=each.parameter.dtype, device=each.parameter.device)
        write(self._buffers.flat(each.addends)[start:stop], each.fraction_bits, values)
        return values

    def _watch(
        self,
        reduction: Reduction,
        fraction_bits: int,
        adder: Adder,
        parameters: Mapping[str, nn.Parameter],
        sizes: Mapping[str, int],
    ) -> list[_Summed]:
        found = []
        for piece in pieces(reduction, sizes):
            parameter = parameters[piece.name]
            addends = Elements("addend", reduction.name, piece.offset, piece.offset + parameter.numel())
            found.append(_Summed(piece.name, parameter, addends, fraction_bits))
            watch: Any = parameter.register_post_accumulate_grad_hook
            self._hooks.append(watch(partial(self._take, piece.name, adder, self._buffers.flat(addends))))
        return found

    def _take(self, name: str, adder: Adder, sums: torch.Tensor, parameter: torch.Tensor) -> None:
        """Add what autograd has accumulated for a chunk, and forget it."""
        gradient = parameter.grad
        if gradient is None:
            return
        try:
            adder.add(sums, gradient.detach().reshape(-1))
        except TooLarge as error:
            raise RunError(
                f"a gradient of {name} is {error.value:g}, and --exact sums those between -{error.limit:g} and "
                f"{error.limit:g}: a million times what gradients were at the first weights. Look for what makes them "
                "so large, scale the loss, or train without --exact."
            ) from error
        self._times[name] += 1
        if self._times[name] > self._most:
            raise RunError(
                f"{name} got {self._times[name]} gradients in one step, and --exact has room for {self._most} in a "
                "sum. Leave out activation checkpointing, or --exact."
            )
        parameter.grad = None

    def _give_local(self, name: str) -> None:
        """Where nothing travels, a parameter without gradients has none, as on one device."""
        for each in self._summed[name]:
            if self._times[each.name]:
                dtype, device = each.parameter.dtype, each.parameter.device
                sums = self._buffers.flat(each.addends)
                values = torch.empty(sums.numel(), dtype=dtype, device=device)
                write(sums, each.fraction_bits, values)
                self._give(each, values)
            else:
                each.parameter.grad = None

    @staticmethod
    def _give(each: _Summed, values: torch.Tensor) -> None:
        """Lay a gradient in memory as the parameter lies, from its flat values."""
        gradient = torch.empty_like(each.parameter, requires_grad=False)
        each.parameter.grad = gradient.copy_(values.view(each.parameter.shape))


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that begins where new ones do: a copy, if it began elsewhere."""
    return tensor if tensor.data_ptr() % _ALIGNED_BYTES == 0 else tensor.clone()


def _gradients(addends: Elements) -> Elements:
    return Elements("gradient", addends.name, addends.start, addends.stop)
