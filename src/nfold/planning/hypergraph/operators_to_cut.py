"""Proposes which operators to cut into parts: those too heavy or too large to be one cell of a balanced division."""

import itertools
from math import ceil, inf

from nfold.planning.costs.memory_needs import ROOM, rooms, state_bytes
from nfold.planning.inputs.chunk_counts import chunk_counts
from nfold.planning.inputs.facts import Facts
from nfold.planning.operator_parts.parts import why_whole

HEAVY = 0.5
"""Share of an equal rank's work in a step above which a cell is too heavy: its operator is cut."""
LARGE = 0.5
"""The same of a rank's room, for parameters with their gradients and optimizer state."""
MOST_PARTS = 16
"""Of an operator that is too heavy: each part costs messages."""
MOST_EACH = 4
"""Parts for each rank of an operator that is too large, if that is more: those of two such operators in a row send to
each other, every one to every one."""


def propose_splits(facts: Facts) -> dict[str, int]:
    """Return into how many parts the heaviest and largest operators should be cut; empty if all are fine. O(operators).

    It is no more than a proposal: what is in parts costs messages, so the same question is also planned without them.
    """
    works, states = _works(facts), state_bytes(facts)
    work = sum(works.values()) * chunk_counts(facts)[-1] / facts.workers * HEAVY
    if work <= 0:
        return {}
    most = max(MOST_PARTS, MOST_EACH * facts.workers)
    memory = LARGE * _least_room(rooms(facts), sum(states.values()), most)
    found: dict[str, int] = {}
    for operator in facts.graph.operators:
        if operator.channels is None or why_whole(facts.graph, operator):
            continue
        light = min(ceil(works[operator.name] / work), MOST_PARTS)
        parts = min(max(light, ceil(states[operator.name] / memory)), most, operator.channels.units)
        if parts > 1:
            found[operator.name] = parts
    return found


def _works(facts: Facts) -> dict[str, float]:
    """Seconds of a cell of each operator on the first rank."""
    profile = facts.profiles[facts.threads(facts.workers)[0]]
    seconds = profile.operators_s(facts.batch_size / chunk_counts(facts)[-1])
    return {operator.name: sum(seconds.get(operator.name, (0.0, 0.0))) for operator in facts.graph.operators}


def _least_room(having: list[float], needed: float, most_parts: int) -> float:
    """Return the least room among the roomiest ranks that hold the whole model together; infinite where nobody has any.

    Who could not keep one part of the finest cut of all of it counts for nothing: no operator is cut for him.

    Args:
        having: the room of each rank.
        needed: bytes of the whole model.
        most_parts: of an operator.
    """
    useful = sorted((room for room in having if room > 0 and room * most_parts >= needed), reverse=True)
    together = itertools.accumulate(ROOM * room for room in useful)
    enough = (room for room, held in zip(useful, together, strict=True) if held >= needed)
    return next(enough, useful[-1] if useful else inf)
