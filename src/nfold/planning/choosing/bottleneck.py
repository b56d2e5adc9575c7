"""What limits the step of a plan: a link that has many bytes to carry, or a rank that has much to compute."""

from statistics import median

from nfold.core.findings.node_advice import Bottleneck
from nfold.core.plan import Plan
from nfold.planning.costs.estimate import estimate
from nfold.planning.inputs.facts import Facts, proposal_of
from nfold.planning.operator_parts.splitting import split_facts

FULL = 0.7
"""Share of a step from which on a link is full: what it carries waits for what is computed first."""
MOSTLY = 0.5
ALIKE = 0.9
"""Links, and ranks, that need so much of what the busiest needs are as busy."""


def bottleneck_of(facts: Facts, chosen: Plan) -> Bottleneck:
    """Return what a synchronous plan spends most of its step on. O(cells + messages).

    Args:
        facts: that it was made from.
        chosen: the plan.
    """
    step_s = chosen.predicted.step_s
    computing = max(chosen.loads_s) / step_s if step_s > 0 else 1.0
    link = _busiest_link(facts, chosen) if chosen.world_size > 1 else None
    if link is not None and link.share >= max(FULL, computing):
        return link
    if link is None or computing >= MOSTLY:
        return Bottleneck(kind="computing", node=_slowest(chosen), share=min(1.0, computing))
    waiting = chosen.predicted.exposed_communication_s / step_s
    return Bottleneck(kind="messages", share=waiting)


def _busiest_link(facts: Facts, chosen: Plan) -> Bottleneck:
    """The link that is busy longest; one of several if those of other nodes are about as busy."""
    found = estimate(split_facts(facts, chosen.splits), proposal_of(chosen))
    busy_s = [max(pair) for pair in zip(found.sending_s, found.receiving_s, strict=True)]
    most_s = max(busy_s)
    rank = busy_s.index(most_s)
    is_alone = sum(seconds >= ALIKE * most_s for seconds in busy_s) == 1
    return Bottleneck(
        kind="link" if is_alone else "links",
        node=chosen.nodes[rank],
        side="uplink" if found.sending_s[rank] >= found.receiving_s[rank] else "downlink",
        share=min(1.0, most_s / chosen.predicted.step_s),
    )


def _slowest(chosen: Plan) -> str:
    """The node that computes longer than is typical; empty where all compute about as long."""
    loads_s = {rank: chosen.loads_s[rank] for rank in chosen.placement.working}
    longest = max(loads_s, key=loads_s.__getitem__)
    return chosen.nodes[longest] if median(loads_s.values()) < ALIKE * loads_s[longest] else ""
