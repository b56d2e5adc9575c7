"""What each cell of a placement waits for: the cells that made its inputs, and backward those that used its outputs.

Cells that change state of one module wait for each other in the program's order, though no tensor goes between them.
"""

from collections import defaultdict
from collections.abc import Mapping

from nfold.core.graph import ModelGraph
from nfold.core.schedule import Segment
from nfold.planning.scheduling.order import Cell
from nfold.planning.scheduling.segments import RankSegments


class CellDependencies:
    """All cells of a step with the tensors between them.

    Attributes:
        made: for each tensor and chunk the forward cell that makes it.
        takers: for each tensor and chunk the forward cells that take it from another segment, by rank.
    """

    def __init__(self, graph: ModelGraph, cells: tuple[RankSegments, ...]) -> None:
        self._cells = cells
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.made: dict[tuple[str, int], Cell] = {}
        self.takers: dict[tuple[str, int], list[Cell]] = defaultdict(list)
        for forward in self._forwards():
            segment = self.segment(forward)
            for name in segment.outputs:
                self.made[name, forward.chunk] = forward
            for name in segment.inputs:
                if self.tensors[name].producer:
                    self.takers[name, forward.chunk].append(forward)
        self._earlier = self._calls_before({operator.name: operator.state for operator in graph.operators})

    def after(self) -> dict[Cell, frozenset[Cell]]:
        """Map each cell to the cells, of any rank, that must end before it begins. O(cells x inputs)."""
        after: dict[Cell, frozenset[Cell]] = {}
        for forward in self._forwards():
            after[forward] = self.makers(forward) | self._earlier[forward]
            if self.segment(forward).backward:
                backward = Cell(forward.rank, True, forward.chunk, forward.segment)
                after[backward] = frozenset({forward, *self.users(backward)})
        return after

    def makers(self, forward: Cell) -> frozenset[Cell]:
        """Return the forward cells, of any rank, whose outputs a forward cell takes as inputs."""
        names = (name for name in self.segment(forward).inputs if self.tensors[name].producer)
        return frozenset(self.made[name, forward.chunk] for name in names)

    def users(self, backward: Cell) -> set[Cell]:
        """Return the backward cells that make the activation gradients which a backward cell starts from."""
        return {
            Cell(taker.rank, True, taker.chunk, taker.segment)
            for name in self.segment(backward).outputs
            if self.flows_back(name)
            for taker in self.takers.get((name, backward.chunk), ())
        }

    def remote_takers(self, name: str, chunk: int) -> dict[int, list[Cell]]:
        """Map each rank but the maker's to its forward cells that take this tensor of this chunk."""
        remote: dict[int, list[Cell]] = {}
        for taker in self.takers.get((name, chunk), ()):
            if taker.rank != self.made[name, chunk].rank:
                remote.setdefault(taker.rank, []).append(taker)
        return remote

    def flows_back(self, name: str) -> bool:
        """Whether an activation has a gradient; the program's own inputs have none."""
        tensor = self.tensors[name]
        return tensor.requires_grad and bool(tensor.producer)

    def segment(self, cell: Cell) -> Segment:
        """Return the operators that a cell computes, with their inputs and outputs."""
        return self._cells[cell.rank].segments[cell.segment]

    def _calls_before(self, state: Mapping[str, tuple[str, ...]]) -> dict[Cell, frozenset[Cell]]:
        """Map forward cells to those of their chunk that change the same modules' state just before them.

        Args:
            state: of each operator, the modules; all operators of a module are on one rank.
        """
        before: dict[Cell, frozenset[Cell]] = {}
        latest: dict[tuple[str, int], Cell] = {}
        for forward in self._forwards():
            modules = {module for operator in self.segment(forward).operators for module in state[operator]}
            calls = [(module, forward.chunk) for module in sorted(modules)]
            before[forward] = frozenset(latest[call] for call in calls if call in latest)
            latest |= dict.fromkeys(calls, forward)
        return before

    def _forwards(self) -> list[Cell]:
        return [
            Cell(rank, False, chunk, index)
            for rank, cells in enumerate(self._cells)
            for chunk, indices in cells.by_chunk.items()
            for index in indices
        ]
