"""Says which nodes have too little memory for a proposal, with the numbers: while it trains, and between steps.

building      every rank builds the user's whole module, since only the user's code can, and those that compute a part
              of it trace it, which makes one gradient after another; when it goes on with a checkpoint, it reads
              what it needs of that, a few MiB at a time; then it lets go of what it does not need
evaluating    where no worker holds the whole model, rank 0 fetches it for that
"""

import math
from collections.abc import Callable, Sequence

from nfold.core.plan import Prediction
from nfold.core.profile import Profile
from nfold.planning.costs.peak_memory import base_bytes, evaluation_bytes, foreign_parameters, held_bytes
from nfold.planning.inputs.facts import Facts, Proposal

_EVALUATING = "to evaluate the whole model, which rank 0 fetches"
_BUILDING = "to build the whole model before it is cut"
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
    profile, names = _profile(facts, prediction), facts.nodes[: len(prediction.peak_memory_bytes)]
    alike: dict[tuple[str, str], list[str]] = {}
    advice: dict[str, None] = {}
    for node, (why, needed_bytes) in _lacking(facts, proposal, prediction).items():
        ranks = [rank for rank, name in enumerate(names) if name == node]
        held = sum(held_bytes(facts.graph, proposal, profile, rank) for rank in ranks)
        needed, there = _size(needed_bytes, math.ceil), _size(facts.cluster.node(node).memory_bytes, math.floor)
        who = "1 rank needs" if len(ranks) == 1 else f"{len(ranks)} ranks need"
        advice |= dict.fromkeys(_advice(why, len(ranks)))
        alike.setdefault((f"{who} {needed} on", f"{there} ({why or _of_it(held)})"), []).append(node)
    if not alike:
        return None
    told = [f"{who} {_listed(nodes)} {there}" for (who, there), nodes in alike.items()]
    more = f"; and so on for {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return f"{'; '.join(told[:_MOST_NAMED])}{more}. {_listed_advice(tuple(advice))}."


def lacking_bytes(facts: Facts, proposal: Proposal, prediction: Prediction) -> int:
    """Return how many bytes a proposal needs beyond what nodes have. Arguments as of `memory_objection`."""
    lacking = _lacking(facts, proposal, prediction)
    return sum(needed - facts.cluster.node(node).memory_bytes for node, (_, needed) in lacking.items())


def _lacking(facts: Facts, proposal: Proposal, prediction: Prediction) -> dict[str, tuple[str, int]]:
    """Return the nodes that have too little, with what needs the most there, and how much that is."""
    trains = prediction.peak_memory_bytes
    names = facts.nodes[: len(trains)]
    whole = 2 * _weights(facts)
    rooms = {node.name: node.memory_bytes for node in facts.cluster.nodes}
    if all(_on(trains, names, node) + names.count(node) * whole <= rooms[node] for node in set(names)):
        return {}  # between steps a rank never holds more than that beside what it trains with
    between = _between_steps(facts, proposal, _profile(facts, prediction), trains)
    found = {}
    for node in dict.fromkeys(names):
        needs = {why: _on(bytes_of, names, node) for why, bytes_of in between.items() if node in _concerned(why, names)}
        needs[""] = _on(trains, names, node)
        why = max(needs, key=lambda each: needs[each])
        if needs[why] > rooms[node]:
            found[node] = why, needs[why]
    return found


def _profile(facts: Facts, prediction: Prediction) -> Profile:
    return facts.profiles[facts.threads(len(prediction.peak_memory_bytes))[0]]


def _concerned(why: str, names: Sequence[str]) -> Sequence[str]:
    """Return the nodes that do something between steps: only rank 0 evaluates what it fetched."""
    return names[:1] if why == _EVALUATING else names


def _advice(why: str, num_ranks: int) -> tuple[str, ...]:
    """Return what helps on a node, of what no flag says: see `planning/choosing/advice.py` for those."""
    fewer = ("fewer ranks on that node",) if num_ranks > 1 else ()
    return *fewer, *(("another first node", "no test_data()") if why == _EVALUATING else ("another node",))


def _listed_advice(advice: Sequence[str]) -> str:
    *others, last = advice
    return f"Use {', '.join(others)}{',' if len(others) > 1 else ''} or {last}" if others else f"Use {last}"


def _listed(nodes: Sequence[str]) -> str:
    if len(nodes) == 1:
        return f"{nodes[0]}, which has"
    shown = nodes if len(nodes) <= _MOST_NAMED else [*nodes[: _MOST_NAMED - 1], f"{len(nodes) - _MOST_NAMED + 1} more"]
    return f"each of {', '.join(shown[:-1])} and {shown[-1]}, which have"


def _on(needs: Sequence[int], names: Sequence[str], node: str) -> int:
    return sum(need for need, name in zip(needs, names, strict=True) if name == node)


def _between_steps(
    facts: Facts, proposal: Proposal, profile: Profile, trains: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """Bytes of each rank by what it does. What the others trained with stays theirs while rank 0 evaluates."""
    placement = proposal.placement
    evaluating = evaluation_bytes(facts, proposal, profile)
    needs = {_EVALUATING: (evaluating, *trains[1:])} if evaluating else {}
    somebody_lets_go = proposal.splits or any(foreign_parameters(facts.graph, placement)[: proposal.workers])
    if proposal.asynchrony is not None or not somebody_lets_go:
        return needs
    weights = _weights(facts)
    gradient, working = _largest_gradient(facts), placement.working
    beside = [gradient if rank in working else 0 for rank in range(placement.world_size)]
    building = tuple(base_bytes(profile, rank) + weights + each for rank, each in enumerate(beside))
    return needs | {_BUILDING: building}


def _weights(facts: Facts) -> int:
    return sum(each.num_bytes for each in facts.graph.parameters)


def _largest_gradient(facts: Facts) -> int:
    return max((each.num_bytes for each in facts.graph.parameters if each.has_gradient), default=0)


def _of_it(held: int) -> str:
    return f"{_size(held, round)} of it for weights, gradients and optimizer state"


def _size(num_bytes: int, to_whole: Callable[[float], int]) -> str:
    """Tell an amount in whole units: what is needed is rounded up, so that a node with as much is large enough, and
    what is there down, so that the two differ."""
    if num_bytes >= _WIDE:
        return f"{to_whole(10 * num_bytes / 2**30) / 10:.1f} GiB"
    return f"{to_whole(num_bytes / 2**20)} MiB"
