"""Data, shares of batches and members at once: who sends its data once, and who its gradients in every step.

A slow link costs every step its gradients, and its node's data only once. With members fixed, water-filling is exact.
Which members: a step waits for the slowest link among them, so the first sets to look at are all nodes with a link of
at least some speed (the drain rule: the others send their data and leave). Then the fastest of those, and single nodes.
The best of each are tried with one node more, one less, or one exchanged, as long as that helps. Bounds from below
leave out most sets unseen, and of many that are nested a grid is looked at first. Of few nodes all sets are looked at.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nfold.planning.residency.methods.waterfilling import Level, holdings_at, water_level
from nfold.planning.residency.model.boxes import EXACT, Indices, Mask
from nfold.planning.residency.model.pricing import members_of
from nfold.planning.residency.model.problem import Problem

_ALL_SETS = 8
"""Up to so many nodes, no search is needed: 255 sets at most, of which bounds leave a few dozen."""
_GRID = 24
"""Of nested sets, how many are looked at first; then those between, around the best."""


class _Effort(NamedTuple):
    """How hard to search."""

    exact: float
    """Relative error of the optimum for a set, while sets are compared."""
    tries: int | None
    """Sets with one node more or less that are looked at; None: all, and with one exchanged."""
    worth: float
    """By which share a set must be better to go on from it."""


_FEW, _FEW_NODES = _Effort(EXACT, None, 1e-12), 64
_TRIES, _LEAST_TRIES = 5000, 8
"""Sets times nodes that are looked at in a round, and the fewest sets."""
_LIKELY = 32
"""Of many nodes, how many are tried as one more or one less, by speed and by link each."""
_GROWN = 32
"""Members up to which a single node is let grow, one at a time."""


class Joint(NamedTuple):
    """The best that one set of members can do."""

    run_s: float
    members: Mask
    level: Level


def joint_optimum(problem: Problem) -> Joint:
    """Return the best members found, with the exact optimum for them. O(n log n) for each of a few dozen sets."""
    effort = _effort(len(problem.names))
    if len(problem.names) <= _ALL_SETS:
        best, _ = _best(problem, list(_all_sets(problem)), None, effort)
        assert best is not None, "all nodes together are a set"
        return best
    linked = _zoomed(problem, list(_by_link(problem)), effort)
    assert linked is not None, "all nodes together are a set"
    fastest = _zoomed(problem, list(_by_rate(problem, linked.members)), effort)
    alone, _ = _best(problem, list(_alone(problem)), None, effort)
    nested = min((linked, fastest or linked), key=lambda found: found.run_s)
    starts = [nested, *([alone] if alone is not None and nested.members.sum() <= _GROWN else [])]
    climbed = (_climbed(problem, start, effort) for start in starts)
    return of_members(problem, min(climbed, key=lambda found: found.run_s).members)


def _effort(count: int) -> _Effort:
    return _FEW if count <= _FEW_NODES else _Effort(1e-5, max(_LEAST_TRIES, _TRIES // count), 1e-3)


def of_members(problem: Problem, members: Mask, exact: float = EXACT) -> Joint:
    """Return the best that members can do; those that hold nothing then are none.

    Args:
        problem: of n nodes.
        members: of shape (n,); together they have room for all samples, and all that pin some are among them.
        exact: relative error.
    """
    boxes, epochs = problem.boxes.computing(members), problem.demand.epochs
    level = water_level(boxes, epochs, exact)
    holding = members_of(problem, holdings_at(boxes, level)) & members
    return Joint(level.move_s + epochs * (level.compute_s + problem.sync_s(holding)), holding, level)


def is_possible(problem: Problem, members: Mask) -> bool:
    """Whether members have room for all samples, and nobody else pins some."""
    boxes = problem.boxes
    others_pin = bool((boxes.least[~members] > 0).any())
    return bool(members.any()) and not others_pin and float(boxes.most[members].sum()) >= boxes.total


# Sets to look at


def _all_sets(problem: Problem) -> Iterator[Mask]:
    """Yield each set of nodes that can compute."""
    can = np.flatnonzero(problem.can_compute)
    for number in range(1, 2 ** len(can)):
        members = np.zeros(len(problem.names), dtype=bool)
        members[can[[bool(number >> place & 1) for place in range(len(can))]]] = True
        yield members


def _by_link(problem: Problem) -> Iterator[Mask]:
    """Yield all nodes with a link of at least some speed, for each speed."""
    narrow, pins = problem.links.narrow, problem.boxes.least > 0
    for speed in np.unique(narrow[problem.can_compute]):
        yield problem.can_compute & ((narrow >= speed) | pins)


def _by_rate(problem: Problem, members: Mask) -> Iterator[Mask]:
    """Yield the fastest of some members, for each number of them."""
    rate, pins = problem.boxes.rate, problem.boxes.least > 0
    for least in np.unique(rate[members]):
        yield members & ((rate >= least) | pins)


def _alone(problem: Problem) -> Iterator[Mask]:
    """Yield each node by itself, with those that pin samples."""
    pins = problem.boxes.least > 0
    for node in np.flatnonzero(problem.can_compute):
        yield pins | (np.arange(len(pins)) == node)


def _neighbours(problem: Problem, members: Mask, *, exchanges: bool) -> Iterator[Mask]:
    can: Indices = np.flatnonzero(problem.can_compute)
    for node in can if exchanges else _likely(problem, members):
        yield _flipped(members, int(node))
    if exchanges:
        for out in np.flatnonzero(members):
            yield from (_flipped(members, int(out), int(come)) for come in can if not members[come])


def _likely(problem: Problem, members: Mask) -> list[int]:
    """Return members that bring little, and others that would bring much, by speed and by link."""
    inside, outside = np.flatnonzero(members), np.flatnonzero(problem.can_compute & ~members)
    found: set[int] = set()
    for worth in (problem.boxes.rate, problem.links.narrow):
        found.update(map(int, inside[np.argsort(worth[inside])[:_LIKELY]]))
        found.update(map(int, outside[np.argsort(-worth[outside])[:_LIKELY]]))
    return sorted(found)


def _flipped(members: Mask, *nodes: int) -> Mask:
    changed = members.copy()
    for node in nodes:
        changed[node] = not changed[node]
    return changed


# The best of them


def _best(
    problem: Problem, sets: Sequence[Mask], known: Joint | None, effort: _Effort, tries: int | None = None
) -> tuple[Joint | None, int]:
    """Return the best of some sets and of what is known, the most promising first, and its index; -1: what is known."""
    bounds = ((_bound_s(problem, members), index) for index, members in enumerate(sets))
    best, at = known, -1
    for bound_s, index in sorted(bounds)[:tries]:
        if bound_s >= (best.run_s if best is not None else np.inf):
            break
        found = of_members(problem, sets[index], effort.exact)
        if best is None or found.run_s < best.run_s:
            best, at = found, index
    return best, at


def _bound_s(problem: Problem, members: Mask) -> float:
    """Return a time that no plan of these members beats; infinite where there is none.

    All their speeds add up, and those that leave send what they hold.
    """
    if not is_possible(problem, members):
        return np.inf
    boxes = problem.boxes
    leaves_s = float((boxes.held[~members] / boxes.up[~members]).max(initial=0.0))
    compute_s = boxes.total / float(boxes.rate[members].sum())
    return leaves_s + problem.demand.epochs * (compute_s + problem.sync_s(members))


def _zoomed(problem: Problem, sets: Sequence[Mask], effort: _Effort) -> Joint | None:
    """Return the best of nested sets: of a grid, then of what lies between its points around the best."""
    best, center, step, reach = None, 0, max(1, len(sets) // _GRID), len(sets)
    while True:
        indices = range(max(0, center - reach), min(len(sets), center + reach + 1), step)
        best, at = _best(problem, [sets[index] for index in indices], best, effort)
        center = indices[at] if at >= 0 else center
        if step == 1:
            return best
        step, reach = max(1, step // (_GRID // 4)), step


def _climbed(problem: Problem, best: Joint, effort: _Effort) -> Joint:
    """Return the best set after one node more or less at a time, as long as that helps."""
    while True:
        nearby = list(_neighbours(problem, best.members, exchanges=effort.tries is None))
        found = _best(problem, nearby, best, effort, effort.tries)[0] or best
        if found.run_s >= best.run_s * (1 - effort.worth):
            return found
        best = found
