"""What a run's architecture would do on more nodes than it had: the same nodes, repeated."""

from dataclasses import replace

from nfold.core.plan import Plan
from nfold.errors import ClusterError
from nfold.planning.scaling import SCALABLE, ScalingPoint, predict_scaling
from nfold.runtime.events import Known
from nfold.verbs.summary import question_of

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


def predicted_points(
    known: Known, plan: Plan, *, least: int = 1, most: int = _SIZES[-1], grow_batch: bool = False
) -> tuple[ScalingPoint, ...]:
    """Return a point for each of some sizes, with as many dedicated servers as the run had.

    Args:
        known: what the run rests on.
        plan: of the run.
        least: workers of the smallest size.
        most: workers of the largest size.
        grow_batch: each worker keeps its number of samples; otherwise the batch stays, and no more workers than
            samples are asked about.

    Returns:
        Nothing for a strategy whose scaling cannot be predicted, or on nodes without links to others.
    """
    if plan.strategy not in SCALABLE or plan.asynchrony is not None:
        return ()
    largest = most if grow_batch else min(most, plan.batch_size)
    try:
        return tuple(_point(known, plan, size, grow_batch) for size in _SIZES if least <= size <= largest)
    except ClusterError:
        return ()  # a single machine: nothing is known of a network that it does not use


def _point(known: Known, plan: Plan, workers: int, grow_batch: bool) -> ScalingPoint:
    per_worker = plan.batch_size / plan.workers
    batch_size = round(per_worker * workers) if grow_batch else plan.batch_size
    facts = replace(question_of(plan, known), workers=workers, batch_size=batch_size, chunks=None)
    return predict_scaling(facts, plan.strategy, (workers,))[0]
