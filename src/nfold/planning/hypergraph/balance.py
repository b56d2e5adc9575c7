"""Says when a division gives a rank more work than was asked for: fewer bytes may be worth it, but never silently."""

from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.partition import Partition
from nfold.planning.hypergraph.repair import SLACK


def imbalance(partition: Partition, limits: Limits) -> float:
    """Return by what part of its share the heaviest block exceeds it: 0.1 is 10 % too much work."""
    total_s = sum(partition.loads_s) or 1.0
    loads = zip(partition.loads_s, limits.shares, strict=True)
    return max(load_s / total_s / share for load_s, share in loads) - 1


def keeps(partition: Partition, limits: Limits) -> bool:
    """Return whether no block has more work than the limits allow."""
    return imbalance(partition, limits) <= limits.epsilon + 2 * SLACK


def balance_notes(partition: Partition, limits: Limits, *, is_possible: bool, is_divisible: bool) -> tuple[str, ...]:
    """Say that the heaviest rank has more work than the limits allow; nothing where it has not.

    Args:
        partition: what is proposed.
        limits: the loosest that were asked for.
        is_possible: whether a division within them was found as well.
        is_divisible: whether a batch may be cut into more chunks.
    """
    if keeps(partition, limits):
        return ()
    lighter = "; more --chunks make lighter cells" if is_divisible else ""
    worth = "what it sends less is predicted to be worth that"
    why = worth if is_possible else f"no division within that was found{lighter}"
    return (
        f"the heaviest rank has {imbalance(partition, limits):.0%} more work than its share by its speed, beyond the "
        f"{limits.epsilon:.0%} that strategy hypergraph asks for: {why}",
    )
