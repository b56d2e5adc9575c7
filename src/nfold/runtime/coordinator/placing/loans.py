"""What a node that holds no samples is lent, so that it can be timed, and what is pinned and never lent. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from nfold.core.residency import NodeData, SampleMove, Spans, spans_of
from nfold.planning.residency.model.spans import common, cut_last, num_samples

LENT = 8
"""Samples that a node without any is lent."""


class Loans(NamedTuple):
    """What nodes that held nothing at first look at, to time the program."""

    examples: tuple[Spans, ...]
    """Of each rank; empty: it has samples of its own."""
    moves: tuple[SampleMove, ...]


def pinned_of(members: Sequence[NodeData]) -> list[Spans]:
    """Return the samples of each member that may not leave it: the first ones."""
    spans = zip(members, spans_of(members), strict=True)
    return [((first, first + member.num_pinned),) if member.num_pinned else () for member, (first, _) in spans]


def lendable(members: Sequence[NodeData], numbers: Sequence[int]) -> Spans:
    """Return a few samples that may leave their node, of the member that has most of these; empty: all are pinned.

    Args:
        members: all that the run has had.
        numbers: of those that are there.
    """
    most = max(numbers, key=lambda number: members[number].num_samples - members[number].num_pinned)
    first, end = spans_of(members)[most]
    begin = first + members[most].num_pinned
    return ((begin, min(end, begin + LENT)),) if begin < end else ()


def loans_of(members: Sequence[NodeData], numbers: Sequence[int], lists: Sequence[Spans]) -> Loans:
    """Return what ranks without samples of their own look at: what was placed on them, or what others lend.

    Args:
        members: all that the run has had.
        numbers: of the member that is each rank.
        lists: the samples that each rank holds.
    """
    lent = lendable(members, numbers)
    examples = tuple(
        () if members[number].num_samples else _first_few(spans) or lent
        for number, spans in zip(numbers, lists, strict=True)
    )
    moves = tuple(
        SampleMove(source=source, target=target, spans=spans)
        for target, wanted in zip(numbers, examples, strict=True)
        for source in numbers
        if (spans := common(wanted, (spans_of(members)[source],)))
    )
    return Loans(examples, moves)


def _first_few(spans: Spans) -> Spans:
    return cut_last(spans, max(0, num_samples(spans) - LENT))[0]
