"""Where the data of a run are when it goes on elsewhere: what has moved stays where it is, if its node is still there.

Files of users are never removed, so who gave samples away can give them again. What was still on its way is where it
came from. What a host has brought that came later is needed by an epoch that has begun with it, and by no other: if its
host is gone before, it is left out. So it is where all go back to that epoch's beginning.
"""

from collections.abc import Collection, Iterator, Sequence
from math import inf
from typing import NamedTuple

from nfold.core.residency import (
    EpochSamples,
    NodeData,
    PlacedData,
    PlacedRun,
    RankSamples,
    SampleMove,
    Spans,
    num_begun,
    spans_of,
)
from nfold.core.text.units import count
from nfold.errors import ClusterError
from nfold.planning.residency.model.spans import common, joined, num_samples, union, without
from nfold.planning.residency.resident_order import samples_in


class Held(NamedTuple):
    """Who holds which samples, none of them twice."""

    lists: list[Spans]
    """Of each rank."""
    left: Spans
    """What none of them holds."""


def lists_at(kept: PlacedData, step: int, epoch: int, numbers: Sequence[int], *, is_begun: bool = True) -> list[Spans]:
    """Return which samples each rank holds when a run goes on, none of them twice.

    Args:
        kept: of the run so far; what was placed and not trained under counts for nothing where it may not have moved.
        step: from which it goes on.
        epoch: of that step.
        numbers: of the member that is each rank now.
        is_begun: whether steps of that epoch are done before.

    Raises:
        ClusterError: samples live on nodes that are not there any more.
    """
    held = held_at(kept, step, epoch, numbers)
    _check_none_left(kept, common(held.left, _needed_at(kept, step, epoch, is_begun=is_begun)))
    return held.lists


def lists_beside_leavers(
    kept: PlacedData,
    step: int,
    epoch: int,
    numbers: Sequence[int],
    leavers: Collection[int],
    *,
    is_begun: bool = True,
) -> list[Spans]:
    """Return the same while some are still there that are to leave: they hold what nobody has who stays.

    Args:
        kept: see `lists_at`.
        step: see there.
        epoch: see there.
        numbers: of each rank's member, leavers among them.
        leavers: those that are to leave.
        is_begun: see there.

    Raises:
        ClusterError: samples live on nodes that are not there any more.
    """
    stay, going = ([each for each in numbers if (each in leavers) == leaves] for leaves in (False, True))
    held = held_at(kept, step, epoch, stay)
    lists, left = dict(zip(stay, held.lists, strict=True)), held.left
    for number, spans in zip(going, held_at(kept, step, epoch, going).lists, strict=True):
        lists[number] = common(spans, left)
        left = without(left, spans)
    _check_none_left(kept, common(left, _needed_at(kept, step, epoch, is_begun=is_begun)))
    return [lists[number] for number in numbers]


def counted_at(kept: PlacedData, step: int, epoch: int) -> Spans:
    """Return the samples of an epoch, ascending, as far as it is known before a step of it; see `lists_at`."""
    for run in _in_force(kept, step):
        return _samples_of(samples_in(run, epoch))
    return ((0, num_begun(kept.members)),)


def scheduled_at(kept: PlacedData, step: int) -> Spans:
    """Return the samples of all later epochs, as was known before a step, ascending."""
    for run in _in_force(kept, step):
        return _samples_of(run.epochs[-1].by_rank)
    return ((0, num_begun(kept.members)),)


def pinned_first(lists: Sequence[Spans], pinned: Sequence[Spans]) -> list[Spans]:
    """Return lists in the order in which a plan takes from their ends: what is pinned on each node comes first."""
    pairs = zip(lists, pinned, strict=True)
    return [joined((*common(spans, first), *without(spans, first))) for spans, first in pairs]


def held_at(kept: PlacedData, step: int, epoch: int, numbers: Sequence[int]) -> Held:
    """Return which samples each rank holds, and which none does; see `lists_at`.

    Those that ranks have brought are among them, whether they count yet or not.
    """
    assigned: dict[int, Spans] = {}
    for run in _in_force(kept, step):
        assigned = {
            member: without(spans, _coming(run.moves, member, epoch))
            for member, spans in zip(run.members, _assigned(run, epoch), strict=True)
        }
    lists: list[Spans] = []
    left = union([*scheduled_at(kept, step), *(span for number in numbers for span in _own(kept, number))])
    for number in numbers:
        here = assigned.get(number, ())
        lists.append(joined(here))
        left = without(left, here)
    for run in _in_force(kept, step):
        for move in run.moves:
            if move.epoch is not None and move.epoch >= epoch and move.source in numbers:
                rank = numbers.index(move.source)
                here = without(common(left, move.spans), _coming(run.moves, move.source, epoch, move.epoch))
                lists[rank] = joined((*lists[rank], *here))
                left = without(left, here)
    for rank, number in enumerate(numbers):
        own = common(left, _own(kept, number))
        lists[rank] = joined((*lists[rank], *own))
        left = without(left, own)
    return Held(lists, left)


def repairs(kept: PlacedData, lists: Sequence[Spans], numbers: Sequence[int]) -> tuple[SampleMove, ...]:
    """Return the moves that brought samples to where they are, for what a node may have lost of them.

    What it still has is not sent again.
    """
    moves = []
    for target, spans in zip(numbers, lists, strict=True):
        for source in numbers:
            came = common(spans, _own(kept, source)) if source != target else ()
            if came:
                moves.append(SampleMove(source=source, target=target, spans=came))
    return tuple(moves)


def stages(moves: Sequence[SampleMove], members: Sequence[NodeData]) -> list[tuple[SampleMove, ...]]:
    """Return moves one order after another: who passes on what came to it may have to get that again first."""
    lived = spans_of(members)
    first = tuple(move for move in moves if not without(move.spans, (lived[move.source],)))
    return [each for each in (first, tuple(move for move in moves if move not in first)) if each]


def refuse_pinned_elsewhere(kept: PlacedData, members: Sequence[NodeData], pinned: Sequence[Spans]) -> None:
    """Refuse to go on where samples are pinned that the run has given to other nodes, or was to.

    Args:
        kept: of the run so far.
        members: as they are now.
        pinned: the samples of each that may not leave it.

    Raises:
        ClusterError: with how many of which node.
    """
    for number, spans in enumerate(pinned):
        given = [move.spans for run in kept.runs for move in run.moves if move.source == number]
        gone = common(spans, union(span for each in given for span in each))
        if gone:
            raise ClusterError(
                f"{members[number].node} pins {count(num_samples(spans), 'sample')}, and the run was to train on "
                f"{num_samples(gone)} of them on other nodes. Pin no more than when it began, or begin a new run."
            )


def _assigned(run: PlacedRun, epoch: int) -> list[Spans]:
    """Return what each rank of a placement has in an epoch, and what will be counted there that is not yet."""
    now = samples_in(run, epoch)
    counted = _samples_of(now)
    later: Iterator[EpochSamples] = (each for each in run.epochs if each.from_epoch > epoch)
    fuller = next((each.by_rank for each in later if without(_samples_of(each.by_rank), counted)), now)
    return [
        (*mine.own, *mine.arriving, *without((*then.own, *then.arriving), counted))
        for mine, then in zip(now, fuller, strict=True)
    ]


def _samples_of(by_rank: Sequence[RankSamples]) -> Spans:
    return union(span for rank in by_rank for span in (*rank.own, *rank.arriving))


def _own(kept: PlacedData, number: int) -> Spans:
    """Return the samples that lived on a member's node when it came."""
    first, end = spans_of(kept.members)[number] if number < len(kept.members) else (0, 0)
    return ((first, end),) if end > first else ()


def _in_force(kept: PlacedData, step: int) -> tuple[PlacedRun, ...]:
    """Return the placement by which samples lie where they are, if there is one.

    Nothing may have moved yet for one that was not trained under, unless it was written afterwards.
    """
    return tuple(run for run in kept.runs if run.first_step < step or run.has_moved)[-1:]


def _needed_at(kept: PlacedData, step: int, epoch: int, *, is_begun: bool) -> Spans:
    """Return the samples that an epoch must have: all that it has begun with, or those of the epoch before."""
    counted = counted_at(kept, step, epoch)
    before = [run for run in kept.runs if run.first_step < step]
    return counted if is_begun or not before else common(counted, _samples_of(samples_in(before[-1], epoch - 1)))


def _coming(moves: Sequence[SampleMove], member: int, begun: int, until: float = inf) -> Spans:
    """Return what a member was still to be sent when an epoch began, until another one is over."""
    return tuple(
        span
        for move in moves
        if move.target == member and move.epoch is not None and begun <= move.epoch <= until
        for span in move.spans
    )


def _check_none_left(kept: PlacedData, left: Spans) -> None:
    if not left:
        return
    gone = next(
        member.node for member, span in zip(kept.members, spans_of(kept.members), strict=True) if common(left, (span,))
    )
    raise ClusterError(
        f"{count(num_samples(left), 'sample')} that the run trains on live on nodes that are not there, {gone} among "
        "them. Bring them back, or begin a new run without them."
    )
