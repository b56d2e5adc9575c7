"""Whether a plan can train samples where they live: chunk c of a batch is what lives on rank c, none too small.

Shares of small nodes are fractions of a sample, so a chunk may be empty in some steps. Where the program computes
nothing on a single sample, a rank has two in a row or none.
"""

from collections.abc import Sequence

import numpy as np

from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.residency import PlacedRun, RankSamples
from nfold.core.text.units import count
from nfold.errors import PlanError
from nfold.planning.residency.model.spans import num_samples
from nfold.planning.residency.resident_order import (
    Numbers,
    count_samples,
    epoch_steps,
    placed_order,
    samples_in,
    step_sizes,
)

NO_SAMPLER = (
    "Program(sampler=...) says which samples a step has, and each rank is to train on those that live on its node. "
    "Leave the sampler out, or give all ranks all data and leave --place out."
)


def shares_of(run: PlacedRun) -> tuple[float, ...]:
    """Return each rank's share of a batch, once all samples have arrived."""
    counts = [_count(each) for each in run.epochs[-1].by_rank]
    return tuple(each / sum(counts) for each in counts)


def check_whole_chunks(plan: Plan, run: PlacedRun) -> None:
    """Refuse a plan in which a chunk is not computed by the rank whose samples it has, or by one that has all.

    Raises:
        PlanError: with the strategy, and what else to use.
    """
    ranks = tuple(range(len(run.members)))
    wanted = (ranks, (0,) * len(ranks)) if plan.placement.working == (0,) else (ranks,)
    owned = set(plan.placement.owners.values())
    if plan.asynchrony is None and plan.chunks == len(ranks) and owned <= set(wanted):
        return
    raise PlanError(
        f"--strategy {plan.strategy}, {count(plan.chunks, 'chunk')}: the samples live on {count(len(ranks), 'node')}, "
        f"and each trains on its own, one chunk of every batch, as ring and ps do"
    )


def check_least(runs: Sequence[PlacedRun], batch_size: int, graph: ModelGraph, seed: int) -> None:
    """Refuse chunks of fewer samples than the program computes on. O(n log n) for n samples, where it needs two.

    Args:
        runs: ascending; the last is looked at.
        batch_size: samples of a step.
        graph: of the program.
        seed: of the program, by which the order of an epoch under way follows.

    Raises:
        PlanError: with the first such step, its rank, and what to do.
    """
    run, least = runs[-1], graph.least_chunk
    if least == 1:
        return
    steps = epoch_steps(runs, batch_size)
    first = steps.epoch(run.first_step)
    for epoch in sorted({first, first + 1, *(each.from_epoch for each in run.epochs if each.from_epoch > first)}):
        sizes = _sizes(runs, epoch, batch_size, seed)
        skipped = max(0, run.first_step - steps.first_step(epoch))
        is_few = (sizes > 0) & (sizes < least) & (sizes.sum(axis=1, keepdims=True) >= least)
        is_few[:skipped] = False
        if is_few.any():
            step, rank = (int(each) for each in np.argwhere(is_few)[0])
            raise PlanError(_told(run, epoch, step, rank, batch_size, graph))


def _sizes(runs: Sequence[PlacedRun], epoch: int, batch_size: int, seed: int) -> Numbers:
    order = placed_order(runs, seed, epoch, batch_size)
    return step_sizes(order, batch_size, max(len(run.members) for run in runs))


def _told(run: PlacedRun, epoch: int, step: int, rank: int, batch_size: int, graph: ModelGraph) -> str:
    held = _count(samples_in(run, epoch)[rank])
    share = batch_size * held / count_samples(run, epoch)
    even = "an even batch size" if batch_size % 2 else "another batch size"
    return (
        f"rank {rank} ({run.nodes[rank]}) would train on a single sample in step {step + 1} of epoch {epoch + 1}, and "
        f"a chunk must have two or more ({graph.why_pairs}). It holds {count(held, 'sample')}, which is {share:.2g} of "
        f"a batch of {batch_size}. Use {even}, or leave {run.nodes[rank]} out: its samples must then move to others."
    )


def _count(samples: RankSamples) -> int:
    return num_samples(samples.own) + num_samples(samples.arriving)
