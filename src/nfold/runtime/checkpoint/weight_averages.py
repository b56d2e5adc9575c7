"""Averages of the weights that one rank holds: torch's own AveragedModel over them, whatever part of a model they are.

How often weights were taken follows from the step alone, so a checkpoint holds nothing but the averages themselves.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from nfold.capture.side_effects.module_states import is_freed
from nfold.core.options.averages import Averages
from nfold.errors import ProgramError
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint, Offer, StatePart
from nfold.runtime.checkpoint.state_file import AVERAGE_PREFIX, MODEL_PREFIX
from nfold.runtime.parameters.weights import Weights

Pair = tuple[torch.Tensor, torch.Tensor]
"""A tensor of the model, and its average."""


class WeightAverages:
    """One rank's averages.

    Attributes:
        num_averaged: how often weights were taken; before the first time there is no average.
    """

    def __init__(
        self, settings: Averages, steps_per_epoch: int, weights: Weights, checkpoint: Checkpoint | None = None
    ) -> None:
        """Make room beside all weights that the rank holds.

        Args:
            settings: of the program.
            steps_per_epoch: of the run.
            weights: the rank's, those of others freed.
            checkpoint: where to go on.

        Raises:
            ProgramError: the checkpoint lacks an average.
        """
        self._settings, self._steps_per_epoch, self._weights = settings, steps_per_epoch, weights
        held = {name: each for name, each in weights.parameters.items() if not is_freed(each)}
        self._names = tuple(held)
        self._holder = _holder(held.values())
        self._buffer_names = tuple(self._buffers())
        self._take_buffers()
        self._model = _averaged(settings, self._holder)
        if checkpoint is not None:
            self.take(checkpoint)

    @property
    def num_averaged(self) -> int:
        """How many times the weights have been taken into the average."""
        return int(self._model.n_averaged)

    def update(self, steps: int) -> bool:
        """Take the weights after a step, the first is 1, into the average if that is due; return whether it was."""
        if not self._settings.is_due(steps, self._steps_per_epoch):
            return False
        self._take_buffers()
        self._model.update_parameters(self._holder)
        return True

    @torch.no_grad()
    def take(self, checkpoint: Checkpoint) -> None:
        """Take the averages of a checkpoint.

        Raises:
            ProgramError: it lacks one.
        """
        count = self._settings.count(checkpoint.step, self._steps_per_epoch)
        self._model.n_averaged.fill_(count)
        if not count:
            return
        averages = self._averages()
        for name, average in zip(self._names, averages, strict=False):
            place = self._weights.place(name)
            values = checkpoint.average(place.name, place.start, place.start + average.numel())
            if values is None:
                raise ProgramError(
                    f"the checkpoint of step {checkpoint.step} has no average of {place.name}. Begin a new run."
                )
            average.copy_(values.view(average.shape))
        for name, average in zip(self._buffer_names, averages[len(self._names) :], strict=True):
            values = checkpoint.average(name, 0, average.numel())
            if values is not None:  # else it is in no state dict
                average.copy_(values.view(average.shape))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the averages into the model for a block, and its weights back after it; one more tensor is in memory."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def instead(self, offer: Offer) -> Offer:
        """Return this rank's part of a file of averages, from its part of a file of the model."""
        return replace(offer, parts=self._of(offer.parts, ""), rest=self._of(offer.rest, ""))

    def beside(self, offer: Offer) -> Offer:
        """Return this rank's part of a checkpoint, with its averages once there are some."""
        if not self.num_averaged:
            return offer
        model = [part for part in offer.parts if part.name.startswith(MODEL_PREFIX)]
        return replace(
            offer,
            parts=[*offer.parts, *self._of(model, MODEL_PREFIX)],
            rest=[*offer.rest, *self._of(offer.rest, MODEL_PREFIX)],
        )

    def _of(self, parts: Iterable[StatePart], prefix: str) -> list[StatePart]:
        """Return the averages of parts whose names have a prefix; what is not averaged stays itself."""
        found = {id(own): average for own, average in self._pairs()}
        to = AVERAGE_PREFIX if prefix else ""
        return [
            replace(part, name=f"{to}{part.name.removeprefix(prefix)}", values=found.get(id(part.values), part.values))
            for part in parts
        ]

    def _pairs(self) -> list[Pair]:
        """The model's tensors as they are now, and their averages."""
        buffers = self._buffers()
        own = [
            *(self._weights.parameters[name] for name in self._names),
            *(buffers[name] for name in self._buffer_names),
        ]
        return list(zip(own, self._averages(), strict=True))

    def _averages(self) -> list[torch.Tensor]:
        module: nn.Module = self._model.module
        return [*list(module.parameters())[: len(self._names)], *module.buffers()]

    def _buffers(self) -> dict[str, torch.Tensor]:
        """The model's buffers by name: a forward may put another tensor in the place of one."""
        return {name: each for name, each in self._weights.model.named_buffers() if each.layout is torch.strided}

    def _take_buffers(self) -> None:
        now = self._buffers()
        for index, name in enumerate(self._buffer_names):
            self._holder.register_buffer(f"buffer{index}", now[name].contiguous())  # an expanded one has no room

    @torch.no_grad()
    def _swap(self) -> None:
        for own, average in self._pairs():
            if isinstance(own, nn.Parameter) or not torch.equal(own, average):  # an expanded constant: not written to
                kept = own.detach().clone()
                own.copy_(average)
                average.copy_(kept)


def _holder(parameters: Iterable[nn.Parameter]) -> nn.Module:
    """A module of some parameters, which stay where they are: AveragedModel wants a module, a rank has pieces of one.

    A server of its own has none, which AveragedModel cannot average: so one without elements is the last.
    """
    holder = nn.Module()
    for index, parameter in enumerate(parameters):
        holder.register_parameter(f"weight{index}", parameter)
    holder.register_parameter("none", nn.Parameter(torch.empty(0)))
    return holder


def _averaged(settings: Averages, holder: nn.Module) -> AveragedModel:
    ema = None if settings.decay is None else get_ema_multi_avg_fn(settings.decay)  # type: ignore[no-untyped-call]
    return AveragedModel(holder, multi_avg_fn=ema, use_buffers=settings.use_buffers)
