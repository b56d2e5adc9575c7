"""The order in which samples are visited where they live: a function of seed, epoch and who holds what.

Every rank visits its own samples in an order of its own, and ranks take turns so that each batch, and each beginning of
an epoch, has of every rank's samples about its share. Samples that arrive while the epoch goes on are the last of their
rank's. What an epoch has visited when others begin to train on it is as it was; the rest is ordered anew:

    placed:   a a b a a b │ a a b a ..          batches before the change keep their samples
    anew:                 └ c b c c b ..        who holds the rest now takes turns

What a host brings that comes later counts from an epoch's beginning on: an epoch under way keeps the samples that it
began with, and the next one has more of them, and so more steps.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nfold.core.residency import PlacedRun, RankSamples, Spans
from nfold.errors import InternalError
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.model.spans import num_samples

Numbers = NDArray[np.int64]
Marks = NDArray[np.bool_]


class ResidentOrder(NamedTuple):
    """The samples of an epoch, one after another: arrays of one length."""

    rank: Numbers
    """Who trains on each."""
    number: Numbers
    """Which sample of the whole data it is."""


def placed_order(runs: Sequence[PlacedRun], seed: int, epoch: int, batch_size: int) -> ResidentOrder:
    """Return the order of an epoch under all placements that a run has had. O(n log n) for n samples.

    Args:
        runs: ascending; see `check_runs`.
        seed: of the program.
        epoch: counts from 0.
        batch_size: samples of a step.
    """
    epochs = epoch_steps(runs, batch_size)
    begin, end = epochs.first_step(epoch), epochs.first_step(epoch + 1)
    at_begin = run_at(runs, begin)
    order = resident_order(samples_in(at_begin, epoch), seed, epoch, in_a_row=at_begin.in_a_row)
    for run in runs:
        if begin < run.first_step < end:
            done = (run.first_step - begin) * batch_size
            visited = np.zeros(order.number.max() + 1, dtype=np.bool_)
            visited[order.number[:done]] = True
            rest = resident_order(samples_in(run, epoch), seed, epoch, visited=visited, in_a_row=run.in_a_row)
            pairs = zip(order, rest, strict=True)
            order = ResidentOrder(*(np.concatenate([old[:done], new]) for old, new in pairs))
    return order


def resident_order(
    by_rank: Sequence[RankSamples], seed: int, epoch: int, *, visited: Marks | None = None, in_a_row: int = 1
) -> ResidentOrder:
    """Return an order in which every sample comes once. O(n log n) for n samples.

    The keys by which samples are shuffled are the raw numbers of a counter-based generator (Philox), which are the same
    in every version of numpy.

    Args:
        by_rank: the samples of each rank.
        seed: of the program.
        epoch: counts from 0.
        visited: of shape (samples of the whole data,): those that are left out; None: none is.
        in_a_row: samples of a rank that come together: with two, an even batch seldom has a single one of a rank's.
    """
    held = [_held(each, seed, epoch, rank, visited) for rank, each in enumerate(by_rank)]
    turn = np.argsort(np.concatenate([_turns(len(each), in_a_row) for each in held]), kind="stable")
    rank = np.repeat(np.arange(len(held)), [len(each) for each in held])
    return ResidentOrder(rank[turn], np.concatenate(held)[turn])


def step_sizes(order: ResidentOrder, batch_size: int, num_ranks: int) -> Numbers:
    """Return how many samples of each rank every step of an epoch has, of shape (steps, ranks)."""
    total = len(order.rank)
    steps = -(-total // batch_size)
    cells = np.arange(total) // batch_size * num_ranks + order.rank
    return np.bincount(cells, minlength=steps * num_ranks).reshape(steps, num_ranks)


def samples_in(run: PlacedRun, epoch: int) -> tuple[RankSamples, ...]:
    """Return what each rank trains on in an epoch, all that it visits and all that it has visited before the run."""
    return [each for each in run.epochs if each.from_epoch <= epoch][-1].by_rank


def count_samples(run: PlacedRun, epoch: int) -> int:
    """Return how many samples an epoch visits, if it begins under a placement or goes on under it."""
    by_rank = samples_in(run, max(epoch, run.epochs[0].from_epoch))
    return sum(num_samples(each.own) + num_samples(each.arriving) for each in by_rank)


def epoch_steps(runs: Sequence[PlacedRun], batch_size: int) -> EpochSteps:
    """Return which steps belong to which epoch: an epoch has the samples of the placement that it begins under.

    Args:
        runs: ascending; see `check_runs`.
        batch_size: samples of a step.
    """
    stretches: list[tuple[int, int]] = []
    epoch = begin = 0
    while True:
        run = next((run for run in reversed(runs) if run.first_step <= begin), runs[0])
        steps = -(-count_samples(run, epoch) // batch_size)
        if not stretches or stretches[-1][1] != steps:
            stretches.append((epoch, steps))
        until_other = [-(-(later.first_step - begin) // steps) for later in runs if later.first_step > begin]
        until_other += [each.from_epoch - epoch for each in run.epochs if each.from_epoch > epoch]
        if not until_other:
            return EpochSteps(tuple(stretches))
        epoch += min(until_other)
        begin += min(until_other) * steps


def numbers_of(spans: Spans) -> Numbers:
    """Return the numbers of the samples in spans, one after another."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(first, end) for first, end in spans)])


def run_at(runs: Sequence[PlacedRun], step: int) -> PlacedRun:
    """Return the placement that a step is trained under."""
    return [run for run in runs if run.first_step <= step][-1]


def runs_before(runs: Sequence[PlacedRun], step: int) -> tuple[PlacedRun, ...]:
    """Return the placements under which steps before this one were trained; a later one was given up untrained."""
    return tuple(run for run in runs if run.first_step < step)


def check_runs(runs: Sequence[PlacedRun], batch_size: int) -> None:
    """Make sure that an order follows from placements.

    Raises:
        InternalError: an epoch would miss a sample or visit it twice, or the placements are no sequence.
    """
    if any(later.first_step <= one.first_step for one, later in pairwise(runs)):
        raise InternalError(f"placements begin at the steps {[run.first_step for run in runs]}")
    epochs = epoch_steps(runs, batch_size)
    total = count_samples(runs[0], epochs.epoch(runs[0].first_step))
    if not epochs.is_end(runs[0].first_step):
        raise InternalError(f"samples are placed from step {runs[0].first_step} on, amid an epoch of {total}")
    held = np.arange(total)  # those that an epoch must have: none is lost from an epoch to the next one
    for run in runs:
        epoch = epochs.epoch(run.first_step)
        is_amid = not epochs.is_end(run.first_step)
        if run is not runs[0]:
            at = epochs.first_step(epoch if is_amid else epoch - 1)
            held = _numbers_in(run_at(runs, at), epochs.epoch(at))
        _check_run(run, epoch, held, may_grow=not is_amid and run is not runs[0])


def _check_run(run: PlacedRun, epoch: int, held: Numbers, *, may_grow: bool) -> None:
    begins = [each.from_epoch for each in run.epochs]
    if begins != sorted(set(begins)) or begins[0] > epoch:
        raise InternalError(f"a placement from epoch {epoch} on says who trains from the epochs {begins} on")
    for each in run.epochs:
        if len(each.by_rank) != len(run.members):
            raise InternalError(f"{len(run.members)} members train on the samples of {len(each.by_rank)} ranks")
    for begin in sorted({epoch, *(begin for begin in begins if begin > epoch)}):
        found = _numbers_in(run, begin)
        is_same = np.array_equal(found, held)
        if not is_same and not ((may_grow or begin > epoch) and _has_all(found, held)):
            raise InternalError(f"from epoch {begin} on, not each of {len(held)} samples is visited once")
        held = found


def _numbers_in(run: PlacedRun, epoch: int) -> Numbers:
    """Return the numbers of an epoch's samples, ascending."""
    by_rank = samples_in(run, epoch)
    return np.sort(numbers_of(tuple(span for rank in by_rank for span in (*rank.own, *rank.arriving))))


def _has_all(found: Numbers, held: Numbers) -> bool:
    """Whether ascending numbers have none twice, and all of others."""
    return bool((np.diff(found) > 0).all() and np.isin(held, found).all())


def _held(samples: RankSamples, seed: int, epoch: int, rank: int, visited: Marks | None) -> Numbers:
    own = numbers_of(samples.own)
    found = np.concatenate([own[_shuffled(len(own), seed, epoch, rank)], numbers_of(samples.arriving)])
    return found if visited is None else found[~visited[found]]


def _turns(count: int, in_a_row: int) -> NDArray[np.float64]:
    """Return when each of a rank's samples comes, as a part of the epoch.

    Those that come together have one turn. Three at a time, as an odd number needs once, come at the end: all that
    follow them are at odd places.
    """
    groups = max(1, count // in_a_row)
    group = np.minimum(np.arange(count) // in_a_row, groups - 1)
    is_odd = (group == groups - 1) & bool(count % in_a_row)
    return np.where(is_odd, 1.0, (group + 0.5) / groups)


def _shuffled(count: int, seed: int, epoch: int, rank: int) -> Numbers:
    generator = np.random.Philox(key=np.array([seed % 2**64, epoch << 32 | rank], dtype=np.uint64))
    keys = generator.random_raw(count)
    return np.argsort(keys, kind="stable")
