"""From a plan of how many samples live where to which ones: who trains on what in each epoch, and what moves for that.

The last samples of a node's list leave first, so the first ones of a list are those that are pinned. Who computes
nothing gives all away before training begins. What else moves while training is trained on in the epoch that needs it,
last of all samples of its rank, and is an own sample of the rank from the next epoch on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nfold.core.residency import EpochSamples, PlacedRun, RankSamples, ResidencyPlan, SampleMove, Spans
from nfold.errors import InternalError
from nfold.planning.residency.model.spans import common, cut_last, joined, num_samples, without
from nfold.planning.residency.model.transfers import flows

_PIECES = 32
"""Into which what comes from one node is cut, where samples come from several at once."""


class _Moved(NamedTuple):
    """Samples that one node takes from another, by the nodes' indices."""

    source: int
    target: int
    spans: Spans


def placed_run(
    plan: ResidencyPlan, members: Sequence[int], *, first_step: int = 0, first_epoch: int = 0, sites: Sequence[str] = ()
) -> PlacedRun:
    """Return who trains on which samples by a plan.

    Args:
        plan: whose residency lists the samples of each node.
        members: number of the member on each of the plan's nodes.
        first_step: from which the plan holds.
        first_epoch: of that step.
        sites: of the nodes; empty: near to none.

    Raises:
        InternalError: nodes do not list their samples.
    """
    ranks = [index for index, node in enumerate(plan.nodes) if node.is_member]
    holders = _Holders([holding.spans for holding in plan.before.holdings], ranks)
    goals = plan.works or (tuple(node.holds for node in plan.nodes),)
    epochs: list[EpochSamples] = []
    moves: list[SampleMove] = []
    for epoch, goal in enumerate(goals, first_epoch):
        came: dict[int, list[Spans]] = {}
        for moved in holders.moved(goal, sites or ("",) * len(goal)):
            beside = plan.moving == "while training" and plan.nodes[moved.source].is_member
            if beside:
                came.setdefault(moved.target, []).append(moved.spans)
            moves += holders.told(moved, members, epoch if beside else None)
        holders.keep()
        epochs.append(
            EpochSamples(
                from_epoch=epoch, by_rank=tuple(_of_rank(holders.lists[rank], came.get(rank)) for rank in ranks)
            )
        )
    if any(rank.arriving for rank in epochs[-1].by_rank):
        own = tuple(RankSamples(own=holders.lists[rank]) for rank in ranks)
        epochs.append(EpochSamples(from_epoch=epochs[-1].from_epoch + 1, by_rank=own))
    return PlacedRun(
        first_step=first_step,
        members=tuple(members[rank] for rank in ranks),
        nodes=tuple(plan.nodes[rank].node for rank in ranks),
        epochs=tuple(_without_repeats(epochs)),
        moves=tuple(moves),
    )


def counted_from(run: PlacedRun, brought: Spans, epoch: int) -> PlacedRun:
    """Return a placement in which some samples count from an epoch on; the epochs before it visit the others alone.

    What moves of them while an earlier epoch trains is not waited for there. So it stays with who held it at first, who
    sends it in the epoch that needs it, to who trains on it then: what only passed through another node skips it.
    """
    if not brought:
        return run
    before = [each for each in run.epochs if each.from_epoch < epoch]
    begun = [each for each in run.epochs if each.from_epoch <= epoch][-1]
    after = [each for each in run.epochs if each.from_epoch > epoch]
    alone = [replace(each, by_rank=tuple(_but(rank, brought) for rank in each.by_rank)) for each in before]
    held = _held_at_first(run, brought)
    late = [
        SampleMove(source=source, target=member, spans=spans, epoch=epoch)
        for member, rank in zip(run.members, begun.by_rank, strict=True)
        for source, has in held.items()
        if source != member and (spans := common(rank.own, has))
    ]
    if late and not any(each.from_epoch == epoch + 1 for each in after):
        after = [replace(begun, from_epoch=epoch + 1), *after]
    came = {member: [move.spans for move in late if move.target == member] for member in run.members}
    arriving = tuple(_later(rank, came[member]) for member, rank in zip(run.members, begun.by_rank, strict=True))
    first = [move for move in run.moves if move.epoch is None]
    early = [move for move in run.moves if move.epoch is not None and move.epoch < epoch]
    early = [replace(move, spans=spans) for move in early if (spans := without(move.spans, brought))]
    then = [move for move in run.moves if move.epoch is not None and move.epoch >= epoch]
    return replace(
        run,
        epochs=(*_without_repeats(alone), replace(begun, from_epoch=epoch, by_rank=arriving), *after),
        moves=(*first, *early, *late, *(each for move in then for each in _from_holders(move, held, brought))),
    )


def check_supply(run: PlacedRun, lists: Sequence[Spans], brought: Spans) -> None:
    """Make sure that whoever trains on brought samples has them by then, or is sent them.

    Args:
        run: as `counted_from` gives it.
        lists: what each member holds before anything moves.
        brought: the samples.

    Raises:
        InternalError: somebody would wait for samples that nobody sends.
    """
    has = {member: list(spans) for member, spans in zip(run.members, lists, strict=True)}
    for each in run.epochs:
        due = [move for move in run.moves if move.epoch is None or move.epoch <= each.from_epoch]
        for member, rank in zip(run.members, each.by_rank, strict=True):
            came = [span for move in due if move.target == member for span in move.spans]
            if missing := without(common((*rank.own, *rank.arriving), brought), joined((*has[member], *came))):
                number = num_samples(missing)
                raise InternalError(
                    f"nobody sends member {member} {number} samples that it trains on from epoch {each.from_epoch} on"
                )


class _Holders:
    """Which samples each node holds, as they move."""

    def __init__(self, lists: Sequence[Spans], ranks: Sequence[int]) -> None:
        self.lists, self._ranks = list(lists), ranks
        self._set_origins(lists)

    def _set_origins(self, lists: Sequence[Spans]) -> None:
        self._origins = sorted((first, end, node) for node, spans in enumerate(lists) for first, end in spans)
        self._firsts = np.array([first for first, _, _ in self._origins])

    def moved(self, goal: Sequence[int], sites: Sequence[str]) -> Iterator[_Moved]:
        """Move samples until each node holds as many as it shall, and yield each flow, first those before training."""
        held = np.array([num_samples(spans) for spans in self.lists], dtype=float)
        if held.sum() != sum(goal):
            raise InternalError(f"nodes list {held.sum():.0f} samples, and the plan is of {sum(goal)}")
        found = flows(held, np.array(goal, dtype=float), sites)
        for source, target, number in sorted(found, key=lambda flow: flow.source in self._ranks):
            self.lists[source], spans = cut_last(self.lists[source], number)
            self.lists[target] = joined((*self.lists[target], *spans))
            yield _Moved(source, target, spans)

    def keep(self) -> None:
        """Let what came from nodes that have no rank count as held by those that took it: the others are gone."""
        if any(node not in self._ranks for _, _, node in self._origins):
            self._set_origins(self.lists)

    def told(self, moved: _Moved, members: Sequence[int], epoch: int | None) -> Iterator[SampleMove]:
        """Yield a flow as moves from those who held its samples at first: they still have them."""
        parts: dict[int, list[tuple[int, int]]] = {}
        for first, end in moved.spans:
            for part, source in self._by_origin(first, end):
                parts.setdefault(source, []).append(part)
        for source, spans in parts.items():
            if source != moved.target:  # who gets back what it gave has it still
                yield SampleMove(source=members[source], target=members[moved.target], spans=tuple(spans), epoch=epoch)

    def _by_origin(self, first: int, end: int) -> Iterator[tuple[tuple[int, int], int]]:
        place = int(np.searchsorted(self._firsts, first, side="right")) - 1
        while first < end:
            _, stop, node = self._origins[place]
            yield (first, min(end, stop)), node
            first, place = min(end, stop), place + 1


def _of_rank(held: Spans, came: list[Spans] | None) -> RankSamples:
    """Return the samples of a rank, of which some came: the last of its list."""
    if came is None:
        return RankSamples(own=held)
    own, _ = cut_last(held, sum(map(num_samples, came)))
    return RankSamples(own=own, arriving=_interleaved(came))


def _but(samples: RankSamples, brought: Spans) -> RankSamples:
    return RankSamples(own=without(samples.own, brought), arriving=without(samples.arriving, brought))


def _held_at_first(run: PlacedRun, brought: Spans) -> dict[int, Spans]:
    """Return what each member holds of some samples when a placement begins, once all has moved that is to by then."""
    first = run.epochs[0]
    sent = {
        member: [
            span for move in run.moves if (move.source, move.epoch) == (member, first.from_epoch) for span in move.spans
        ]
        for member in run.members
    }
    ranks = zip(run.members, first.by_rank, strict=True)
    return {member: common((*rank.own, *sent[member]), brought) for member, rank in ranks}


def _from_holders(move: SampleMove, held: Mapping[int, Spans], brought: Spans) -> Iterator[SampleMove]:
    """Yield a move as those from who holds its samples, where they are some of those that were brought."""
    others = without(move.spans, brought)
    for source, has in held.items():
        spans = common(move.spans, (*has, *(others if source == move.source else ())))
        if spans and source != move.target:
            yield replace(move, source=source, spans=spans)


def _later(samples: RankSamples, came: list[Spans]) -> RankSamples:
    """Return the samples of a rank, of which some come before the others that arrive in the epoch."""
    late = _interleaved(came) if came else ()
    return RankSamples(own=without(samples.own, late), arriving=(*late, *samples.arriving))


def _interleaved(came: Sequence[Spans]) -> Spans:
    """Return spans from several nodes in the order in which they come: all links are busy at once."""
    if len(came) == 1:
        return came[0]
    pieces: list[tuple[float, tuple[int, int]]] = []
    for spans in came:
        total, done = num_samples(spans), 0
        for first, end in _pieces(spans, max(1, total // _PIECES)):
            done += end - first
            pieces.append((done / total, (first, end)))
    return joined([piece for _, piece in sorted(pieces)])


def _pieces(spans: Spans, length: int) -> Iterator[tuple[int, int]]:
    for first, end in spans:
        for begin in range(first, end, length):
            yield begin, min(end, begin + length)


def _without_repeats(epochs: Sequence[EpochSamples]) -> Iterator[EpochSamples]:
    last: tuple[RankSamples, ...] | None = None
    for each in epochs:
        if each.by_rank != last:
            yield each
        last = each.by_rank
