"""Throughputs of architectures at several sizes and links -> who wins where, and from which size on somebody else does.

Measured figures count where there are some. Beyond them predicted ones do, and are marked as such: measured and
predicted figures are never ranked against each other.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from nfold.core.comparison import Takeover, Throughput, Winner

TIE = 1.02
"""Architectures closer than that are not told apart."""


def winners(points: Iterable[Throughput]) -> tuple[Winner, ...]:
    """Return the fastest of every size and link; sizes that were measured have no predicted winner."""
    places: dict[tuple[float, int], list[Throughput]] = {}
    for point in points:
        places.setdefault((point.link_bytes_per_s or 0.0, point.workers), []).append(point)
    return tuple(_winner(places[place]) for place in sorted(places))


def _winner(points: Sequence[Throughput]) -> Winner:
    measured = [point for point in points if point.origin == "measured"]
    ranked = sorted(measured or points, key=lambda point: -point.samples_per_s)
    first, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    return Winner(
        link_bytes_per_s=first.link_bytes_per_s,
        workers=first.workers,
        architecture=first.architecture,
        lead=first.samples_per_s / second.samples_per_s if second else 1.0,
        second=second.architecture if second else "",
        origin=first.origin,
    )


def takeovers(won: Sequence[Winner]) -> tuple[Takeover, ...]:
    """Return where, from one size to the next on equal links, another architecture wins; ties take nothing over."""
    found = []
    for link in dict.fromkeys(winner.link_bytes_per_s for winner in won):
        clear = [winner for winner in won if winner.link_bytes_per_s == link and winner.lead >= TIE]
        for before, after in pairwise(sorted(clear, key=lambda winner: winner.workers)):
            if before.architecture != after.architecture:
                found.append(
                    Takeover(
                        link_bytes_per_s=link,
                        workers=after.workers,
                        last_workers=before.workers,
                        winner=after.architecture,
                        loser=before.architecture,
                        origin=after.origin,
                    )
                )
    return tuple(found)
