"""What torch.distributed.pipelining sends for a split between operators: what crosses each cut, and its gradient back.

Every stage hands its outputs to the next and gets their gradients, for each part of the batch once: how many parts
there are changes nothing. A person splits where a single tensor crosses.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

from nfold.core.graph import ModelGraph, Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Stages in a row, each on a rank of its own."""

    begins: tuple[int, ...]
    """First operator of each stage but the first, counted in the graph's order."""
    loads: tuple[float, ...]
    """Seconds of each stage."""


def crossing(graph: ModelGraph, begin: int) -> list[Tensor]:
    """Return what operators before a position make and others use. Inputs and targets are read where they are used."""
    before = {operator.name for operator in graph.operators[:begin]}
    return [tensor for tensor in graph.tensors if tensor.producer in before and not before.issuperset(tensor.consumers)]


def sent_bytes(graph: ModelGraph, begins: Sequence[int], batch_size: int) -> int:
    """Return the bytes of a step: each tensor that crosses, and its gradient."""
    crossed = (tensor for begin in begins for tensor in crossing(graph, begin))
    return round(sum(batch_size * each.bytes_per_sample * (1 + each.requires_grad) for each in crossed))


def most_even(graph: ModelGraph, seconds: Mapping[str, float], stages: int) -> Split:
    """Return the split whose slowest stage is fastest, of those with one tensor at each cut; of equals, fewest bytes.

    Raises:
        ValueError: the graph has too few such cuts.
    """
    row = _Row.of(graph, seconds)
    least_s = row.least_s(stages)
    if least_s == inf:
        raise ValueError(f"{len(row.ends) - 1} cuts with a single tensor are too few for {stages} stages")
    cuts = row.fewest_bytes(stages, least_s * (1 + 1e-9))
    return Split(begins=cuts[:-1], loads=tuple(row.load_s(*ends) for ends in pairwise((0, *cuts))))


@dataclass(frozen=True, slots=True)
class _Row:
    """Where operators in a row may be cut, and what a cut costs."""

    ends: tuple[int, ...]
    """Ascending; the last is the end of all."""
    sums_s: tuple[float, ...]
    """Seconds of all operators before each position."""
    sent: Mapping[int, int]
    """Bytes of a sample at each end."""

    @classmethod
    def of(cls, graph: ModelGraph, seconds: Mapping[str, float]) -> "_Row":
        ends = (*_single(graph), len(graph.operators))
        sums_s = (0.0, *accumulate(seconds[operator.name] for operator in graph.operators))
        return cls(ends, sums_s, {end: sent_bytes(graph, [end], 1) for end in ends})

    def load_s(self, begin: int, end: int) -> float:
        """Seconds of a stage."""
        return self.sums_s[end] - self.sums_s[begin]

    def least_s(self, stages: int) -> float:
        """Seconds of the slowest stage at best; infinite if there are too few cuts."""
        slowest_s = {0: 0.0}
        for _ in range(stages):
            slowest_s = {
                end: min(max(most_s, self.load_s(begin, end)) for begin, most_s in slowest_s.items() if begin < end)
                for end in self.ends
                if any(begin < end for begin in slowest_s)
            }
        return slowest_s.get(self.ends[-1], inf)

    def fewest_bytes(self, stages: int, limit_s: float) -> tuple[int, ...]:
        """Return the ends of stages of which none takes longer than that."""
        best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
        for _ in range(stages):
            following: dict[int, tuple[int, tuple[int, ...]]] = {}
            for begin, (sent, cuts) in best.items():
                for end in (each for each in self.ends if each > begin and self.load_s(begin, each) <= limit_s):
                    entry = (sent + self.sent[end], (*cuts, end))
                    following[end] = min(entry, following.get(end, entry))
            best = following
        return best[self.ends[-1]][1]


def _single(graph: ModelGraph) -> Iterator[int]:
    """Positions that one tensor crosses; the loss is computed where its model's outputs are."""
    return (begin for begin in range(1, len(graph.operators) - 1) if len(crossing(graph, begin)) == 1)


def begin_of(graph: ModelGraph, block: int) -> int:
    """Return the position of the first operator of a numbered module."""
    return next(index for index, each in enumerate(graph.operators) if each.name.split(".")[0] == str(block))
