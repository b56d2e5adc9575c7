"""A shard's tensors: values, the user's optimizer over them, and the running statistics that the first shard keeps."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import nn

from nfold.capture.computing.batch_norm import RowFolder
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.schedule import StatisticsGroup
from nfold.core.tasks import Elements
from nfold.planning.asynchronous.staleness import Apply
from nfold.runtime.asynchronous.shards import Slice
from nfold.runtime.parameters.buffers import Buffers, Piece, pieces
from nfold.runtime.parameters.optimizer_updates import UpdateKey, Updater
from nfold.runtime.step.chunk_statistics import calls_of


class Store:
    """The values of one shard, and the optimizer that updates them."""

    def __init__(
        self,
        parts: tuple[Slice, ...],
        buffers: Buffers,
        updaters: Mapping[UpdateKey, Updater],
        norms: "Norms | None" = None,
        pieces: Sequence[tuple[Piece, torch.Tensor]] = (),
    ) -> None:
        """Args:
        parts: elements of buckets that it serves.
        buffers: where they are.
        updaters: apply gradients.
        norms: the running statistics, on the shard that keeps them.
        pieces: the parameters in these elements, or parts of them, and their values.
        """
        self.pieces = pieces
        self._values = [buffers.flat(part.of("value")) for part in parts]
        self._gradients = [buffers.flat(part.of("gradient")) for part in parts]
        self.updaters, self.norms = updaters, norms

    def apply(self, command: Apply, gradients: Mapping[int, Sequence[torch.Tensor]]) -> None:
        """Let the optimizer take one step.

        Args:
            command: which workers' gradients count, with what weight.
            gradients: by worker, one tensor for each part.
        """
        for index, into in enumerate(self._gradients):
            first, *others = command.parts
            into.copy_(gradients[first.worker][index])
            if first.weight != 1.0:
                into.mul_(first.weight)
            for part in others:
                into.add_(gradients[part.worker][index].to(into.device), alpha=part.weight)
        for updater in self.updaters.values():
            updater.step(command.rate)

    def advance(self, steps: int) -> None:
        """Set the learning rate's schedule to where it is after so many whole steps."""
        for updater in self.updaters.values():
            updater.advance(steps)

    def read(self, into: Sequence[torch.Tensor]) -> None:
        """Copy the current values."""
        for target, value in zip(into, self._values, strict=True):
            target.copy_(value)


def values_of(
    reductions: Iterable[Reduction], rank: int, buffers: Buffers, parameters: Mapping[str, nn.Parameter]
) -> list[tuple[Piece, torch.Tensor]]:
    """Return the parameters that a rank serves, or parts of them, and their values: tensors of shape [stop - start]."""
    sizes = {name: parameter.numel() for name, parameter in parameters.items()}
    return [
        (piece, buffers.flat(Elements("value", each.name, piece.offset, piece.offset + piece.stop - piece.start)))
        for each in reductions
        for share in each.shares
        if share.rank == rank
        for piece in pieces(each, sizes, share.start, share.stop)
    ]


class Norms:
    """The running statistics of batch norms, kept apart from the module, with which a worker of the rank computes."""

    def __init__(self, model: nn.Module, graph: ModelGraph, groups: tuple[StatisticsGroup, ...]) -> None:
        self._groups = groups
        self._model = model
        calls = {group.name: calls_of(graph, group) for group in groups}
        names = dict.fromkeys(module for each in calls.values() for module in each)
        self._own: dict[str, nn.Module] = {name: copy.deepcopy(model.get_submodule(name)) for name in names}
        self._folders = [RowFolder(self._own, calls[group.name]) for group in groups]

    def fold(self, rows: Sequence[torch.Tensor]) -> None:
        """Fold the batch statistics of a ticket's chunks into the running ones, chunk by chunk.

        Args:
            rows: for each group, the rows of the ticket's chunks one after another.
        """
        for group, folder, flat in zip(self._groups, self._folders, rows, strict=True):
            folder.fold(flat.view(-1, group.num_elements).unbind())

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the statistics by their names in the model."""
        for path, norm in self._own.items():
            for name, buffer in norm.named_buffers(recurse=False):
                yield ".".join(filter(None, (path, name))), buffer

    def give_back(self) -> None:
        """Copy the statistics to the module, while nothing computes with it."""
        for name, norm in self._own.items():
            for mine, its in zip(norm.buffers(), self._model.get_submodule(name).buffers(), strict=True):
                its.copy_(mine)
