"""Batch statistics of one rank: taken chunk by chunk, kept in rows, folded into running statistics after the step."""

from collections import defaultdict

import torch

from nfold.capture.computing.batch_norm import Call, StatisticsRecorder
from nfold.core.graph import ModelGraph
from nfold.core.schedule import Segment, StatisticsGroup
from nfold.errors import ProgramError
from nfold.runtime.parameters.buffers import Buffers


class ChunkStatistics:
    """Batch norm statistics: for each group and chunk a row, [mean, variance] of each call after the other."""

    def __init__(
        self, graph: ModelGraph, groups: tuple[StatisticsGroup, ...], buffers: Buffers, recorder: StatisticsRecorder
    ) -> None:
        self._graph, self._groups, self._buffers, self._recorder = graph, groups, buffers, recorder
        self._channels = {statistic.module: statistic.num_channels for statistic in graph.statistics}
        self._folders = {group.name: recorder.folder(calls_of(graph, group)) for group in groups}

    def record(self, chunk: int, segment: Segment) -> None:
        """Write the statistics of the forward that has just ended to its chunk's rows.

        Raises:
            ProgramError: a batch norm was not called as often as when the program was tried.
        """
        calls, inside = self._recorder.take(), set(segment.operators)
        expected = [module for each in self._graph.operators if each.name in inside for module in each.statistics]
        for module, made in calls.items():
            if len(made) != expected.count(module):
                raise ProgramError(_called(module, len(made), expected.count(module)))
        for group in self._groups:
            if inside & set(group.operators):
                self._write_row(chunk, group, inside, calls)

    def check_backward(self) -> None:
        """Make sure that the backward that has just ended called no batch norm.

        Raises:
            ProgramError: it did: activation checkpointing computes a forward again, and would count the chunk twice.
        """
        for module, made in self._recorder.take().items():
            raise ProgramError(_called(module, 1 + len(made), 1))

    def _write_row(self, chunk: int, group: StatisticsGroup, inside: set[str], calls: dict[str, list[Call]]) -> None:
        """Lay the means and variances of this segment's calls where the group's row keeps them."""
        row, offset = self._buffers.flat(group.row(chunk)), 0
        taken: dict[str, int] = defaultdict(int)
        for operator in group.operators:
            for module in self._graph.operator(operator).statistics:
                width = 2 * self._channels[module]
                if operator in inside:
                    mean, variance = calls[module][taken[module]]
                    taken[module] += 1
                    row[offset : offset + width].copy_(torch.cat([mean, variance]))
                offset += width

    def fold(self, group: StatisticsGroup, sizes: tuple[int, ...]) -> None:
        """Update running means and variances chunk after chunk, as one device does. Empty chunks are left out."""
        rows = [self._buffers.flat(group.row(chunk)) for chunk, size in enumerate(sizes) if size]
        self._folders[group.name].fold(rows)


def calls_of(graph: ModelGraph, group: StatisticsGroup) -> list[str]:
    """Return the batch norms of a group's row, in the order of their calls."""
    return [module for operator in group.operators for module in graph.operator(operator).statistics]


def _called(module: str, made: int, expected: int) -> str:
    return (
        f"the batch norm {module} was called {made} times for one chunk, not {expected}. Recomputing it in backward "
        "(activation checkpointing) makes its running statistics depend on the workers. Leave it out of the "
        "checkpointed part, or use -n 1 --strategy single."
    )
