"""Refuse a plan whose first step nobody would live to see, with what would be quick enough instead. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from nfold.core.cluster import Cluster
from nfold.core.plan import Plan
from nfold.errors import PlanError
from nfold.planning.choosing.advice import advise
from nfold.planning.choosing.search import possible_plan
from nfold.planning.choosing.strategies import SEARCHED
from nfold.planning.inputs.facts import Facts

_ROOM = 1.5
"""Times the predicted step: what is asked for again shall not be refused for a prediction that is a little longer."""


def first_step_notes(chosen: Plan, limit_s: float) -> tuple[str, ...]:
    """Say of a plan that is only looked at that `train` would refuse it."""
    if chosen.predicted.step_s <= limit_s:
        return ()
    return (
        f"train refuses this plan: the first step would take about {chosen.predicted.step_s:.3g} s, longer than the "
        f"{limit_s:.3g} s allowed, unless {_allowed(chosen)} allows it",
    )


def check_first_step(facts: Facts, strategy: str, chosen: Plan, limit_s: float) -> None:
    """Refuse a plan whose first step is predicted to take longer than allowed.

    Args:
        facts: the question that it answers.
        strategy: that was asked for.
        chosen: the plan.
        limit_s: that is allowed.

    Raises:
        PlanError: with the estimate, the slowest link, and what was planned and found quick enough.
    """
    if chosen.predicted.step_s <= limit_s:
        return

    def is_quick(other: Facts, name: str) -> bool:
        found = None if name in SEARCHED else possible_plan(other, name)  # a search takes seconds, and there are many
        return found is not None and found.predicted.step_s <= limit_s

    links = sorted(_links(chosen, facts.cluster))
    slowest = f"; {links[0][2]}" if links else ""
    leave = ""
    if links and is_quick(_without(facts, links[0][1]), strategy):
        leave = f"Leave {links[0][1]} out of the cluster. "
    instead = advise(facts, strategy, is_quick)
    raise PlanError(
        f"the first step would take about {chosen.predicted.step_s:.3g} s, longer than the {limit_s:.3g} s allowed: "
        f"{chosen.strategy} sends {chosen.predicted.sent_bytes_per_step / 1e6:.1f} MB a step{slowest}. {leave}"
        f"{instead + ' ' if instead else ''}Or allow it: {_allowed(chosen)}."
    )


def _allowed(chosen: Plan) -> str:
    return f"--first-step-within {ceil(_ROOM * chosen.predicted.step_s)}"


def _links(chosen: Plan, cluster: Cluster) -> Iterator[tuple[float, str, str]]:
    """Yield bytes per second, node and words of each link that a plan uses."""
    used = {chosen.nodes[rank] for rank in (*chosen.placement.working, *range(chosen.workers, chosen.world_size))}
    for node in cluster.nodes:
        for side, channel in (("uplink", node.uplink), ("downlink", node.downlink)):
            if node.name in used and channel is not None:
                speed = channel.bandwidth_bytes_per_s
                yield speed, node.name, f"{node.name}'s {side} moves {speed * 8 / 1e6:.3g} Mbit/s"


def _without(facts: Facts, name: str) -> Facts:
    """Return the question of a cluster without a node; its ranks are not replaced."""
    workers = sum(node != name for node in facts.nodes[: facts.workers])
    nodes = tuple(node for node in facts.nodes if node != name)
    return replace(facts, nodes=nodes, workers=workers, servers=len(nodes) - workers)
