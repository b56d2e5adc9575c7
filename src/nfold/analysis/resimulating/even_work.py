"""Uneven work -> the same work evenly divided: what is slow about a node goes, what there is to compute stays.

rank 0  ######        rank 0  ####         moved to who has room, since somebody has to compute it
rank 1  ##            rank 1  ####
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median_high, median_low


@dataclass(frozen=True, kw_only=True, slots=True)
class Evened:
    """Work after it was divided evenly."""

    longest_s: float
    """That any rank computes: what is typical, or an even part of all if that is more."""
    shorter: Mapping[int, float]
    """Rank -> by what its work is multiplied where it had more than that; 1 elsewhere."""
    moved: Mapping[int, float]
    """The same, with what those had too much given to those with room."""


def evened(work_s: Mapping[int, float], speeds: Mapping[int, float]) -> Evened:
    """Divide work evenly.

    Args:
        work_s: of each rank that computes, in seconds on a node of speed 1.
        speeds: of each rank's node.
    """
    loads_s = {rank: seconds / speeds[rank] for rank, seconds in work_s.items()}
    usual = median_high(speeds.values()) if speeds else 1.0
    quick = {rank: max(speed, usual) for rank, speed in speeds.items()}
    longest_s = max(of_typical_s(loads_s.values()), sum(work_s.values()) / (sum(quick.values()) or 1.0))
    moved_s = sum(max(0.0, seconds / quick[rank] - longest_s) for rank, seconds in work_s.items())
    room_s = sum(max(0.0, longest_s - seconds) for seconds in loads_s.values())
    filled = min(1.0, moved_s / room_s) if room_s > 0 else 0.0
    shorter = {rank: min(1.0, longest_s / seconds) for rank, seconds in loads_s.items()}
    moved = {
        rank: shorter[rank] + filled * max(0.0, longest_s - seconds) / seconds for rank, seconds in loads_s.items()
    }
    return Evened(longest_s=longest_s, shorter=shorter, moved=moved)


def of_typical_s(loads: Collection[float]) -> float:
    """Return what a typical rank takes: the lower median over ranks, so of two that of the faster; 0.0 where none is.

    Over ranks and not over nodes, since it is workers who wait for each other.
    """
    return median_low(loads) if loads else 0.0
