"""What workers of an asynchronous run wait for before any byte moves: a round trip for each question of a slice.

worker   ask ---.          .--- values     first the rank that hands slices out,
server          '-- answer                 then all others at once
"""

from statistics import fmean

from nfold.analysis.measured.measured_facts import MeasuredFacts
from nfold.analysis.rules.finding import HALF, Finding
from nfold.core.cluster import Node
from nfold.core.text.units import count, seconds
from nfold.planning.asynchronous.asynchronous_strategies import serving_ranks


def round_trips(facts: MeasuredFacts) -> Finding | None:
    """Return latency, where it is more than half of what a mean worker waits for messages.

    A gradient goes right before the question for the next slice, so it costs no round trip of its own.
    """
    workers, exposed_s = range(facts.plan.workers), facts.parts.exposed_communication_s
    latency_s = fmean(_slices(facts, worker) * sum(_trips_s(facts, worker)) for worker in workers)
    if latency_s <= HALF * exposed_s:
        return None
    worker = max(workers, key=lambda worker: sum(_trips_s(facts, worker)))
    trips = _trips_s(facts, worker)
    node = facts.plan.nodes[worker]
    evidence = (
        f"for each slice a worker asks {count(len(trips), 'time')} in turn, and {seconds(max(trips))} pass before any "
        f"byte of an answer"
    )
    return Finding(
        kind="latency",
        verdict="latency",
        place=f"{node} uplink",
        lost_s=exposed_s,
        value=latency_s * 1e3,
        evidence=evidence,
        head=f"Latency: {evidence} at {node}, and each step waits {seconds(exposed_s)} for messages.",
        remedy="Fewer, larger slices would help: a larger batch, so that there are fewer steps.",
        next_command=f"nfold compare {{file}} -n {facts.plan.workers} --strategies {facts.plan.strategy},ring",
        node=node,
    )


def _slices(facts: MeasuredFacts, worker: int) -> float:
    """Slices that a worker computes in a mean step; all of them together compute one each."""
    return facts.mean_s(worker, "samples") * facts.plan.workers / max(1, facts.plan.batch_size)


def _trips_s(facts: MeasuredFacts, worker: int) -> list[float]:
    """Round trips that follow each other: the slowest of each round of questions."""
    first, *others = serving_ranks(facts.plan.reductions)
    rounds = [[first], others]
    asked = [[server for server in each if server != worker] for each in rounds]
    return [max(_there_and_back_s(facts, worker, server) for server in each) for each in asked if each]


def _there_and_back_s(facts: MeasuredFacts, one: int, other: int) -> float:
    near, far = (facts.cluster.node(facts.plan.nodes[rank]) for rank in (one, other))
    if near.name == far.name:
        return 2 * near.local.latency_s
    return _latency_s(near) + _latency_s(far)


def _latency_s(node: Node) -> float:
    return sum(channel.latency_s for channel in (node.uplink, node.downlink) if channel is not None)
