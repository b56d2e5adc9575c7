"""What a model asks of a rank's memory beside the process itself: operator by operator, and all of it on one rank.

Rough figures, to see who has room for what before anything is placed; what a placement needs is added up in
`planning/costs/peak_memory.py`.
"""

from collections.abc import Iterator

from nfold.core.graph import ModelGraph, Operator
from nfold.core.profile import Profile
from nfold.planning.inputs.chunk_counts import chunk_counts
from nfold.planning.inputs.facts import Facts
from nfold.planning.inputs.operator_groups import LIGHT

ROOM = 0.9
"""Share of a rank's memory that states and activations may take; the rest is for messages."""


def rooms(facts: Facts) -> list[float]:
    """Return the bytes that each worker's node has for the model; negative where the process itself does not fit."""
    nodes, base_bytes = facts.nodes[: facts.workers], _profile(facts).process_bytes
    return [facts.cluster.node(name).memory_bytes / nodes.count(name) - base_bytes for name in nodes]


def state_bytes(facts: Facts) -> dict[str, float]:
    """Return by operator the bytes of its parameters, their gradients and the state of the optimizer for them."""
    factor = _state_factor(facts)
    return {operator.name: factor * sum(_bytes(facts.graph, operator)) for operator in facts.graph.operators}


def whole_bytes(facts: Facts) -> float:
    """Return the bytes that a rank needs for the whole model, chunk by chunk, without what it receives of others."""
    frozen_bytes = sum(each.num_bytes for each in facts.graph.parameters) - facts.graph.parameter_bytes
    kept_bytes = _chunk_size(facts) * _profile(facts).activation_bytes_per_sample
    return ((_state_factor(facts) + 1) * facts.graph.parameter_bytes + frozen_bytes + kept_bytes) / ROOM


def least_bytes(facts: Facts) -> float:
    """Return the bytes without which a rank cannot take part: those of the smallest operator that takes time."""
    chunk_size, profile = _chunk_size(facts), _profile(facts)
    seconds = {name: sum(pair) for name, pair in profile.operators_s(chunk_size).items()}
    light_s, saved, states = LIGHT * sum(seconds.values()), profile.saved_bytes(), state_bytes(facts)
    return min((states[name] + chunk_size * saved[name] for name in seconds if seconds[name] > light_s), default=0.0)


def _profile(facts: Facts) -> Profile:
    return facts.profiles[facts.threads(facts.workers)[0]]


def _chunk_size(facts: Facts) -> float:
    return facts.batch_size / chunk_counts(facts)[-1]


def _state_factor(facts: Facts) -> float:
    return 2 + _profile(facts).optimizer_bytes / max(1, facts.graph.parameter_bytes)


def _bytes(graph: ModelGraph, operator: Operator) -> Iterator[int]:
    return (each.num_bytes for each in graph.trained if each.name in operator.parameters)
