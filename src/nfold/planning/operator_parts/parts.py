"""Says into which parts operators are cut: their names, their channels, and what each takes of the operator's input.

    conv1            8 channels, in 2 parts      conv1[0/2] makes channels 0..3, conv1[1/2] makes 4..7
    relu1, pool1     follow                      relu1[0/2] takes conv1[0/2] alone
    conv2            2 groups, in 2 parts        conv2[0/2] takes pool1[0/2] alone
    fc               not cut                     takes pool2[0/2] and pool2[1/2], and joins them for itself

Nothing is joined before somebody needs it whole, so each part is sent once to each rank that uses it, and no rank in
between sees it. Where a grouped convolution's input is not in parts, an operator in front of it hands out the channels.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nfold.core.graph import Channels, ModelGraph, Operator
from nfold.errors import PlanError


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorPart:
    """One of several operators that take the place of one, each for some of its output channels."""

    name: str
    start: int
    stop: int
    """Channels [start, stop) of the operator's output."""
    output: str
    inputs: tuple[str, ...]
    """Tensors that take the place of the operator's input."""
    taken: tuple[int, int] | None = None
    """Which channels of those, joined, it takes; None: all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """Which channels of an operator's input each of its parts gets."""

    name: str
    input: str
    outputs: tuple[str, ...]
    sizes: tuple[int, ...]
    """Channels of each output."""


@dataclass(slots=True)
class Parts:
    """All parts of the operators of a graph."""

    of: dict[str, tuple[OperatorPart, ...]] = field(default_factory=dict)
    """By operator; those that are not cut are left out."""
    feeds: dict[str, Feed] = field(default_factory=dict)
    """By the operator that is fed."""
    makers: dict[str, tuple[OperatorPart, ...]] = field(default_factory=dict)
    """By tensor: the parts whose outputs take its place, in the order of its channels."""

    def expand(self, tensors: tuple[str, ...]) -> tuple[str, ...]:
        """Return tensor names in which those that are in pieces are replaced by their pieces."""
        return tuple(piece for name in tensors for piece in self._pieces(name))

    def _pieces(self, tensor: str) -> tuple[str, ...]:
        return tuple(part.output for part in self.makers[tensor]) if tensor in self.makers else (tensor,)


def cut_into_parts(graph: ModelGraph, splits: Mapping[str, int]) -> Parts:
    """Return the parts of the operators that are to be cut and of those that follow. O(operators x parts).

    Args:
        graph: the whole operators.
        splits: into how many parts each operator is cut.

    Raises:
        PlanError: one of them cannot be cut, or not into so many.
    """
    _check(graph, splits)
    parts, makers = Parts(), {name: operator for operator in graph.operators for name in operator.outputs}
    for operator in graph.operators:
        ranges = _ranges(operator, splits, parts)
        if ranges:
            _cut(operator, ranges, parts, makers)
    return parts


def why_whole(graph: ModelGraph, operator: Operator) -> str:
    """Say why an operator cannot be cut into parts; empty if it can."""
    if operator.channels is None:
        return operator.whole or f"{operator.kind} is neither a convolution nor a linear layer"
    if operator.channels.follows:
        return f"{operator.kind} has no weights: it is cut when the operator before it is"
    if graph.update_scope != "element":
        return "the optimizer must see whole parameters, so none of their rows may lie elsewhere"
    return ""


def ordered(graph: ModelGraph, parts: Parts) -> Iterator[tuple[str, int]]:
    """Yield (operator, part), part -1 for what is whole: a topological order in which equal parts come together.

    conv1[0] relu1[0] conv1[1] relu1[1], and not conv1[0] conv1[1] relu1[0] relu1[1]: a rank's operators shall lie
    next to each other, because each run of them is a segment of its own.
    """
    run = _Run()
    for operator in graph.operators:
        mine = parts.of.get(operator.name)
        if mine is None:
            yield from run.end()
            yield operator.name, -1
        elif operator.name in parts.feeds or not run.takes(mine):
            yield from run.end()
            run.begin(operator.name, mine)
        else:
            run.add(operator.name, mine)
    yield from run.end()


class _Run:
    """Operators in equally many parts, of which no part needs another one of the run with another number."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        self._count = 0

    def begin(self, name: str, mine: tuple[OperatorPart, ...]) -> None:
        self._count = len(mine)
        self.add(name, mine)

    def takes(self, mine: tuple[OperatorPart, ...]) -> bool:
        if not self._names or len(mine) != self._count:
            return False
        return all(
            self._number.get(tensor, index) == index for index, part in enumerate(mine) for tensor in part.inputs
        )

    def add(self, name: str, mine: tuple[OperatorPart, ...]) -> None:
        self._names.append(name)
        self._number.update({part.output: index for index, part in enumerate(mine)})

    def end(self) -> Iterator[tuple[str, int]]:
        yield from ((name, index) for index in range(self._count) for name in self._names)
        self._names, self._number, self._count = [], {}, 0


def _check(graph: ModelGraph, splits: Mapping[str, int]) -> None:
    operators = {operator.name: operator for operator in graph.operators}
    for name, count in splits.items():
        if name not in operators:
            raise PlanError(f"{name} cannot be cut into {count} parts: the model has no such operator")
        reason = why_whole(graph, operators[name])
        channels = operators[name].channels
        if reason or channels is None:
            raise PlanError(f"{name} cannot be cut into {count} parts: {reason}")
        if not 2 <= count <= channels.units:
            what = "groups" if channels.groups > 1 else "channels"
            raise PlanError(f"{name} cannot be cut into {count} parts: it has {channels.units} {what}")


def _ranges(operator: Operator, splits: Mapping[str, int], parts: Parts) -> list[tuple[int, int]]:
    channels = operator.channels
    if channels is None:
        return []
    if operator.name in splits:
        return _equal(channels, splits[operator.name])
    if channels.follows:
        return [(part.start, part.stop) for part in parts.makers.get(operator.inputs[0], ())]
    return []


def _equal(channels: Channels, number: int) -> list[tuple[int, int]]:
    """Cut channels into equal runs of whole units, larger ones first."""
    unit = channels.count // channels.units
    size, extra = divmod(channels.units, number)
    borders = [unit * (index * size + min(index, extra)) for index in range(number + 1)]
    return list(itertools.pairwise(borders))


def _cut(operator: Operator, ranges: list[tuple[int, int]], parts: Parts, makers: Mapping[str, Operator]) -> None:
    (output,), channels, count = operator.outputs, operator.channels, len(ranges)
    assert channels is not None
    needs = _needs(channels, ranges)
    if needs and operator.inputs[0] in makers and not _lies_in_pieces(operator, parts, makers):
        parts.feeds[operator.name] = Feed(
            name=f"{operator.name}[input]",
            input=operator.inputs[0],
            outputs=tuple(f"{operator.name}[{index}/{count} input]" for index in range(count)),
            sizes=tuple(stop - start for start, stop in needs),
        )
    parts.of[operator.name] = tuple(_part(operator, index, ranges, needs, parts) for index in range(count))
    parts.makers[output] = parts.of[operator.name]


def _part(
    operator: Operator, index: int, ranges: list[tuple[int, int]], needs: list[tuple[int, int]], parts: Parts
) -> OperatorPart:
    (start, stop), suffix = ranges[index], f"[{index}/{len(ranges)}]"
    inputs, taken = _sources(operator, index, needs, parts)
    return OperatorPart(
        name=operator.name + suffix,
        start=start,
        stop=stop,
        output=operator.outputs[0] + suffix,
        inputs=inputs,
        taken=taken,
    )


def _needs(channels: Channels, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the input channels that each part needs; empty if all need all, or exactly what they follow."""
    needs = [channels.taken(start, stop) for start, stop in ranges]
    return [need for need in needs if need is not None]


def _lies_in_pieces(operator: Operator, parts: Parts, makers: Mapping[str, Operator]) -> bool:
    """Whether the channels of an operator's input are those of the pieces that it comes in."""
    (name,) = operator.inputs
    mine, its = operator.channels, makers[name].channels
    if name not in parts.makers or mine is None or its is None:
        return False
    return (its.axis, its.count) == (mine.axis, mine.inputs)


def _sources(
    operator: Operator, index: int, needs: list[tuple[int, int]], parts: Parts
) -> tuple[tuple[str, ...], tuple[int, int] | None]:
    """Return the tensors that a part takes, and which of their channels."""
    (name,) = operator.inputs
    if operator.channels is not None and operator.channels.follows:
        return (parts.makers[name][index].output,), None
    if not needs:
        return parts.expand(operator.inputs), None
    if operator.name in parts.feeds:
        return (parts.feeds[operator.name].outputs[index],), None
    if name not in parts.makers:  # the program's own input lies on every rank
        return (name,), needs[index]
    return _overlap(name, needs[index], parts)


def _overlap(tensor: str, need: tuple[int, int], parts: Parts) -> tuple[tuple[str, ...], tuple[int, int] | None]:
    touched = [part for part in parts.makers[tensor] if part.start < need[1] and part.stop > need[0]]
    first, last = touched[0].start, touched[-1].stop
    taken = None if (first, last) == need else (need[0] - first, need[1] - first)
    return tuple(part.output for part in touched), taken
