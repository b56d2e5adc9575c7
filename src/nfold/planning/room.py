"""Says which nodes have too little memory for a proposal, with the numbers: while it trains, and between steps.

building      every rank builds the user's whole module, since only the user's code can, and those that compute a part
              of it trace it, which makes one gradient after another; then a rank lets go of what it does not need
evaluating    where no worker holds the whole model, rank 0 fetches it for that
"""

from collections.abc import Sequence

from nfold.core.plan import Prediction
from nfold.core.profile import Profile
from nfold.planning.facts import Facts, Proposal
from nfold.planning.memory import foreign_parameters, held_bytes

_MOST_NAMED = 4
_WIDE = 10 * 2**30
"""From here on bytes are told in GiB."""


def memory_objection(facts: Facts, proposal: Proposal, prediction: Prediction) -> str | None:
    """Return why a proposal does not fit, node by node; None if it does.

    Args:
        facts: the question, with its operators in parts where the proposal has them so.
        proposal: what is asked about.
        prediction: of it.
    """
    trains = prediction.peak_memory_bytes
    profile = facts.profiles[max(facts.profiles)]
    names = facts.nodes[: len(trains)]
    whole = _weights(facts) + _largest_gradient(facts)
    rooms = {node.name: node.memory_bytes for node in facts.cluster.nodes}
    if all(_on(trains, names, node) + names.count(node) * whole <= rooms[node] for node in set(names)):
        return None  # between steps a rank never holds more than that beside what it trains with
    between = _between_steps(facts, proposal, profile)
    told = []
    for node in dict.fromkeys(names):
        needs = {"": _on(trains, names, node)}
        needs |= {why: _on(bytes_of, names, node) for why, bytes_of in between.items()}
        why = max(needs, key=lambda each: needs[each])
        if needs[why] > rooms[node]:
            held = sum(
                held_bytes(facts.graph, proposal, profile, rank) for rank, name in enumerate(names) if name == node
            )
            told.append(_tell(names.count(node), node, needs[why], rooms[node], why or _of_it(held)))
    if not told:
        return None
    more = f"; and on {len(told) - _MOST_NAMED} other nodes too" if len(told) > _MOST_NAMED else ""
    return f"{'; '.join(told[:_MOST_NAMED])}{more}. Use more --chunks, fewer workers, or another node."


def _on(needs: Sequence[int], names: Sequence[str], node: str) -> int:
    return sum(need for need, name in zip(needs, names, strict=True) if name == node)


def _between_steps(facts: Facts, proposal: Proposal, profile: Profile) -> dict[str, tuple[int, ...]]:
    """Bytes of each rank by what it does."""
    placement = proposal.placement
    foreign = foreign_parameters(facts.graph, placement)
    if proposal.asynchrony is not None or not any(foreign[: proposal.workers]):
        return {}
    weights, computing = _weights(facts), {rank for owners in placement.owners.values() for rank in owners}
    traced = [_largest_gradient(facts) if rank in computing else 0 for rank in range(placement.world_size)]
    found = {"to build the whole model before it is cut": tuple(profile.base_bytes + weights + each for each in traced)}
    if facts.evaluates:
        held = profile.base_bytes + held_bytes(facts.graph, proposal, profile, 0) + weights
        found["to evaluate the whole model, which rank 0 fetches"] = (held, *[0] * (placement.world_size - 1))
    return found


def _weights(facts: Facts) -> int:
    return sum(each.num_bytes for each in facts.graph.parameters)


def _largest_gradient(facts: Facts) -> int:
    return max((each.num_bytes for each in facts.graph.parameters if each.has_gradient), default=0)


def _of_it(held: int) -> str:
    return f"{_size(held)} of it for weights, gradients and optimizer state"


def _tell(ranks: int, node: str, needed: int, room: int, why: str) -> str:
    who = "1 rank needs" if ranks == 1 else f"{ranks} ranks need"
    needs, there = _size(needed), _size(room)
    if needs == there:  # they differ below the last digit
        needs, there = f"{needed} bytes", f"{room} bytes"
    return f"{who} {needs} on {node}, which has {there} ({why})"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= _WIDE else f"{num_bytes / 2**20:.0f} MiB"
