"""The order in which samples are visited where they live: a function of seed, epoch and who holds what.

Every rank visits its own samples in an order of its own, and ranks take turns so that each batch, and each beginning of
an epoch, has of every rank's samples about its share. Samples that arrive while the epoch goes on are the last of their
rank's. What an epoch has visited when others begin to train on it is as it was; the rest is ordered anew:

    placed:   a a b a a b │ a a b a ..          batches before the change keep their samples
    anew:                 └ c b c c b ..        who holds the rest now takes turns
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nfold.core.residency import PlacedRun, RankSamples, Spans
from nfold.errors import InternalError
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
    total = count_samples(runs[0])
    begin, steps = _steps_of(total, batch_size, epoch)
    at_begin = run_at(runs, begin)
    order = resident_order(samples_in(at_begin, epoch), seed, epoch, in_a_row=at_begin.in_a_row)
    for run in runs:
        if begin < run.first_step < begin + steps:
            done = (run.first_step - begin) * batch_size
            visited = np.zeros(total, dtype=np.bool_)
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


def count_samples(run: PlacedRun) -> int:
    """Return how many samples an epoch visits."""
    return sum(num_samples(each.own) + num_samples(each.arriving) for each in run.epochs[0].by_rank)


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
    total = count_samples(runs[0])
    if runs[0].first_step % -(-total // batch_size):
        raise InternalError(f"samples are placed from step {runs[0].first_step} on, amid an epoch of {total}")
    if any(later.first_step <= one.first_step for one, later in pairwise(runs)):
        raise InternalError(f"placements begin at the steps {[run.first_step for run in runs]}")
    for run in runs:
        _check_run(run, total, run.first_step // -(-total // batch_size))


def _check_run(run: PlacedRun, total: int, epoch: int) -> None:
    begins = [each.from_epoch for each in run.epochs]
    if begins != sorted(set(begins)) or begins[0] > epoch:
        raise InternalError(f"a placement from epoch {epoch} on says who trains from the epochs {begins} on")
    for each in run.epochs:
        if len(each.by_rank) != len(run.members):
            raise InternalError(f"{len(run.members)} members train on the samples of {len(each.by_rank)} ranks")
        numbers = numbers_of(tuple(span for rank in each.by_rank for span in (*rank.own, *rank.arriving)))
        if len(numbers) != total or (np.sort(numbers) != np.arange(total)).any():
            raise InternalError(f"from epoch {each.from_epoch} on, not each of {total} samples is visited once")


def _steps_of(total: int, batch_size: int, epoch: int) -> tuple[int, int]:
    """Return the first step of an epoch, and how many it has."""
    steps = -(-total // batch_size)
    return epoch * steps, steps


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
