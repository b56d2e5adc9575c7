"""The exact optimum of moving first and training then, where every node has one link for all that it sends or receives.

For a given time to compute, senders are determined: each sends what it cannot compute in time. The time to move is the
level at which all receivers together take that much: a water level. It is a convex function of the time to compute,
made up of straight pieces, so the best time is where two of its tangents meet.

A node holds at most min(rate T, room, held + down t) samples when all has moved, for T seconds of computing and t of
moving. T and t are possible if and only if

    the sum of that over all nodes is at least all samples,            (everything has a place)
    held - up t <= min(rate T, room) on every node,                    (senders get rid of enough)
    pinned <= rate T on every node.
"""

from typing import NamedTuple

import numpy as np

from nfold.planning.residency.model.boxes import EXACT, Array, Boxes, least_compute_s

_MOST_ROUNDS = 200


class Level(NamedTuple):
    """Seconds of moving, and of computing in each epoch."""

    move_s: float
    compute_s: float


class _Point(NamedTuple):
    """The seconds of moving and epochs at some seconds of computing, and how steeply they grow with those."""

    at: float
    value: float
    slope: float
    move_s: float


def water_level(boxes: Boxes, weight: float, exact: float = EXACT) -> Level:
    """Return the level of least move_s + weight * compute_s. O(n) for each of a few dozen levels looked at.

    Args:
        boxes: of the nodes. Together they must have room for all samples, and whoever pins some must compute.
        weight: epochs.
        exact: relative error.
    """
    low = _point(boxes, least_compute_s(boxes), weight)
    high = _point(boxes, max(low.at, boxes.total / _slowest(boxes.rate)), weight)
    best = min(low, high, key=lambda point: point.value)
    width = np.inf
    for _ in range(_MOST_ROUNDS):
        if low.slope >= 0 or high.slope <= 0 or high.at <= low.at:
            break
        meeting, floor = _meeting(low, high)
        is_slow = high.at - low.at > width / 2
        width = high.at - low.at
        middle = _point(boxes, (low.at + high.at) / 2 if is_slow else meeting, weight)
        best = min(best, middle, key=lambda point: point.value)
        if best.value <= floor + exact * abs(floor) or not low.at < middle.at < high.at:
            break
        low, high = (middle, high) if middle.slope < 0 else (low, middle)
    return Level(move_s=best.move_s, compute_s=best.at)


def least_move_s(boxes: Boxes, compute_s: float) -> float:
    """Return the least seconds of moving after which every epoch can compute in so many seconds."""
    ceiling = boxes.ceiling(compute_s)
    leaving = np.maximum(boxes.held - ceiling, 0.0)
    sends = leaving > 0
    level_s = float((leaving[sends] / boxes.up[sends]).max(initial=0.0))
    receives = ceiling > boxes.held
    room, down = (ceiling - boxes.held)[receives], boxes.down[receives]
    total = float(leaving.sum())
    full = -1
    for _ in range(len(room) + 1):
        taken = np.minimum(room, down * level_s)
        is_full = down * level_s >= room
        missing, growing = total - float(taken.sum()), float(down[~is_full].sum())
        if missing <= 0 or growing == 0 or int(is_full.sum()) == full:
            break
        full = int(is_full.sum())
        level_s += missing / growing
    return level_s


def holdings_at(boxes: Boxes, level: Level, preference: Array | None = None) -> Array:
    """Return what each node holds at a level, in fractions of samples: as few receivers as possible.

    Args:
        boxes: of the nodes.
        level: that is possible.
        preference: of shape (n,): who is larger here receives first; then who has more room.
    """
    ceiling = np.minimum(boxes.ceiling(level.compute_s), boxes.held + boxes.down * level.move_s)
    holds = np.minimum(boxes.held, ceiling)
    room, leaving = ceiling - holds, boxes.total - float(holds.sum())
    order = np.lexsort((-room, -(preference if preference is not None else np.zeros(len(room)))))
    before = np.concatenate(([0.0], np.cumsum(room[order])[:-1]))
    holds[order] += np.clip(leaving - before, 0.0, room[order])
    return holds


def _slowest(rate: Array) -> float:
    return float(rate[rate > 0].min())


def _point(boxes: Boxes, compute_s: float, weight: float) -> _Point:
    move_s = least_move_s(boxes, compute_s)
    return _Point(compute_s, move_s + weight * compute_s, weight + _slope(boxes, compute_s, move_s), move_s)


def _slope(boxes: Boxes, compute_s: float, move_s: float) -> float:
    """Return a slope of the least seconds of moving over those of computing: of one of its tangents."""
    ceiling = boxes.ceiling(compute_s)
    grows = boxes.rate * compute_s < boxes.most
    leaving = np.maximum(boxes.held - ceiling, 0.0)
    needs_s = leaving / boxes.up
    slowest = int(needs_s.argmax())
    reach = boxes.held + boxes.down * move_s
    if needs_s[slowest] >= move_s * (1 - EXACT) and leaving[slowest] > 0 and _fits(ceiling, reach, boxes.total):
        return float(-boxes.rate[slowest] / boxes.up[slowest]) if grows[slowest] else 0.0
    if move_s == 0:
        return 0.0
    held_up = (reach <= ceiling * (1 + EXACT)) & (ceiling > boxes.held)
    falling, rising = float(boxes.down[held_up].sum()), float(boxes.rate[grows & ~held_up].sum())
    return -rising / falling if falling > 0 else -np.inf


def _fits(ceiling: Array, reach: Array, total: float) -> bool:
    """Whether everything has a place, so that receivers are not what the level waits for."""
    return float(np.minimum(ceiling, reach).sum()) >= total * (1 + EXACT)


def _meeting(low: _Point, high: _Point) -> tuple[float, float]:
    """Return where two tangents meet, and how high: the function is nowhere lower."""
    if not np.isfinite(low.slope):
        return (low.at + high.at) / 2, -np.inf
    at = (high.value - low.value + low.slope * low.at - high.slope * high.at) / (low.slope - high.slope)
    at = min(max(at, low.at), high.at)
    return at, low.value + low.slope * (at - low.at)
