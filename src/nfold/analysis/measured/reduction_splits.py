"""Parts of reductions, rank by rank -> how long each bucket queued, travelled and waited for peers in a mean step.

    queue       its gradients were complete here, and other messages to the same peer were ahead of it
    transfer    the least of its durations over the ranks of a step: who came last waited for nobody
    peer wait   what this rank took beyond that

No clocks are compared. What a bucket costs in all this may be hidden behind computing: only what is exposed costs time.
"""

from collections.abc import Iterable, Mapping
from statistics import fmean

from nfold.core.report import ReductionSplit
from nfold.core.trace import ReductionParts, Trace, transfers_s


def reduction_splits(trace: Trace, first_step: int = 0) -> tuple[ReductionSplit, ...]:
    """Return the mean split of every bucket over steps and ranks, the one that takes longest first. O(rows).

    Empty where nothing was measured, and for an asynchronous run: there each rank's bucket travels for itself, and
    nothing follows from the least of them.

    Args:
        trace: of the run.
        first_step: that counts; those before it warm up.
    """
    if trace.is_asynchronous:
        return ()
    steps: dict[int, list[ReductionParts]] = {}
    for parts in trace.reductions:
        if parts.step >= first_step:
            steps.setdefault(parts.step, []).append(parts)
    transfers = {step: transfers_s(parts) for step, parts in steps.items()}
    buckets: dict[str, list[ReductionParts]] = {}
    for parts in (each for of_step in steps.values() for each in of_step):
        buckets.setdefault(parts.reduction, []).append(parts)
    splits = [_split(name, parts, transfers) for name, parts in buckets.items()]
    return tuple(sorted(splits, key=lambda split: -split.total_s))


def _split(name: str, parts: Iterable[ReductionParts], transfers: Mapping[int, Mapping[str, float]]) -> ReductionSplit:
    rows = [(each, transfers[each.step][name]) for each in parts]
    return ReductionSplit(
        reduction=name,
        queue_s=fmean(each.queue_s for each, _ in rows),
        transfer_s=fmean(transfer_s for _, transfer_s in rows),
        peer_wait_s=fmean(each.duration_s - transfer_s for each, transfer_s in rows),
        sent_bytes=fmean(each.sent_bytes for each, _ in rows),
    )
