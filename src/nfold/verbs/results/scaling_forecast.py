"""What a run's architecture, or the two simplest ones, would do on more nodes than it had: the same nodes, repeated."""

from dataclasses import replace

from nfold.core.findings.comparison import Architecture
from nfold.core.job import Known
from nfold.core.plan import Plan
from nfold.core.report import Report
from nfold.errors import ClusterError
from nfold.planning.choosing.scaling import SCALABLE, ScalingPoint, predict_scaling
from nfold.verbs.results.summary import question_of
from nfold.view.html import Scaling, ScalingCurve

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


def scaling(known: Known, plan: Plan, report: Report) -> Scaling:
    """Return what the run measured and what is predicted for up to 1,000 such nodes, or why that cannot be said.

    Each worker keeps its number of samples, since no batch can be cut for so many. Where the run's own strategy cannot
    be predicted, a ring and servers are: what the same program could have there.
    """
    if known.graph.indivisible:
        return Scaling(note=f"No curve, because workers cannot share a batch here: {known.graph.indivisible}.")
    ring, servers = _as(plan, "ring", servers=0), _as(plan, "ps", servers=plan.servers)
    kinds = (plan,) if _is_scalable(plan) else (ring, servers)
    alone = predicted_points(known, ring, most=1, grow_batch=True)
    predicted = {_label(kind): predicted_points(known, kind, grow_batch=True) for kind in kinds}
    if not alone or not all(predicted.values()):
        return Scaling(note=_no_links(known))
    plain = alone[0].samples_per_s
    curves = tuple(_curve(label, points, plain) for label, points in predicted.items())
    basis = "What one plain worker does is predicted, too."
    if plan.asynchrony is not None:
        return Scaling(
            curves=curves, note=f"{basis} Not {plan.strategy}: its steps are worth less, and are not compared."
        )
    measured = ScalingCurve(
        label=_label(plan), origin="measured", workers=(plan.workers,), speedup=(report.samples_per_s / plain,)
    )
    unknown = "" if _is_scalable(plan) else f" How {plan.strategy} itself grows is not predicted."
    return Scaling(curves=(measured, *curves), note=basis + unknown)


def _is_scalable(plan: Plan) -> bool:
    return plan.strategy in SCALABLE and plan.asynchrony is None


def _as(plan: Plan, strategy: str, *, servers: int) -> Plan:
    return replace(plan, strategy=strategy, servers=servers, asynchrony=None)


def _label(plan: Plan) -> str:
    architecture = Architecture(strategy=plan.strategy, servers=plan.servers).name
    return f"{architecture}, {plan.batch_size / plan.workers:.0f} samples a worker"


def _curve(label: str, points: tuple[ScalingPoint, ...], plain_samples_per_s: float) -> ScalingCurve:
    return ScalingCurve(
        label=label,
        origin="predicted",
        workers=tuple(point.workers for point in points),
        speedup=tuple(point.samples_per_s / plain_samples_per_s for point in points),
    )


def _no_links(known: Known) -> str:
    nodes = [node.name for node in known.cluster.nodes if node.uplink is None or node.downlink is None]
    return (
        f"No curve: no link between {' or '.join(nodes[:3])} and other nodes is known, so nothing can be said of more "
        "nodes. Links are measured in a run on several nodes, and declared with `--emulate cluster.toml`."
    )


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
    if not _is_scalable(plan):
        return ()
    largest = most if grow_batch else min(most, plan.batch_size)
    try:
        return tuple(
            predicted_point(known, plan, size, grow_batch=grow_batch) for size in _SIZES if least <= size <= largest
        )
    except ClusterError:
        return ()  # a single machine: nothing is known of a network that it does not use


def predicted_point(known: Known, plan: Plan, workers: int, *, grow_batch: bool = False) -> ScalingPoint:
    """Return the predicted step with another number of workers, for a plan and nodes of which it can be said.

    Args:
        known: what the plan rests on.
        plan: whose strategy and servers are kept.
        workers: how many.
        grow_batch: let the batch grow with the number of workers.

    Raises:
        NfoldError: nothing can be said of this plan on so many nodes.
    """
    question = question_of(plan, known)
    (point,) = predict_scaling(question, plan.strategy, (workers,), grow_batch=grow_batch, servers=plan.servers)
    return point
