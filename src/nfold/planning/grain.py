"""Proposes which operators to cut into parts: those too heavy, or too large, to be one cell of a balanced grid."""

from collections.abc import Iterator
from math import ceil

from nfold.core.graph import ModelGraph, Operator
from nfold.planning.chunking import chunk_counts
from nfold.planning.facts import Facts
from nfold.planning.parts import why_whole

HEAVY = 0.5
"""Share of an equal rank's work in a step above which a cell is too heavy: its operator is cut."""
LARGE = 0.5
"""The same of the least memory of a rank, for parameters with their gradients and optimizer state."""
MOST_PARTS = 16
"""Of an operator that is too heavy: each part costs messages. One that is too large gets as many as it needs."""


def propose_splits(facts: Facts) -> dict[str, int]:
    """Return into how many parts the heaviest and largest operators should be cut; empty if all are fine. O(operators).

    It is no more than a proposal: what is in parts costs messages, so the same question is also planned without them.
    """
    works, states = _works(facts), _states(facts)
    work = sum(works.values()) * chunk_counts(facts)[-1] / facts.workers * HEAVY
    memory = min(_memory_bytes(facts)) * LARGE
    if min(work, memory) <= 0:
        return {}
    found: dict[str, int] = {}
    for operator in facts.graph.operators:
        if operator.channels is None or why_whole(facts.graph, operator):
            continue
        light = min(ceil(works[operator.name] / work), MOST_PARTS)
        parts = min(max(light, ceil(states[operator.name] / memory)), operator.channels.units)
        if parts > 1:
            found[operator.name] = parts
    return found


def _works(facts: Facts) -> dict[str, float]:
    """Seconds of a cell of each operator on the first rank."""
    profile = facts.profiles[facts.threads(facts.workers)[0]]
    seconds = profile.operators_s(facts.batch_size / chunk_counts(facts)[-1])
    return {operator.name: sum(seconds.get(operator.name, (0.0, 0.0))) for operator in facts.graph.operators}


def _states(facts: Facts) -> dict[str, float]:
    """Bytes that an operator's owner keeps for its parameters, their gradients and the optimizer."""
    profile = facts.profiles[facts.threads(facts.workers)[0]]
    factor = 2 + profile.optimizer_bytes / max(1, facts.graph.parameter_bytes)
    return {operator.name: factor * sum(_bytes(facts.graph, operator)) for operator in facts.graph.operators}


def _bytes(graph: ModelGraph, operator: Operator) -> Iterator[int]:
    return (each.num_bytes for each in graph.trained if each.name in operator.parameters)


def _memory_bytes(facts: Facts) -> list[float]:
    """What each worker's node has for it, beside the process itself."""
    nodes, base_bytes = facts.nodes[: facts.workers], facts.profiles[facts.threads(facts.workers)[0]].base_bytes
    return [facts.cluster.node(name).memory_bytes / nodes.count(name) - base_bytes for name in nodes]
